"""Real data sets that somebody has, their layout changed in ways that mean nothing, read as `m3b look` reads them.

As a script: `python tests/spec/real_kit.py FOLDER [--mutations 6 12 20] [--only NAME ...] [--results FILE]`, where FOLDER
holds the sets and an EXPECTED.json with an entry each: `folder`, `request`, `n` (least and most cases), `classes` (how many), `target`
(diagnosis, masks, boxes or report), and regular expressions on the paths of images: `split_re` (matches every test image),
`group_re` (its first group must not be on both sides), `mask_re` (matches every mask that is a raw file).
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from m3b.errors import DataError
from m3b.run.dataset_preview import preview_dataset

FIELD = Path(os.environ.get("M3B_FIELD_DATA", ""))
"""A folder of sets with an EXPECTED.json, as above; `make test-real DATA=FOLDER` names it."""
SETS: list[dict[str, Any]] = (
    json.loads((FIELD / "EXPECTED.json").read_text()) if os.environ.get("M3B_FIELD_DATA") else []
)
TEXTS = (".csv", ".tsv", ".txt", ".list", ".json", ".jsonl", ".xml")
TABLES = (".csv", ".tsv")
MAX_TEXT = 64 * 2**20
IMAGES = ("images", "image", "imgs", "jpegimages", "bilder", "scans", "fotos")
MASKS = ("masks", "mask", "masken", "gt", "ground_truth", "segmentation")
"""Names of folders that mean the same."""
COLUMNS = (
    ("filename", "file_name", "file", "Datei", "image", "img", "image_id"),
    ("patientid", "patient_id", "PatientID", "Patient", "pid", "subject"),
    ("finding", "diagnosis", "Diagnose", "label", "class", "target"),
)
"""Names of columns that mean the same."""


@dataclass
class Tree:
    """A data folder while its layout is changed: new path -> (path in the original, new text if it has one).

    Args:
        masks: image -> its one mask file, by the reading of the original.
    """

    root: Path
    files: dict[str, tuple[str, str | None]]
    masks: dict[str, str] = field(default_factory=dict)

    def rename(self, name: Callable[[str], str]) -> None:
        renamed = {path: name(path) for path in self.files}
        if len(set(renamed.values())) == len(renamed):
            self.files = {renamed[path]: source for path, source in self.files.items()}

    def text(self, path: str) -> str:
        original, changed = self.files[path]
        return changed if changed is not None else (self.root / original).read_text("utf-8", errors="strict")

    def texts(self, suffixes: Sequence[str]) -> Iterator[tuple[str, str]]:
        for path in list(self.files):
            if path.lower().endswith(tuple(suffixes)) and (self.root / self.files[path][0]).stat().st_size <= MAX_TEXT:
                try:
                    yield path, self.text(path)
                except UnicodeDecodeError:
                    continue

    def write(self, path: str, text: str) -> None:
        self.files[path] = (self.files[path][0], text)

    def restem(self, rename_stem: Callable[[str], str]) -> None:
        """New stems for all files but tables and notes; texts that name a file with or without its suffix follow."""
        new_names: dict[str, str] = {}
        renamed: dict[str, str] = {}
        for path in self.files:
            pure = PurePosixPath(path)
            if pure.suffix.lower() in (*TEXTS, ".md") and not _annotates(path, self.files):
                continue
            suffix = ".nii.gz" if pure.name.endswith(".nii.gz") else pure.suffix
            stem = pure.name.removesuffix(suffix)
            new = rename_stem(stem)
            renamed[path] = (pure.parent / f"{new}{suffix}").as_posix()
            new_names[pure.name] = new + suffix
            if any(letter.isalpha() for letter in stem):
                new_names[stem] = new
        self.rename(lambda path: renamed.get(path, path))
        if not new_names:
            return
        longest = sorted(new_names, key=len, reverse=True)
        names = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")
        for path, text in self.texts(TEXTS):
            if (changed := names.sub(lambda match: new_names[match[0]], text)) != text:
                self.write(path, changed)

    def lay(self, target: Path) -> None:
        """The folder as it is now, of hard links where that is possible."""
        for path, (original, text) in self.files.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                file.write_text(text, encoding="utf-8")
                continue
            try:
                os.link(self.root / original, file)
            except OSError:
                shutil.copyfile(self.root / original, file)


def _annotates(path: str, files: Mapping[str, object]) -> bool:
    """Whether an annotation file is one of a case, called like others beside it."""
    folder = PurePosixPath(path).parent.as_posix()
    return sum(file.startswith(f"{folder}/") and file.endswith(PurePosixPath(path).suffix) for file in files) > 20


# --- changes ---------------------------------------------------------------------------------------------------------


def nested(tree: Tree, rng: random.Random) -> None:
    top = rng.choice(("archive", "data/v1", "Dataset 2024"))
    tree.rename(lambda path: path if path.endswith(".md") and "/" not in path else f"{top}/{path}")


def folders_renamed(tree: Tree, rng: random.Random) -> None:
    """Folders of images and masks by another word, and the one folder around everything by any."""
    words = {name: rng.choice(family) for family in (IMAGES, MASKS) for name in family}
    tops = {path.split("/")[0] for path in tree.files if "/" in path}
    around = {tops.pop(): rng.choice(("d1", "Datensatz", "release"))} if len(tops) == 1 else {}

    def name(path: str) -> str:
        *folders, file_name = path.split("/")
        folders = [
            words.get(folder.lower(), folder) if at or folder not in around else around[folder]
            for at, folder in enumerate(folders)
        ]
        return "/".join([*folders, file_name])

    tree.rename(name)


def suffixes_cased(tree: Tree, rng: random.Random) -> None:
    suffixes = sorted({PurePosixPath(path).suffix for path in tree.files} - {"", ".md"} - set(TEXTS))
    if suffixes:
        suffix = rng.choice(suffixes)
        turned = suffix.upper() if suffix.islower() else suffix.lower()
        tree.rename(lambda path: path.removesuffix(suffix) + turned if path.endswith(suffix) else path)


def padded(tree: Tree, rng: random.Random) -> None:
    """The last number of every name with more zeros."""
    width = rng.choice((4, 5, 7))
    last = re.compile(r"(?<![0-9a-zA-Z])\d+(?=\D*$)|(?<=[a-z])\d+$")
    tree.restem(lambda stem: last.sub(lambda match: match[0].zfill(width), stem, count=1) if len(stem) < 40 else stem)


def separated(tree: Tree, rng: random.Random) -> None:
    """Another sign between the parts of names."""
    old, new = rng.choice((("_", "-"), ("_", "."), ("-", "_")))
    if new == "." and any(path.endswith(".nii.gz") for path in tree.files):
        new = "-"
    tree.restem(lambda stem: stem.replace(old, "-" if new == "." else new))


def tables_rewritten(tree: Tree, rng: random.Random) -> None:
    """Columns in another order, between other signs, some under other names."""
    words = {name.lower(): rng.choice(family) for family in COLUMNS for name in family}
    separator = rng.choice((",", ";", "\t"))
    for path, text in tree.texts(TABLES):
        rows = list(csv.reader(io.StringIO(text)))
        if not rows or len({len(row) for row in rows if row}) > 1 or not any(map(str.isalpha, "".join(rows[0]))):
            continue
        if any(re.fullmatch(r"[\d.]+", cell) or "." in cell for cell in rows[0]):
            continue  # no header
        order = rng.sample(range(len(rows[0])), len(rows[0]))
        header = [words.get(cell.lower(), cell) for cell in rows[0]]
        if len(set(header)) < len(header):
            header = rows[0]
        out = io.StringIO()
        writer = csv.writer(out, delimiter=separator)
        writer.writerows([[row[at] for at in order] for row in (header, *rows[1:]) if row])
        tree.write(path, out.getvalue())


def masks_beside(tree: Tree, rng: random.Random) -> None:
    """Masks in the folder of their images, called after them."""
    word = rng.choice(("_mask", "_gt", "_segmentation", "-label"))
    now = {original: path for path, (original, _) in tree.files.items()}
    moved = {}
    for image, mask in tree.masks.items():
        image_path, mask_path = PurePosixPath(now[image]), PurePosixPath(now[mask])
        stem = image_path.name.partition(".")[0]
        moved[now[mask]] = (image_path.parent / f"{stem}{word}.{mask_path.name.partition('.')[2]}").as_posix()
    tree.rename(lambda path: moved.get(path, path))


CHANGES = (nested, folders_renamed, suffixes_cased, padded, separated, tables_rewritten, masks_beside)


def must_be_there() -> None:
    """Skip a test where no real data are."""
    if not SETS:
        pytest.skip("M3B_FIELD_DATA names no folder of real data sets: make test-real DATA=FOLDER")


# --- reading and judging ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What became of a folder: `wrong` is empty for a right reading, `why` for one that a run would take without asking."""

    wrong: str
    reason: str
    changes: tuple[str, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)

    @property
    def word(self) -> str:
        if self.reason:
            return "refused" if self.wrong else "asked"
        return "WRONG-PASSED" if self.wrong else "right"


def original(root: Path) -> Tree:
    """A set as it is."""
    paths = sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    return Tree(root, {path: (path, None) for path in paths})


def mutated(tree: Tree, rng: random.Random) -> tuple[Tree, tuple[str, ...]]:
    """The set with one to four changes, and what they are."""
    changed_tree = Tree(tree.root, dict(tree.files), dict(tree.masks))
    change_names: list[str] = []
    max_changes = rng.choice((1, 2, 3, 4))
    for change in rng.sample(CHANGES, len(CHANGES)):
        if len(change_names) == max_changes:
            break
        before = dict(changed_tree.files)
        change(changed_tree, rng)
        if changed_tree.files != before:
            change_names.append(change.__name__)
    return changed_tree, tuple(change_names)


def judge(tree: Tree, want: Mapping[str, Any], changes: tuple[str, ...] = ()) -> Verdict:
    """Lay a folder out, look at it, and compare the index of the best reading with what is wanted."""
    with tempfile.TemporaryDirectory(prefix="real-") as scratch:
        folder, place = Path(scratch) / "data", Path(scratch) / "place"
        place.mkdir()
        tree.lay(folder)
        try:
            preview = preview_dataset(folder, str(want["request"]), place)
        except DataError as error:
            return Verdict("no reading", str(error), changes)
        parts = [place / "work" / "Datapath" / f"{name}.json" for name in ("train", "test", "label_dict")]
        if not all(part.is_file() for part in parts):
            return Verdict("no reading", preview.insufficient or "nothing was executed", changes)
        train, test, values = (json.loads(part.read_text()) for part in parts)
    original_paths = {path: source for path, (source, _) in tree.files.items()}
    sides = [[_back(record, original_paths) for record in part] for part in (train, test)]
    pairs = {
        case["images"][0]: case["masks"][0]
        for side in sides
        for case in side
        if len(case["masks"]) == 1 == len(case["images"]) and case["masks"] != case["images"]
    }
    raw = {image: mask for image, mask in pairs.items() if mask in tree.root.as_posix() or (tree.root / mask).is_file()}
    return Verdict(
        "; ".join(differs(sides[0], sides[1], values, want)),
        preview.insufficient,
        changes,
        raw if len(raw) == len(pairs) else {},
    )


def differs_in_run(run: Path, want: Mapping[str, Any]) -> list[str]:
    """What of a run's index is not as wanted."""
    parts = [run / "work/Datapath" / f"{name}.json" for name in ("train", "test", "label_dict")]
    if missing := [part.name for part in parts if not part.is_file()]:
        return [f"no {', '.join(missing)}"]
    train, test, values = (json.loads(part.read_text()) for part in parts)
    root = f"data/{want['folder']}/"
    indexed = [[_back(record, {}, root) for record in part] for part in (train, test)]
    return differs(indexed[0], indexed[1], values, want)


def first_test_case(run: Path, name: str) -> Any:
    """The first test case of a run, as a user names it to the delivered model: files of the set, or what m3b made of them."""

    def place(value: Any) -> Any:
        if isinstance(value, str):
            relative_path = value.removeprefix(f"data/{name}/")
            return str(FIELD / name / relative_path if relative_path != value else run / "work" / value)
        return (
            {key: place(item) for key, item in value.items()}
            if isinstance(value, dict)
            else [place(item) for item in value]
        )

    return place(json.loads((run / "work/Datapath/test.json").read_text())[0]["image_path"])


def _back(record: Mapping[str, Any], original_paths: Mapping[str, str], root: str = "data/data/") -> dict[str, Any]:
    """A record with the paths that its files had before."""

    def paths(value: Any) -> list[str]:
        if isinstance(value, str):
            path = value.removeprefix(root).split("#")[0]
            return [original_paths.get(path) or _folder(path, original_paths)] if value.startswith(root) else [value]
        return [path for item in (value.values() if isinstance(value, dict) else value or ()) for path in paths(item)]

    masks = paths(record.get("mask_path") or record.get("mask") or [])
    kind = "boxes" if "boxes" in record else "masks" if masks else "report" if "report" in record else "diagnosis"
    return {"images": paths(record["image_path"]), "masks": masks, "kind": kind}


def _folder(path: str, original_paths: Mapping[str, str]) -> str:
    file = next((source for new, source in original_paths.items() if new.startswith(f"{path}/")), path)
    return PurePosixPath(file).parent.as_posix()


def differs(
    train: list[dict[str, Any]], test: list[dict[str, Any]], values: Mapping[str, int], want: Mapping[str, Any]
) -> list[str]:
    """What is not as wanted."""
    problems, name = [], want["folder"]
    low, high = want.get("n", (1, 10**9))
    if not low <= len(train) + len(test) <= high:
        problems.append(f"{len(train) + len(test)} cases, not {low} to {high}")
    if "classes" in want and len(values) != want["classes"]:
        problems.append(f"classes {list(values)[:6]}, not {want['classes']}")
    if pattern := want.get("group_re"):
        groups = [
            {m[1] for case in side for i in case["images"] if (m := re.search(pattern, f"{name}/{i}"))}
            for side in (train, test)
        ]
        if both := groups[0] & groups[1]:
            problems.append(f"{len(both)} groups on both sides, e.g. {sorted(both)[0]}")
    every = [*train, *test]
    mismatches = _find_mismatches(want.get("split_re"), name, (i for case in test for i in case["images"]))
    problems += (
        [f"{len(mismatches)} test images are not of the set's own test part, e.g. {mismatches[0]}"]
        if mismatches
        else []
    )
    mismatches = _find_mismatches(
        want.get("mask_re"), name, (m for case in every for m in case["masks"] if not m.startswith("Datapath/"))
    )
    problems += [f"{len(mismatches)} masks are not the labels, e.g. {mismatches[0]}"] if mismatches else []
    kinds = Counter(case["kind"] for case in every)
    if want.get("target") and set(kinds) != {want["target"]}:
        problems.append(f"targets {dict(kinds)}, not {want['target']}")
    return problems


def _find_mismatches(pattern: str | None, name: str, paths: Iterable[str]) -> list[str]:
    """Paths that a pattern should match and does not."""
    return [path for path in paths if pattern and not re.search(pattern, f"{name}/{path}")]


def verdicts(
    folder: Path, want: Mapping[str, Any], numbers: Iterable[int], original_verdict: Verdict | None = None
) -> Iterator[Verdict]:
    """Of a set as it is (unless that verdict is at hand as `plain`), then with the changes of each of `numbers`."""
    tree = original(folder / want["folder"])
    if original_verdict is None:
        yield (original_verdict := judge(tree, want))
    mask_matches = [
        re.search(want["mask_re"], PurePosixPath(mask).name)
        for mask in original_verdict.masks.values()
        if "mask_re" in want
    ]
    tree.masks = (
        {} if any(mask_matches) else dict(original_verdict.masks)
    )  # where a mask's own name tells it from others, it keeps that
    for at in numbers:
        changed_tree, changes = mutated(tree, random.Random(f"{want['folder']}-{at}"))
        yield judge(changed_tree, want, changes)


# --- as a script -----------------------------------------------------------------------------------------------------

UNCHANGED = -1
"""The number of a set as it is, among those of its changes."""


def load_results(results: Path | None) -> dict[str, dict[int, dict[str, Any]]]:
    """What a file of results holds: set -> number -> line. A last line that was cut off is left out."""
    lines_by_set: dict[str, dict[int, dict[str, Any]]] = {}
    for line in results.read_text().splitlines() if results and results.is_file() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        lines_by_set.setdefault(entry["set"], {})[entry["number"]] = entry
    return lines_by_set


def measure_set(
    folder: Path, want: Mapping[str, Any], done: Mapping[int, Mapping[str, Any]], mutation_count: int
) -> Iterator[dict[str, Any]]:
    """The lines of a set that are not among those `done`."""
    before = done.get(UNCHANGED)
    original_verdict = Verdict(before["wrong"], before["why"], masks=before["masks"]) if before else None
    remaining = [at for at in range(mutation_count) if at not in done]
    if original_verdict and not remaining:
        return
    start = time.monotonic()
    for at, verdict in zip(
        [*([] if original_verdict else [UNCHANGED]), *remaining],
        verdicts(folder, want, remaining, original_verdict),
        strict=True,
    ):
        line = {
            "set": want["folder"],
            "number": at,
            "word": verdict.word,
            "changes": verdict.changes,
            "wrong": verdict.wrong,
        }
        line |= {"why": verdict.reason, "seconds": round(time.monotonic() - start, 1)}
        yield line | ({"masks": dict(verdict.masks)} if at == UNCHANGED else {})
        start = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mutations", type=int, nargs="*", default=[20], help="changed folders of each set, by round")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--results", type=Path, help="file of JSON lines; what it holds is not measured again")
    options = parser.parse_args()
    sets = [
        want
        for want in json.loads((options.folder / "EXPECTED.json").read_text())
        if not options.only or want["folder"] in options.only
    ]
    done = load_results(options.results)
    for mutation_count in options.mutations:
        sets.sort(
            key=lambda want: done.get(want["folder"], {}).get(UNCHANGED, {}).get("seconds", 0.0)
        )  # the quick first
        for want in sets:
            for line in measure_set(options.folder, want, dict(done.get(want["folder"], {})), mutation_count):
                done.setdefault(want["folder"], {})[line["number"]] = line
                reasons = "; ".join(part for part in (line["wrong"], line["why"]) if part)
                number = "as it is" if line["number"] == UNCHANGED else line["number"]
                print(f"{line['word']:12} {line['set']:26} {number:>8} {line['seconds']:5.0f} s  "
                      f"{'+'.join(line['changes'])}  {reasons}", flush=True)  # fmt: skip
                if options.results:
                    with options.results.open("a") as out:
                        out.write(json.dumps(line) + "\n")
    counts = Counter(
        ("as it is" if number == UNCHANGED else "changed", line["word"])
        for want in sets
        for number, line in done.get(want["folder"], {}).items()
    )
    print(", ".join(f"{count} {state} {word}" for (state, word), count in sorted(counts.items())))
    return 1 if any(word == "WRONG-PASSED" for _, word in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
