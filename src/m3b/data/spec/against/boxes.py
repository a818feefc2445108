"""Boxes of an index against those of the archive: the same place within a pixel, and the same class."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.data.records import BoxLabel
from m3b.data.spec.against.reading import HeldReading, HeldTargets, MadeIndex, meanings
from m3b.data.spec.boxes import BoxSource
from m3b.data.spec.labels import LeaveOut
from m3b.errors import DataError

BOXES = "boxes"
WITHIN = 1.0
"""Pixels by which corners may differ: files count from 0 or 1, and to a box's last pixel or past it."""

Pairs = list[tuple[BoxLabel | None, BoxLabel | None]]
"""(the archive's, the index's); None where one of them has none there."""


def hold_boxes(reading: HeldReading, made: MadeIndex) -> HeldTargets:
    """Cases whose boxes differ in number, place or class; classes that an index does without are no difference."""
    spec = reading.spec.boxes
    if spec is None or all(record.boxes is None for record in made.cases.values()):
        return HeldTargets(BOXES)
    try:
        source = BoxSource(spec, reading.folder, reading.accounting, list(reading.cases.values()))
    except DataError:
        return HeldTargets(BOXES)
    found: list[tuple[str, Pairs]] = []
    for case, record in reading.shared(made):
        try:
            theirs = source.boxes_of(case)
        except (LeaveOut, DataError):
            continue
        if record.boxes is not None and len({len(one.box) for one in (*theirs, *record.boxes)}) < 2:
            found.append((case.name, _matched(theirs, record.boxes)))
    every = [pair for _, pairs in found for pair in pairs]
    both = [(theirs.label, own.label) for theirs, own in every if theirs is not None and own is not None]
    meant = meanings(both, list(made.values), list(spec.classes))
    dropped = {name for name in spec.classes if name not in {their for their, _ in both} and name not in made.values}
    dropped = dropped if both else set()
    told = [(name, _differs(pairs, meant, dropped)) for name, pairs in found]
    return HeldTargets(BOXES, len(found), tuple((name, words) for name, words in told if words))


def _matched(theirs: Sequence[BoxLabel], own: Sequence[BoxLabel]) -> Pairs:
    """Each box with the nearest one of the other side within a pixel; of several, one of the same class first."""
    left = list(own)
    pairs: Pairs = []
    for one in theirs:
        near = [
            (other.label.casefold() != one.label.casefold(), apart, at)
            for at, other in enumerate(left)
            if (apart := max(abs(a - b) for a, b in zip(one.box, other.box, strict=True))) <= WITHIN
        ]
        pairs.append((one, left.pop(min(near)[2]) if near else None))
    return [*pairs, *((None, one) for one in left)]


def _differs(pairs: Pairs, meant: dict[str, str], dropped: set[str]) -> str:
    """What differs in one image; empty where nothing does."""
    lacking = sum(own is None and theirs is not None and theirs.label not in dropped for theirs, own in pairs)
    strange = sum(theirs is None for theirs, _ in pairs)
    if lacking or strange:
        return f"{lacking} boxes there are not in the index, {strange} of the index are not there"
    for theirs, own in pairs:
        if theirs is not None and own is not None and meant.get(theirs.label) != own.label:
            return f"a box is {own.label!r} in the index, {theirs.label!r} there"
    return ""
