"""Masks that are run lengths in a column of a table, and how their runs are counted, as far as images bear it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.reading import read_image, shared
from m3b.data.run_lengths import RunRule, decoded, is_relative, last_pixel, runs_of
from m3b.data.survey.annotations.in_tables import class_column, image_column
from m3b.data.survey.annotations.marks import UNNAMED, Marks
from m3b.data.survey.gathering import Gathered
from m3b.data.survey.tables import Loaded
from m3b.errors import DataError

RUNS = "runs"
"""The role of the column that holds them."""
SIZES, ORDER = "runs_beyond_image", "columns_or_rows"
"""Faults: runs that reach beyond their images; runs of which nothing says whether they go down or along."""
LEAST, MOSTLY = 3, 0.95
IMAGES = 12
CLEAR = 1.15
"""How much rougher, or fainter in the image, the outline of one order must be than that of the other."""
ERRORS = 4.0
"""Standard errors of its mean over images by which the image must follow one order's outline more than the other's: in noise
that follows neither, one of 12 images exceeds CLEAR now and then (t > 4 with 11 degrees of freedom: p = 0.002)."""


def find(tables: Sequence[Loaded], images: Sequence[Gathered]) -> Iterator[Marks]:
    """Tables with such a column, and another that names images."""
    for table in tables:
        if table.fact.format not in ("csv", "xlsx", "json", "jsonl"):
            continue
        column = next((name for name in table.names if _holds_runs(table, name)), "")
        if column and (image := image_column(table, images)):
            yield _marks(table, column, image)


def _holds_runs(table: Loaded, name: str) -> bool:
    """Whether nearly all cells are pairs of numbers, and some are several pairs."""
    read = [runs_of(cell) if isinstance(cell := row.get(name, ""), str) else None for row in table.rows]
    some = [one for one in read if one]
    good = sum(one is not None for one in read)
    return len(some) >= LEAST and good >= MOSTLY * len(read) and any(len(one) >= 4 for one in some)


def _marks(table: Loaded, column: str, image: str) -> Marks:
    fact = table.fact
    marks = Marks("csv_runs", fact.path, fact.files, group=fact.group, table=fact.id, shapes={"rle"}, exact=fact.exact)
    label = class_column(table, {RUNS: column}, image)
    marks.columns = [("image", image), *([("class", label)] if label else []), (RUNS, column)]
    marks.class_source = label
    named = set()
    for row in table.rows:
        name, runs = str(row.get(image, "")), runs_of(str(row.get(column, "")))
        named.add(name)
        if runs:
            marks.items += 1
            marks.runs.append((name, runs))
            marks.classes[str(row.get(label, "")) if label else UNNAMED] += 1
        elif runs is None:
            marks.faults["unreadable_runs"] += 1
    marks.marked = len({name for name, _ in marks.runs} - {""})
    marks.named = sorted(named - {""})
    return marks


def decide(marks: Marks, paths: Mapping[str, str], root: Path) -> None:
    """State how the runs are counted, and what stays open.

    Args:
        paths: image as it is named -> its file.
    """
    if not marks.runs:
        return
    relative = any(is_relative(runs) for _, runs in marks.runs)
    first = 0 if relative or any(min(runs[::2]) == 0 for _, runs in marks.runs) else 1
    named = sorted({name for name, _ in marks.runs if name in paths})
    rough = {"columns": 0.0, "rows": 0.0}
    followed: dict[str, list[float]] = {"columns": [], "rows": []}
    for name in named[:: max(1, len(named) // IMAGES)][:IMAGES]:
        image = _picture(paths[name], root)
        if image is None:
            continue
        for order in ("columns", "rows"):
            rule = RunRule(order, first, relative)
            some = [runs for other, runs in marks.runs if other == name]
            if max(last_pixel(runs, rule) for runs in some) > image.size:
                marks.faults[SIZES] += len(some) * (order == "rows")
                continue
            mask = sum(decoded(runs, image.shape, rule) for runs in some) > 0
            rough[order] += _outline(mask)
            followed[order].append(_edge(mask, image))
    marks.run_rule = RunRule(_order(rough, followed, marks), first, relative)


def _order(rough: Mapping[str, float], followed: Mapping[str, list[float]], marks: Marks) -> Any:
    """The order whose outlines are shorter; where images are square and both are as long, that which images follow for certain."""
    down, along = rough["columns"], rough["rows"]
    if max(down, along) > CLEAR * min(down, along):
        return "columns" if down < along else "rows"
    if order := _followed(followed["columns"], followed["rows"]):
        return order
    marks.faults[ORDER] = len(marks.runs)
    return "columns"


def _followed(down: list[float], along: list[float]) -> str:
    """The order whose outlines images follow; "" where the difference may be chance.

    Args:
        down, along: mean step across the outline, an image each, by the order of columns and of rows.
    """
    import numpy as np

    if len(down) != len(along) or len(down) < LEAST:
        return ""
    less, more = sorted((sum(down), sum(along)))
    differences = np.subtract(down, along)
    error = float(differences.std(ddof=1)) / len(down) ** 0.5
    if more <= CLEAR * less or abs(float(differences.mean())) <= ERRORS * error:
        return ""
    return "columns" if sum(down) > sum(along) else "rows"


def _picture(path: str, root: Path) -> Any:
    """(rows, columns) grey; None of what does not open or is no flat image."""
    try:
        image = attempt(lambda: read_image(path, str(root)).array, root, path)
    except (Unreadable, DataError, shared().ImageError):
        return None
    return image.mean(axis=0) if image.ndim == 3 else None


def _outline(mask: Any) -> float:
    """Length of the outline in sides of pixels."""
    return float((mask[1:] != mask[:-1]).sum() + (mask[:, 1:] != mask[:, :-1]).sum())


def _edge(mask: Any, image: Any) -> float:
    """Mean step of the image across the outline."""
    import numpy as np

    down, along = mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1]
    steps = np.concatenate([np.abs(np.diff(image, axis=0))[down], np.abs(np.diff(image, axis=1))[along]])
    return float(steps.mean()) if steps.size else 0.0
