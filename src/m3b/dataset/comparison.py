"""The index that a script made, compared with what the best proposal that has its cases would give."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from m3b.data.kinds.regression import VALUE
from m3b.data.kinds.survival import EVENT, TIME
from m3b.data.records import Channels, Record
from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.execute import Executed, execute
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.patterns import match_any, parse_pattern
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.resolve import resolve
from m3b.dataset.proposals.decide import EXPLAINED_CODES
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.reading import read_mask
from m3b.errors import DataError

MIN_SHARED = 0.5
"""Share of the index's cases that a proposal must have too for the two to be compared."""
MIN_AGREEMENT = 0.98
"""Share of cases that agree from which on the targets are the archive's."""
MAX_MISSING_SHARE, MAX_MISSING = 0.05, 2
"""Share or number of the usable cases that an index may leave out without a reason."""
MIN_CASES_PER_TEXT = 4
"""Cases a text, on average, from which on texts are labels: identifiers would agree with any."""
MAX_MASKS = 200
"""Masks that are opened to be compared."""
MIN_OVERLAP = 0.99
"""Dice coefficient from which on two masks are the same."""
MAX_EXAMPLES = 4

ImageKey = tuple[str, ...]
TARGET_WORDS = {
    "diagnosis": "labels",
    "grading": "labels",
    "segmentation": "masks",
    "detection": "boxes",
    "report": "texts",
}
"""Task -> what is compared; others have values."""


@dataclass(frozen=True)
class Comparison:
    """How an index and the archive go together.

    Args:
        targets: the targets that were compared, in the plural.
        source: the title of the proposal; empty if nothing was comparable.
        compared, agreeing: cases whose target could be compared, and those that agree.
        differing: examples of cases that do not, with what differs.
        expected: whether the proposal may be taken as it is, so that other targets need a reason.
        usable, missing: cases that the proposal gives, and those of them that the index does not have.
        absent: examples of the latter.
        accounting: files of the folder that the index uses.
    """

    targets: str
    source: str = ""
    compared: int = 0
    agreeing: int = 0
    differing: tuple[str, ...] = ()
    expected: bool = False
    usable: int = 0
    missing: int = 0
    absent: tuple[str, ...] = ()
    accounting: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For the run's record."""
        fits = not self.compared or self.agreeing >= MIN_AGREEMENT * self.compared
        leaves_out = self.missing > max(MAX_MISSING, MAX_MISSING_SHARE * self.usable)
        return {**asdict(self), "fits": fits, "leaves_out": leaves_out}


def compare_index(
    records: Sequence[Record],
    outcome: Outcome,
    inventory: Inventory,
    readers: FolderReaders,
    *,
    name: str,
    base: Path,
    scratch: Path,
    manifest: Manifest | None = None,
) -> Comparison:
    """Compare an index with the proposals that have its cases: with the first that agrees, else with the best.

    Args:
        name: of the data set in the index's paths (`data/<name>/...`).
        base: folder that the index's paths are relative to.
        scratch: folder for derived masks; removed in the end.
        manifest: that the index was made from, if any; cases that it leaves out with a reason are not missing.
    """
    explained = _list_explained(manifest, inventory, readers) if manifest is not None else frozenset()
    index = {_image_key(record, name): record for record in records}
    best = Comparison(TARGET_WORDS.get(str(outcome.task), "values"), accounting=_account(records, inventory, name))
    best = replace(best, expected=outcome.kind == "proposed")
    for proposal in outcome.proposals:
        (scratch / "Datapath").mkdir(parents=True, exist_ok=True)
        try:
            executed = execute(proposal.manifest, inventory, name=name, work=scratch, readers=readers)
            cases = {_image_key(record, name): record for record in (*executed.train, *executed.test)}
            if len(index.keys() & cases.keys()) < MIN_SHARED * len(index):
                continue
            compared = _compare_targets(index, cases, proposal.manifest, inventory.root, base, scratch, name)
        except DataError:
            continue
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        agrees = bool(compared) and sum(not text for text in compared.values()) >= MIN_AGREEMENT * len(compared)
        if best.source and not agrees:
            continue
        best = _describe(best, proposal.title, compared, executed, index, cases, explained)
        if agrees:
            break
    return best


def _describe(
    best: Comparison,
    title: str,
    compared: Mapping[ImageKey, str],
    executed: Executed,
    index: Mapping[ImageKey, Record],
    cases: Mapping[ImageKey, Record],
    explained: frozenset[str],
) -> Comparison:
    differing = [f"{key[0]}: {text}" for key, text in compared.items() if text]
    absent = [key[0] for key in cases if key not in index and not explained.issuperset(key)]
    return replace(
        best,
        source=title,
        compared=len(compared),
        agreeing=len(compared) - len(differing),
        differing=tuple(differing[:MAX_EXAMPLES]),
        usable=len(cases),
        missing=len(absent),
        absent=tuple(absent[:MAX_EXAMPLES]),
        notes=executed.notes if not compared else (),
    )


def _list_explained(manifest: Manifest, inventory: Inventory, readers: FolderReaders) -> frozenset[str]:
    """Files of cases that a manifest leaves out with a reason: by patterns, filters, its classes, and texts that mean nobody knows."""
    patterns = [parse_pattern(exclusion.files) for exclusion in manifest.exclude]
    paths = match_any(inventory.files, patterns)["path"].to_list() if patterns else []
    codes = set(EXPLAINED_CODES)
    if manifest.labels is not None and manifest.labels.value is not None and manifest.labels.value.unknown:
        codes.add("no_label")
    excluded = resolve(manifest, inventory, readers=readers).excluded
    return frozenset((*paths, *excluded.filter(pl.col("code").is_in(codes))["paths"].explode().drop_nulls().to_list()))


def _image_key(record: Record, name: str) -> ImageKey:
    """What an index and a proposal both call the image of a case; the order of channels does not matter."""
    paths = tuple(path.removeprefix(f"data/{name}/").rstrip("/") for path in record.images)
    return tuple(sorted(paths)) if isinstance(record.image, Channels) else paths


def _compare_targets(
    index: Mapping[ImageKey, Record],
    cases: Mapping[ImageKey, Record],
    manifest: Manifest,
    root: Path,
    base: Path,
    scratch: Path,
    name: str,
) -> dict[ImageKey, str]:
    """Return the shared cases with what differs, '' if nothing does."""
    shared = [key for key in index if key in cases]
    if manifest.masks is not None and manifest.boxes is None:
        masked = [key for key in shared if index[key].masks and cases[key].masks][:MAX_MASKS]
        return {key: _compare_masks(index[key], cases[key], (base, scratch), root, f"data/{name}/") for key in masked}
    pairs = {key: (_target_text(index[key]), _target_text(cases[key])) for key in shared}
    if manifest.labels is not None and len(shared) < MIN_CASES_PER_TEXT * len(
        {other_text for _, other_text in pairs.values()}
    ):
        return {}
    meanings = _match_meanings(list(pairs.values())) if manifest.labels is not None else {}
    return {
        key: ""
        if meanings.get(other_text, other_text) == own_text
        else f"{own_text!r} in the index, {other_text!r} there"
        for key, (own_text, other_text) in pairs.items()
    }


def _match_meanings(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return label of the archive -> label of the index: itself if both have the same names, else what most cases say."""
    labels = {text.casefold(): text for text, _ in pairs}
    archive = {text.casefold(): text for _, text in pairs}
    if len(archive) > 1 and set(labels) == set(archive):
        return {archive[text]: labels[text] for text in archive}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for text, archive_label in pairs:
        counts[archive_label][text] += 1
    return {archive_label: texts.most_common(1)[0][0] for archive_label, texts in counts.items()}


def _target_text(record: Record) -> str:
    """The target of a case as a text."""
    if record.report is not None:
        return " ".join(f"{record.report.findings or ''} {record.report.impression or ''}".split())
    if record.boxes is not None:
        return "; ".join(sorted(f"{box.label} {[round(side) for side in box.box]}" for box in record.boxes))
    numbers = [record.extra[key] for key in (VALUE, TIME, EVENT) if key in record.extra]
    return ", ".join(f"{float(number):g}" for number in numbers) or "|".join(sorted(record.labels))


def _compare_masks(
    record_of_index: Record, record_of_archive: Record, bases: tuple[Path, Path], root: Path, prefix: str
) -> str:
    """Return what differs between what two cases mark, whatever the values; '' if nothing does."""
    first, second = (
        _read_marked(record, base, root, prefix)
        for record, base in zip((record_of_index, record_of_archive), bases, strict=True)
    )
    if first.shape != second.shape:
        return f"a mask of {first.shape} in the index, {second.shape} there"
    size = int(first.sum()) + int(second.sum())
    overlap = 2 * int((first & second).sum()) / size if size else 1.0
    return "" if overlap >= MIN_OVERLAP else f"masks overlap by {overlap:.2f}"


def _read_marked(record: Record, base: Path, root: Path, prefix: str) -> Any:
    """The pixels that any mask of a case marks."""
    import numpy as np

    layers = [
        read_mask(path.removeprefix(prefix), str(root if path.startswith(prefix) else base)).array != 0
        for path in replace(record, ignored=None).masks
    ]
    if isinstance(record.mask, tuple):
        return np.stack(layers, axis=-1)
    return np.any(layers, axis=0)


def _account(records: Sequence[Record], inventory: Inventory, name: str) -> dict[str, Any]:
    """Files that the index names, or that are in folders that it names."""
    prefix = f"data/{name}/"
    used: dict[str, int] = {}
    remaining = set(inventory.paths)
    for use, paths in (
        ("image", [path for record in records for path in record.files]),
        ("mask", [path for record in records for path in record.targets]),
    ):
        references = {path.removeprefix(prefix).rstrip("/") for path in paths if path.startswith(prefix)}
        matches = {path for path in remaining if path in references or _parents(path) & references}
        remaining -= matches
        used |= {use: len(matches)} if matches else {}
    excluded = [
        {"reason": "not in the index that a script made", "files": len(remaining), "examples": sorted(remaining)[:3]}
    ]
    return {"files": len(inventory.paths), "used": used, "left_out": excluded if remaining else []}


def _parents(path: str) -> set[str]:
    parts = path.split("/")
    return {"/".join(parts[:depth]) for depth in range(1, len(parts))}
