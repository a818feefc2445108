"""An index that a script made, against the archive: its targets, and the cases that it does without."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.records import Record
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.against.boxes import hold_boxes
from m3b.data.spec.against.cases import few, without
from m3b.data.spec.against.labels import hold_labels
from m3b.data.spec.against.masks import hold_masks
from m3b.data.spec.against.reading import AGREE, HeldReading, HeldTargets, MadeIndex, name_of, readings
from m3b.data.spec.against.states import hold_states
from m3b.data.spec.against.texts import hold_texts
from m3b.data.spec.proposals import Proposal, sufficient
from m3b.data.spec.readers import Readers

__all__ = ["Compared", "compare"]

MAX_OF_MASKS = 4
"""Readings with masks of their own that an index is held against: masks have to be opened."""
_EXAMPLES = 4
_BETWEEN = re.compile(r".*, (?:labels|boxes|masks|contours|segments|outlines|reports) (?:from|of) ")
"""In a reading's title, what stands before where its targets come from."""


@dataclass
class Compared:
    """What came of it.

    Args:
        what: the targets that were compared: labels, masks, boxes, states or texts.
        source: in words, the place of the archive's targets that the index was held against; empty where nothing was
            comparable.
        compared, agreeing: cases whose target could be compared, and those that agree.
        differing: examples of cases that do not, with what differs.
        expected: whether the source bears the request out so well that other targets need a reason.
        usable, missing: cases that the nearest reading can use, and those of them that the index does without though they
            open and are no copies.
        absent: examples of the latter.
    """

    accounting: Accounting
    what: str = "labels"
    source: str = ""
    compared: int = 0
    agreeing: int = 0
    differing: tuple[str, ...] = ()
    expected: bool = False
    usable: int = 0
    missing: int = 0
    absent: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether the targets are those of the archive, as far as they could be compared."""
        return not self.compared or self.agreeing >= AGREE * self.compared

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what, "source": self.source, "compared": self.compared, "agreeing": self.agreeing,
            "differing": list(self.differing), "fits": self.fits, "expected": self.expected, "usable": self.usable,
            "missing": self.missing, "leaves_out": not few(self.missing, self.usable), "absent": list(self.absent),
            "accounting": self.accounting.to_json(), "notes": self.notes,
        }  # fmt: skip


def compare(
    proposals: Sequence[Proposal],
    root: Path,
    name: str,
    records: Sequence[Record],
    values: Mapping[str, int] | None = None,
    base: Path | None = None,
) -> Compared:
    """Hold an index against every reading of the folder that has its cases.

    Args:
        proposals: the readings, best first.
        name: the folder's name in the index (`data/<name>/...`).
        values: class -> its number, or its value in masks.
        base: the folder that the index's paths are relative to; without it masks that scripts made cannot be opened.
    """
    readers = Readers(root)
    files = readers.files()
    made = MadeIndex({name_of(record, name): record for record in records}, dict(values or {}), base or root, name)
    found = list(readings(proposals, root, readers, files, set(made.cases)))
    compared = Compared(_accounting(files, records, name), expected=sufficient(proposals) == "")
    nearest = _targets(compared, found, made) or (found[0] if found else None)
    if nearest is not None:
        compared.usable, absent = without(nearest, made.cases, root)
        compared.missing, compared.absent = len(absent), tuple(one[0] for one in absent[:_EXAMPLES])
    for reading in found[:1]:
        tables = [path for path, use in reading.accounting.used.items() if use in ("table", "annotation")]
        compared.accounting.use(tables, "table")
    compared.accounting.leave_rest(files, "not in the index that a script made")
    return compared


def _targets(compared: Compared, found: Sequence[HeldReading], made: MadeIndex) -> HeldReading | None:
    """Find the source that the index agrees with, else the likeliest one, and say how well."""
    best: tuple[HeldReading, HeldTargets] | None = None
    masked = 0
    for reading in found:
        masked += reading.spec.masks is not None
        if reading.spec.masks is not None and masked > MAX_OF_MASKS:
            continue
        held = _held(reading, made)
        if held.compared and (best is None or held.agrees):
            best = (reading, held)
        if held.agrees:
            break
    if best is None:
        return None
    reading, held = best
    compared.what, compared.source = held.what, _source(reading.proposal.title)
    compared.compared, compared.agreeing = held.compared, held.compared - len(held.differing)
    compared.differing = tuple(f"{case}: {words}" for case, words in held.differing[:_EXAMPLES])
    return reading


def _held(reading: HeldReading, made: MadeIndex) -> HeldTargets:
    """The index's targets against those of a reading, whatever kind they are of."""
    spec = reading.spec
    if spec.report is not None:
        return hold_texts(reading, made)
    if spec.boxes is not None:
        return hold_boxes(reading, made)
    if spec.masks is not None:
        with tempfile.TemporaryDirectory(prefix="derived-") as scratch:
            return hold_masks(reading, made, Path(scratch))
    return hold_labels(reading, made) if spec.states is None else hold_states(reading, made)


def _source(title: str) -> str:
    """Where a reading's targets come from, by its title."""
    return _BETWEEN.sub("", title)


def _accounting(files: Sequence[str], records: Sequence[Record], name: str) -> Accounting:
    """Files that the index names, or that lie in folders that it names."""
    made, prefix = Accounting(total=len(files)), f"data/{name}/"
    for what, paths in (
        ("image", [p for r in records for p in r.files]),
        ("mask", [p for r in records for p in r.targets]),
    ):
        named = {path.removeprefix(prefix).rstrip("/") for path in paths if path.startswith(prefix)}
        made.use([path for path in files if path in named or _parents(path) & named], what)
    return made


def _parents(path: str) -> set[str]:
    parts = path.split("/")
    return {"/".join(parts[:at]) for at in range(1, len(parts))}
