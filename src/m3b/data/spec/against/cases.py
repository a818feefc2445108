"""Cases that a reading can use and an index does without."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from m3b.data.records import Record
from m3b.data.spec.against.labels import text_of
from m3b.data.spec.against.reading import HeldReading, Name
from m3b.data.spec.boxes import BoxSource
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.masks import MaskSource
from m3b.data.spec.opened import open_all
from m3b.errors import DataError

LEFT_SHARE, LEFT_FEW = 0.05, 2
"""Of the cases that a reading can use, an index may do without this share or this many without saying why."""


def few(missing: int, usable: int) -> bool:
    """Whether so many may be missing without a word."""
    return missing <= max(LEFT_FEW, LEFT_SHARE * usable)


def without(reading: HeldReading, index: Mapping[Name, Record], root: Path) -> tuple[int, list[Name]]:
    """How many cases the reading could use, and those of them that the index lacks, though they open and are no copies."""
    usable = _usable(reading, index)
    absent = [name for name in usable if name not in index]
    if few(len(absent), len(usable)):
        return len(usable), absent
    names = [*(name for name in usable if name in index), *absent]
    looked = open_all(root, names, _alike([index.get(name, Record("")) for name in names]), [n in index for n in names])
    gone = {names[place] for place in looked.reasons}
    return len(usable) - len(gone), [name for name in absent if name not in gone]


def _alike(records: Sequence[Record]) -> list[Record]:
    """Records without labels: copies are copies here, whatever they are called."""
    return [Record(record.image) for record in records]


def _usable(reading: HeldReading, index: Collection[Name]) -> list[Name]:
    """The cases that have a target as the index has them: a label that it uses, a mask, a box, a text."""
    spec = reading.spec
    if spec.labels is not None and spec.report is None:
        texts = {name: text_of(spec.labels, reading.sources, case) for name, case in reading.cases.items()}
        used = {texts[name] for name in index if name in texts}
        return [name for name, text in texts.items() if text is not None and text in used]
    if spec.masks is not None and spec.states is None:
        masks = MaskSource(spec.masks, reading.folder, reading.accounting, "", Path(), list(reading.cases.values()))
        return [name for name, case in reading.cases.items() if masks.items_of(case)]
    if spec.report is not None:
        parts = [one for one in (spec.report.findings, spec.report.impression) if one is not None]
        return [name for name, case in reading.cases.items() if any(reading.sources.text(one, case) for one in parts)]
    if spec.boxes is not None:
        boxes = BoxSource(spec.boxes, reading.folder, reading.accounting)
        return [name for name, case in reading.cases.items() if _looked_at(boxes, case)]
    return list(reading.cases)


def _looked_at(boxes: BoxSource, case: CaseDraft) -> bool:
    """Whether annotations tell what is in an image."""
    try:
        boxes.boxes_of(case)
    except (LeaveOut, DataError):
        return False
    return True
