"""The control against look-up tables: what a model answers to altered copies of test images.

The row of a test case of whose image there were copies holds their rows under `ALTERED`, by the way of altering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.altering import WAYS, can_alter
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.metrics import Scores

from .base import Row, TaskFamily, spread

ALTERED = "altered"
MAX_CASES = 24
"""Test cases of which copies are tried."""
MIN_CASES = 5


@dataclass(frozen=True)
class Copy:
    """A copy of the image of the case at position `of`, altered in a way of `m3b.data.altering`."""

    of: int
    way: str


def copies_of(records: Sequence[Record], index: Index, of_task: TaskFamily, base: Path) -> list[Copy]:
    """The copies that are to be tried: of test cases from all over the records, whose paths count from `base`."""
    if not of_task.compares_answers:
        return []
    tests = {record.key for record in index.test}
    at = {record.key: number for number, record in enumerate(records)}
    fit = [record for record in records if record.key in tests and can_alter(record.reference, base)]
    return [Copy(at[record.key], way) for record in spread(fit, MAX_CASES) for way in WAYS] if fit else []


def with_copies(
    rows: Sequence[Row], copies: Sequence[Copy], answers: Sequence[Row], altered: Sequence[bool]
) -> list[Row]:
    """Rows that hold those of their copies, as far as these were really altered."""
    held: dict[int, dict[str, Row]] = {}
    for copy, row, done in zip(copies, answers, altered, strict=True):
        if done:
            held.setdefault(copy.of, {})[copy.way] = row
    return [{**row, ALTERED: held[at]} if at in held else row for at, row in enumerate(rows)]


def controlled(scores: Scores, rows: Sequence[Row], of_task: TaskFamily) -> Scores:
    """The scores with `control` among the details, where enough copies were tried: for each way their number `n` and
    `change`, the mean distance between the answers to an image and to its copy, from 0 to 1."""
    found: dict[str, Mapping[str, Any]] = {}
    for way in WAYS:
        pairs = [(row, row[ALTERED][way]) for row in rows if way in row.get(ALTERED, {})]
        if len(pairs) >= MIN_CASES:
            change = sum(of_task.distance(row, copy) for row, copy in pairs) / len(pairs)
            found[way] = {"n": len(pairs), "change": round(change, 6)}
    return replace(scores, details={**scores.details, "control": found}) if found else scores
