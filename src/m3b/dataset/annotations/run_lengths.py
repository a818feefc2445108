"""Masks as run lengths in the cells of tables: `"65 4 113 6"` marks 4 pixels from the 65th on and 6 from the 113th.

Kaggle's challenges write them so. Whether pixels are counted down the columns or along the rows, from 1 or from 0, and
whether each start counts from the end of the run before, no file says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from m3b.errors import DataError

Order = Literal["columns", "rows"]
NOTHING = ("", "-1", "nan", "none", "null", "[]", "-1 -1")
"""What stands in a cell where nothing is marked."""


@dataclass(frozen=True)
class RunRule:
    """How runs are counted.

    Args:
        order: pixels are counted down the columns, or along the rows.
        first: the number of the first pixel.
        relative: whether a start counts from the end of the run before.
    """

    order: Order = "columns"
    first: int = 1
    relative: bool = False


def runs_of(cell: str) -> list[int] | None:
    """The numbers of a cell, starts and lengths in turn; none where nothing is marked, None for what holds something else."""
    text = cell.strip().strip("[]").replace(",", " ")
    if text.casefold() in NOTHING:
        return []
    words = text.split()
    if len(words) % 2 or not all(word.isdecimal() and len(word) <= 10 for word in words):
        return None
    return [int(word) for word in words]


def is_relative(runs: Sequence[int]) -> bool:
    """Whether starts and lengths can only be meant from run to run: as places they would fall back."""
    starts, lengths = runs[::2], runs[1::2]
    return any(after < before + length for before, length, after in zip(starts, lengths, starts[1:], strict=False))


def last_pixel(runs: Sequence[int], rule: RunRule) -> int:
    """One more than the greatest index, counted from 0, that runs reach."""
    if not runs:
        return 0
    if rule.relative:
        return sum(runs) - rule.first
    return max(start + length for start, length in zip(runs[::2], runs[1::2], strict=True)) - rule.first


def decoded(runs: Sequence[int], shape: Sequence[int], rule: RunRule) -> Any:
    """(rows, columns) bool.

    Raises:
        DataError: the runs reach beyond the image, as where it was made smaller.
    """
    import numpy as np

    rows, columns = int(shape[0]), int(shape[1])
    if (reached := last_pixel(runs, rule)) > rows * columns or (
        runs and min(runs[::2]) < rule.first and not rule.relative
    ):
        raise DataError(f"its runs reach pixel {reached:,}, and its image has {rows * columns:,} ({rows}x{columns})")
    steps = np.zeros(rows * columns + 1, np.int32)
    starts, lengths = np.array(runs[::2], np.int64), np.array(runs[1::2], np.int64)
    if rule.relative:
        starts = np.cumsum(starts) + np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(runs) else starts
    np.add.at(steps, starts - rule.first, 1)
    np.add.at(steps, starts - rule.first + lengths, -1)
    flat = np.cumsum(steps[:-1]) > 0
    return flat.reshape(columns, rows).T if rule.order == "columns" else flat.reshape(rows, columns)
