"""Masks as run lengths in cells, as Kaggle writes them: `"65 4 113 6"` marks 4 pixels from the 65th on and 6 from the 113th.

Whether pixels are counted down the columns or along the rows, from 1 or from 0, and whether each start counts from the end of the run
before, no file says; it is measured on the sizes and pixels of images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from m3b.dataset.annotations.geometry import check_pixels
from m3b.errors import DataError

if TYPE_CHECKING:
    import polars as pl

Order = Literal["columns", "rows"]
ORDERS: tuple[Order, ...] = ("columns", "rows")
EMPTY = ("", "-1", "nan", "none", "null", "[]", "-1 -1", "1 0", "0 0")
"""Texts of cells where nothing is marked."""
RUN_WORDS = re.compile(r"rle|runs?(?![a-z])|encod|pixel|segment|mask", re.I)
"""Words of columns of run lengths."""
MAX_CELL = 2**26
MIN_RUN_CELLS = 3
MIN_RUN_SHARE = 0.95
MAX_SAMPLED_IMAGES = 12
CLEAR_RATIO = 1.15
"""How much longer the outlines of one order must be than those of the other, or the steps of the image across them smaller."""
MIN_T = 4.0
"""Standard errors by which images must follow one order's outlines more than the other's. In noise, twelve images exceed
`CLEAR_RATIO` now and then (t > 4 with 11 degrees of freedom: p = 0.002)."""


@dataclass(frozen=True)
class RunRule:
    """How runs are counted.

    Args:
        order: down the columns, or along the rows.
        first: the number of the first pixel.
        relative: whether a start counts from the end of the run before.
    """

    order: Order = "columns"
    first: int = 1
    relative: bool = False


def parse_runs(cell: str | None) -> list[int] | None:
    """Return starts and lengths in turn; none if nothing is marked, None if the cell holds something else."""
    if cell is None or len(cell) > MAX_CELL:
        return [] if cell is None else None
    text = cell.strip().strip("[]").replace(",", " ")
    if text.casefold() in EMPTY:
        return []
    words = text.split()
    if len(words) % 2 or not all(word.isdecimal() and len(word) <= 10 for word in words):
        return None
    return [int(word) for word in words]


def find_run_column(frame: pl.DataFrame) -> str:
    """Return the column of run lengths of a table of texts; empty if there is none.

    Nearly all cells are pairs of numbers, and some are several pairs. If all have four or six numbers, as boxes have, the name of the
    column says that they are runs.
    """
    for column in frame.columns:
        cells = frame[column].to_list()
        parsed = [parse_runs(cell) for cell in cells[:5000]]
        marked = [runs for runs in parsed if runs]
        readable = sum(runs is not None for runs in parsed)
        if (
            len(marked) >= MIN_RUN_CELLS
            and readable >= MIN_RUN_SHARE * len(parsed)
            and any(len(runs) >= 4 for runs in marked)
            and ({len(runs) for runs in marked} not in ({4}, {6}) or RUN_WORDS.search(column))
        ):
            return column
    return ""


def count_pixels(runs: Sequence[int], rule: RunRule) -> int:
    """Return the number of pixels that an image needs for these runs."""
    if not runs:
        return 0
    if rule.relative:
        return sum(runs) - rule.first
    return max(start + length for start, length in zip(runs[::2], runs[1::2], strict=True)) - rule.first


def is_relative(runs: Sequence[int]) -> bool:
    """Return whether starts fall back, so that they can only count from run to run."""
    starts, lengths = runs[::2], runs[1::2]
    return any(after < before + length for before, length, after in zip(starts, lengths, starts[1:], strict=False))


def draw_runs(runs: Sequence[int], width: int, height: int, rule: RunRule) -> Any:
    """Return (height, width) bool.

    Raises:
        DataError: code `size_differs`: the runs reach beyond the image, as if it was made smaller.
    """
    import numpy as np

    check_pixels(width, height)
    needed, pixels = count_pixels(runs, rule), width * height
    if needed > pixels or (runs and not rule.relative and min(runs[::2]) < rule.first):
        message = f"Run lengths reach pixel {needed:,} of an image of {width} x {height} ({pixels:,}), counted from {rule.first}."
        raise DataError(message, code="size_differs")
    starts, lengths = np.array(runs[::2], np.int64), np.array(runs[1::2], np.int64)
    if rule.relative and len(runs):
        starts = np.cumsum(starts) + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    steps = np.zeros(pixels + 1, np.int32)
    np.add.at(steps, starts - rule.first, 1)
    np.add.at(steps, starts - rule.first + lengths, -1)
    flat = np.cumsum(steps[:-1]) > 0
    return flat.reshape(width, height).T if rule.order == "columns" else flat.reshape(height, width)


@dataclass(frozen=True)
class RunReading:
    """How runs are counted, measured on images.

    Args:
        is_certain: whether sizes or pixels tell the order; else columns, as challenges commonly do.
        beyond: cells whose runs reach beyond their image, of those that were measured.
    """

    rule: RunRule
    is_certain: bool
    beyond: int


def measure_runs(runs: Mapping[str, Sequence[Sequence[int]]], images: Mapping[str, Any]) -> RunReading:
    """Return how runs are counted.

    Args:
        runs: image as the table names it -> the runs of its rows.
        images: some of these images as (height, width) arrays of grey values.
    """
    rows = [row for some_rows in runs.values() for row in some_rows if row]
    relative = any(is_relative(row) for row in rows)
    first = 0 if relative or any(min(row[::2]) == 0 for row in rows) else 1
    lengths = {"columns": 0, "rows": 0}
    steps: dict[str, list[float]] = {"columns": [], "rows": []}
    beyond = 0
    for name in [name for name in images if any(runs.get(name, ()))][:MAX_SAMPLED_IMAGES]:
        image = images[name]
        height, width = image.shape
        marked = [row for row in runs[name] if row]
        outside_count = sum(count_pixels(row, RunRule("rows", first, relative)) > image.size for row in marked)
        beyond += outside_count
        if outside_count:
            continue
        for order in ORDERS:
            mask = draw_runs(marked[0], width, height, RunRule(order, first, relative))
            for row in marked[1:]:
                mask |= draw_runs(row, width, height, RunRule(order, first, relative))
            down, along = mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1]
            lengths[order] += int(down.sum() + along.sum())
            steps[order].append(_measure_step(image, down, along))
    clear_order = _choose_order(lengths, steps)
    return RunReading(RunRule(clear_order or "columns", first, relative), clear_order is not None, beyond)


def _choose_order(lengths: Mapping[str, int], steps: Mapping[str, Sequence[float]]) -> Order | None:
    """Return the order whose outlines are shorter, else the one that images follow for certain; None if neither can be told."""
    import numpy as np

    down, along = lengths["columns"], lengths["rows"]
    if max(down, along) > CLEAR_RATIO * min(down, along):
        return "columns" if down < along else "rows"
    difference = np.subtract(steps["columns"], steps["rows"])
    if len(difference) < MIN_RUN_CELLS:
        return None
    error = float(difference.std(ddof=1)) / len(difference) ** 0.5
    fainter, stronger = sorted((sum(steps["columns"]), sum(steps["rows"])))
    if stronger <= CLEAR_RATIO * fainter or abs(float(difference.mean())) <= MIN_T * error:
        return None
    return "columns" if difference.mean() > 0 else "rows"


def _measure_step(image: Any, down: Any, along: Any) -> float:
    """Return the mean step of grey values across the outline."""
    import numpy as np

    grey = np.asarray(image, float)
    across = np.concatenate([np.abs(np.diff(grey, axis=0))[down], np.abs(np.diff(grey, axis=1))[along]])
    return float(across.mean()) if across.size else 0.0
