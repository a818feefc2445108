"""Field sets: folders of real data without a data card, with what a right reading of each holds (`EXPECTED.json`)."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.index import LABELS, TEST, TRAIN
from m3b.errors import UsageError
from m3b.isolation import untrusted
from m3b.isolation.untrusted import parse_json

EXPECTATIONS_FILE = "EXPECTED.json"
MAX_INDEX_BYTES = 2**30
MAX_FOLDER_CHARACTERS = 200
MAX_REGEX = 4_000
TARGET_TASKS = {"diagnosis": "diagnosis", "masks": "segmentation", "boxes": "detection", "report": "report"}
"""Target in `EXPECTED.json` -> task of m3b."""
DELIVERED_STATUSES = ("completed", "below_range")
REFUSED_STATUSES = ("no_dataset", "rejected_data", "undecided")
EXPECTATION_KEYS = (
    "folder", "request", "n", "classes", "target", "family", "group_re", "split_re", "mask_re", "refuse", "manifest",
)  # fmt: skip
"""Keys of an entry of `EXPECTED.json`; others are notes for people."""
MISSPELT_SIMILARITY, SIMILAR_KEY = 0.86, 0.6
"""Similarity (`difflib`) with a missing key from which a key is a misspelling, and from which it is named as a likely one."""


@dataclass(frozen=True)
class FieldSet:
    """A field set, and what a right index of it holds.

    Args:
        folder: absolute path of the data.
        min_cases, max_cases: cases of training and test part together.
        classes: number of classes or labelled structures; None if it is not checked.
        target: `diagnosis`, `masks`, `boxes` or `report`; empty if it is not checked.
        task: the task of m3b, if the target does not tell it, such as `regression`.
        group_pattern: regular expression whose first group names in an image's path what must not cross the split.
        split_pattern: regular expression that the path of every test image matches: the set's own test part.
        mask_pattern: regular expression that every mask among the raw files matches; masks that m3b wrote pass.
        should_refuse: whether the right answer is to decline.
        manifest: a manifest file that reads the set rightly; without it m3b's own reading is the reference if it is as expected.
    """

    folder: str
    request: str
    min_cases: int = 0
    max_cases: int | None = None
    classes: int | None = None
    target: str = ""
    task: str = ""
    group_pattern: str = ""
    split_pattern: str = ""
    mask_pattern: str = ""
    should_refuse: bool = False
    manifest: str = ""

    @property
    def name(self) -> str:
        """The name of the folder."""
        return Path(self.folder).name

    @property
    def family(self) -> str:
        """The task of m3b; `field` if nothing tells it."""
        return self.task or TARGET_TASKS.get(self.target, "field")

    def to_expectation(self) -> dict[str, Any]:
        """Return what decides how the set is divided and judged, by the keys of `EXPECTED.json`; of a manifest the SHA-256.

        Raises:
            UsageError: the manifest cannot be read.
        """
        try:
            manifest = hashlib.sha256(Path(self.manifest).read_bytes()).hexdigest() if self.manifest else ""
        except OSError as error:
            raise UsageError(
                f"The manifest {self.manifest} of the field set {self.name} cannot be read: {error}."
            ) from error
        return {
            "folder": str(Path(self.folder).resolve()),
            "request": self.request,
            "n": [self.min_cases, self.max_cases],
            "classes": self.classes,
            "target": self.target,
            "family": self.task,
            "group_re": self.group_pattern,
            "split_re": self.split_pattern,
            "mask_re": self.mask_pattern,
            "refuse": self.should_refuse,
            "manifest": manifest,
        }


def describe_changed_expectation(name: str, previous: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Return what has changed in the expectation of a field set since a sweep began; empty if nothing has.

    Args:
        previous, current: as `FieldSet.to_expectation` returns them.
    """
    changes = [
        "the content of its manifest" if key == "manifest" else f"`{key}` was {previous.get(key)!r} and is {value!r}"
        for key, value in current.items()
        if previous.get(key) != value
    ]
    return f"{name}: {', '.join(changes)}" if changes else ""


def load_field_sets(folder: Path, on_note: Callable[[str], None] = lambda text: None) -> tuple[FieldSet, ...]:
    """Return the field sets that the `EXPECTED.json` of a folder names.

    Args:
        on_note: gets a line for each key that is a note for people and resembles a key that the entry does not have.

    Raises:
        UsageError: there is no such file, an entry is malformed or has a misspelt key, or its folder does not exist.
    """
    file = folder / EXPECTATIONS_FILE
    try:
        entries = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--field takes a folder with data sets and {EXPECTATIONS_FILE}: {file}: {error}.") from error
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{file} must be a JSON list with an object for each data set.")
    field_sets = tuple(
        _parse_entry(entry, f"{file}, entry {number}", folder.absolute(), on_note)
        for number, entry in enumerate(entries, 1)
    )
    names = [field_set.name for field_set in field_sets]
    if len(set(names)) < len(names):
        raise UsageError(f"{file} names a folder twice; each data set has one entry.")
    return field_sets


def _check_keys(entry: Mapping[str, Any], label: str, on_note: Callable[[str], None]) -> None:
    """Refuse misspelt keys, and name other keys that resemble one that the entry lacks. Raises UsageError."""
    missing_keys = [key for key in EXPECTATION_KEYS if key not in entry]
    for key in entry:
        matches = (
            [] if key in EXPECTATION_KEYS else difflib.get_close_matches(key.lower(), missing_keys, 1, SIMILAR_KEY)
        )
        if not matches:
            continue
        if difflib.SequenceMatcher(None, key.lower(), matches[0]).ratio() >= MISSPELT_SIMILARITY:
            raise UsageError(f"{label}: there is no key `{key}`. Did you mean `{matches[0]}`?")
        on_note(f"{label}: the key `{key}` is a note, and nothing is compared with it. Did you mean `{matches[0]}`?")


def _parse_entry(entry: Any, label: str, root: Path, on_note: Callable[[str], None]) -> FieldSet:
    if isinstance(entry, dict):
        _check_keys(entry, label, on_note)
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("folder", "request")):
        raise UsageError(f"{label}: needs the texts `folder` and `request`.")
    folder, manifest = root / entry["folder"], entry.get("manifest", "")
    is_child = (
        Path(entry["folder"]).name == entry["folder"] not in ("", ".", "..")
        and len(entry["folder"]) < MAX_FOLDER_CHARACTERS
    )
    if not is_child or folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"{label}: there is no folder {entry['folder']!r} in {root}.")
    if (
        not isinstance(manifest, str)
        or not manifest.isprintable()
        or not (root / manifest).resolve().is_relative_to(root.resolve())
    ):
        raise UsageError(f"{label}: `manifest` is {manifest!r}; it is a file in {root}.")
    case_range = entry.get("n", [0, None])
    is_range = (
        isinstance(case_range, list)
        and len(case_range) == 2
        and isinstance(case_range[0], int)
        and isinstance(case_range[1], int | None)
    )
    if not is_range or not isinstance(entry.get("classes", 0), int):
        raise UsageError(f"{label}: `n` is a list with the least and the largest number of cases, `classes` a number.")
    if entry.get("target", "") not in ("", *TARGET_TASKS):
        raise UsageError(f"{label}: `target` is {entry['target']!r}; it is one of {', '.join(TARGET_TASKS)}.")
    texts = {key: entry.get(key) or "" for key in ("family", "group_re", "split_re", "mask_re")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{label}: `{key}` is {value!r}; it is a text.")
    if not isinstance(entry.get("refuse", False), bool):
        raise UsageError(f"{label}: `refuse` is {entry['refuse']!r}; it is true or false.")
    patterns = {key: texts[key] for key in ("group_re", "split_re", "mask_re")}
    for key, pattern in patterns.items():
        n_groups = _count_groups(pattern, f"{label}: {key}")
        if key == "group_re" and pattern and not n_groups:
            raise UsageError(f"{label}: group_re {pattern!r} needs a group that names the patient.")
    return FieldSet(
        folder=str(folder),
        request=entry["request"],
        min_cases=case_range[0],
        max_cases=case_range[1],
        classes=entry.get("classes"),
        target=entry.get("target", ""),
        task=texts["family"],
        group_pattern=patterns["group_re"],
        split_pattern=patterns["split_re"],
        mask_pattern=patterns["mask_re"],
        should_refuse=entry.get("refuse", False),
        manifest=str(root / manifest) if manifest else "",
    )


def _count_groups(pattern: str, label: str) -> int:
    """Return the number of groups of a regular expression; raise UsageError if it is none."""
    import polars as pl

    if len(pattern) > MAX_REGEX:
        raise UsageError(f"{label} has {len(pattern):,} characters; at most {MAX_REGEX:,} are read.")
    try:
        return len(pl.select(pl.lit("x").str.extract_groups(pattern)).to_series().struct.fields)
    except (pl.exceptions.PolarsError, UnicodeError) as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("error: ").rstrip(".")
        raise UsageError(
            f"{label} {pattern!r} is no regular expression that m3b reads: {reason}. Expressions have no look-around and no "
            "back-references."
        ) from error


def extract_groups(paths: Iterable[str], pattern: str) -> list[str | None]:
    """Return what the first group of a regular expression holds in each path; None if the expression is not in it.

    Expressions come from others, and run in polars' engine (Rust's regex), which takes linear time for any path.
    """
    import polars as pl

    return pl.Series(map(_to_utf8, paths), dtype=pl.String).str.extract(pattern, 1).to_list()


def list_unmatched(paths: Iterable[str], pattern: str) -> list[str]:
    """Return the paths in which a regular expression is not found; it runs as in `extract_groups`."""
    import polars as pl

    listed_paths = list(paths)
    is_match = pl.Series(map(_to_utf8, listed_paths), dtype=pl.String).str.contains(pattern)
    return [path for path, matches in zip(listed_paths, is_match, strict=True) if not matches]


def _to_utf8(path: str) -> str:
    """Return a path with bytes that are no UTF-8 escaped, as polars takes it."""
    return path.encode("utf-8", "backslashreplace").decode()


def find_differences(work: Path, field_set: FieldSet, removed_cases: int = 0) -> list[str]:
    """Return how the index in a working directory differs from a right reading; empty if it is right.

    Args:
        work: holds `Datapath/train.json`, `test.json` and `label_dict.json`.
        removed_cases: number of cases that were removed from the folder before it was read.
    """
    try:
        train, test, labels = (untrusted.read_json(work, name, MAX_INDEX_BYTES) for name in (TRAIN, TEST, LABELS))
        records = [*train, *test]
        return _compare(train, test, labels, field_set, removed_cases) if records else ["the index has no cases"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return [f"no index that can be read ({type(error).__name__})"]


def _compare(
    train: list[Mapping[str, Any]], test: list[Mapping[str, Any]], labels: Any, field_set: FieldSet, removed_cases: int
) -> list[str]:
    records, differences = [*train, *test], []
    low = field_set.min_cases - removed_cases
    high = None if field_set.max_cases is None else field_set.max_cases - removed_cases
    if len(records) < low or (high is not None and len(records) > high):
        differences.append(f"{len(records)} cases, not {low} to {high}")
    if field_set.classes is not None and len(labels) != field_set.classes:
        differences.append(f"{len(labels)} classes {list(labels)[:6]}, not {field_set.classes}")
    if pattern := field_set.group_pattern:
        crossing = _find_groups(train, pattern) & _find_groups(test, pattern)
        if crossing:
            differences.append(f"{len(crossing)} groups on both sides of the split, e.g. {min(crossing)}")
    if pattern := field_set.split_pattern:
        others = list_unmatched((path for record in test for path in list_images(record)), pattern)
        if others:
            differences.append(f"{len(others)} test images are not of the set's own test part, e.g. {others[0]}")
    if pattern := field_set.mask_pattern:
        raw_masks = [path for record in records for path in list_masks(record) if path.startswith("data/")]
        others = list_unmatched(raw_masks, pattern)
        if others:
            differences.append(f"{len(others)} masks are not the labels, e.g. {others[0]}")
    target = find_target(records[0])
    if field_set.target and target != field_set.target:
        differences.append(f"the target is {target}, not {field_set.target}")
    return differences


def _find_groups(records: list[Mapping[str, Any]], pattern: str) -> set[str]:
    groups = extract_groups((path for record in records for path in list_images(record)), pattern)
    return {group for group in groups if group is not None}


def list_images(record: Mapping[str, Any]) -> list[str]:
    """Return the paths of the images of an index record."""
    return _flatten(record["image_path"])


def list_masks(record: Mapping[str, Any]) -> list[str]:
    """Return the paths of the masks of an index record; none if its target is something else."""
    return _flatten(record.get("mask_path") or record.get("mask") or [])


def _flatten(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list):
        return [str(value)]
    return [path for item in value for path in (_flatten(item) if isinstance(item, list) else [str(item)])]


def find_target(record: Mapping[str, Any]) -> str:
    """Return the target of an index record: `diagnosis`, `masks`, `boxes` or `report`."""
    if "boxes" in record:
        return "boxes"
    return "masks" if list_masks(record) else "report" if "report" in record else "diagnosis"


@dataclass(frozen=True)
class ReadingJudgement:
    """How a run read a field set.

    Args:
        verdict: `right`; `refused` (declined, rejected or left open); `wrong` (no model was delivered); or `wrong_passed`: a
            model was delivered from a wrong reading.
        differences: what differs from a right reading.
        no_exam: why no patient of the set is hidden; empty if some are.
    """

    verdict: str
    differences: tuple[str, ...] = ()
    no_exam: str = ""

    def to_json(self) -> dict[str, Any]:
        values = {"verdict": self.verdict, "differences": list(self.differences)}
        return {**values, "no_exam": self.no_exam} if self.no_exam else values


def judge_reading(field_set: FieldSet, status: str, work: Path, removed_cases: int = 0) -> ReadingJudgement:
    """Return the judgement of the index of a run. `status` is that of the run's result; other arguments as of `find_differences`."""
    if field_set.should_refuse:
        return ReadingJudgement("wrong_passed" if status in DELIVERED_STATUSES else "right")
    differences = tuple(find_differences(work, field_set, removed_cases))
    if not differences:
        return ReadingJudgement("right")
    if status in DELIVERED_STATUSES:
        return ReadingJudgement("wrong_passed", differences)
    return ReadingJudgement("refused" if status in REFUSED_STATUSES else "wrong", differences)
