"""The control against look-up tables: what a model answers to altered copies of test images.

The row of a test case of whose image there were copies holds their rows under `ALTERED_KEY`, by the way of altering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.altering import NOISE, WAYS, can_alter
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.metrics import Scores

from .base import Row, TaskFamily, sample_evenly

ALTERED_KEY = "altered"
MIN_COPIES = 5
"""Copies of fewer cases say nothing."""


@dataclass(frozen=True)
class AlteredCopy:
    """A copy of the image of the case at position `record_position`, altered in a way of `m3b.data.altering`."""

    record_position: int
    alteration: str


def plan_copies(records: Sequence[Record], index: Index, task_family: TaskFamily, root: Path) -> list[AlteredCopy]:
    """The copies that are to be tried: of test cases from all over the records, whose paths count from `root`."""
    if not task_family.can_compare_answers:
        return []
    test_keys = {record.key for record in index.test}
    position_by_key = {record.key: number for number, record in enumerate(records)}
    eligible = [record for record in records if record.key in test_keys and can_alter(record.reference, root)]
    alterations = WAYS if task_family.can_compare_crops else (NOISE,)
    return (
        [
            AlteredCopy(position_by_key[record.key], alteration)
            for record in sample_evenly(eligible, task_family.max_compared_cases)
            for alteration in alterations
        ]
        if eligible
        else []
    )


def attach_copies(
    rows: Sequence[Row], copies: Sequence[AlteredCopy], copy_rows: Sequence[Row], was_altered: Sequence[bool]
) -> list[Row]:
    """Rows that hold those of their copies, as far as these were really altered."""
    copies_by_position: dict[int, dict[str, Row]] = {}
    for copy, row, is_altered in zip(copies, copy_rows, was_altered, strict=True):
        if is_altered:
            copies_by_position.setdefault(copy.record_position, {})[copy.alteration] = row
    return [
        {**row, ALTERED_KEY: copies_by_position[position]} if position in copies_by_position else row
        for position, row in enumerate(rows)
    ]


def add_lookup_control(scores: Scores, rows: Sequence[Row], task_family: TaskFamily) -> Scores:
    """The scores with `control` among the details, where enough copies were tried: for each way their number `n` and
    `change`, how far the answers to an image and to its copy are from each other, from 0 to 1."""
    control: dict[str, Mapping[str, Any]] = {}
    for alteration in WAYS:
        pairs = [(row, row[ALTERED_KEY][alteration]) for row in rows if alteration in row.get(ALTERED_KEY, {})]
        if len(pairs) >= MIN_COPIES:
            control[alteration] = {"n": len(pairs), "change": round(task_family.mean_answer_change(pairs, rows), 6)}
    return replace(scores, details={**scores.details, "control": control}) if control else scores
