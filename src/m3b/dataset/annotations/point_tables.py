"""Marks in tables, and points among them: a row a point (`x`, `y`, class), or a pair of columns a point (`nose_x`, `nose_y`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from m3b.dataset.annotations.base import AnnotationSet, Space
from m3b.dataset.annotations.box_tables import (
    BoxColumns,
    find_roles,
    is_numeric,
    parse_numbers,
    propose_box_columns,
    propose_class_column,
)
from m3b.dataset.annotations.builder import SetBuilder
from m3b.dataset.annotations.names import clean_name
from m3b.dataset.annotations.run_tables import find_run_column

if TYPE_CHECKING:
    import polars as pl

_AXIS_END = re.compile(r"^(?P<name>.+?)[\s_.\-]*(?P<axis>[xyXY])$")
_AXIS_START = re.compile(r"^(?P<axis>[xyXY])[\s_.\-]+(?P<name>.+)$")
_NUMBERED = re.compile(r"^(?P<axis>[xyXY])[\s_.\-]?(?P<name>\d+)$")
MIN_NUMBERED = 3
"""Points from which on `x1`, `y1`, `x2`, `y2`, ... are points; two are corners of a box."""


@dataclass(frozen=True)
class PointColumns:
    """Columns of points.

    Args:
        points: name of a point -> columns of x and y. One without name has its class in another column.
    """

    points: dict[str, tuple[str, str]]


def propose_point_columns(frame: pl.DataFrame) -> PointColumns | None:
    """Return the columns of points of a table of texts; None if it has none, or its numbers are boxes."""
    numeric = [column for column in frame.columns if is_numeric(frame[column])]
    for pattern in (_NUMBERED, _AXIS_END, _AXIS_START):
        pairs: dict[str, dict[str, str]] = defaultdict(dict)
        for column in numeric:
            if match := pattern.match(column):
                pairs[match["name"]].setdefault(match["axis"].casefold(), column)
        points = {name: (axes["x"], axes["y"]) for name, axes in pairs.items() if len(axes) == 2}
        if len(points) >= (MIN_NUMBERED if pattern is _NUMBERED else 2):
            return PointColumns(points)
    roles = find_roles(frame)
    sizes = {"width", "height", "radius", "diameter", "xmax", "xmin"}
    for x, y in (("x", "y"), ("cx", "cy")):
        if x in roles and y in roles and not sizes & roles.keys():
            return PointColumns({"": (roles[x], roles[y])})
    return None


def make_point_set(
    frame: pl.DataFrame,
    columns: PointColumns,
    names: Sequence[str | None],
    source: str,
    class_column: str = "",
    space: Space = "pixels",
) -> AnnotationSet:
    """Return the points of a table; empty cells are points that are not visible."""
    builder = SetBuilder("table", space)
    labels = frame[class_column].to_list() if class_column else [None] * frame.height
    images = [builder.add_image(name, source, (clean_name(name),)) if name else None for name in names]
    for point, (x_column, y_column) in columns.points.items():
        places = zip(parse_numbers(frame[x_column]), parse_numbers(frame[y_column]), strict=True)
        for image, label, (x, y) in zip(images, labels, places, strict=True):
            if image is not None and x is not None and y is not None:
                builder.add_point(image, point or (label or "").strip(), x, y)
    return builder.finish(columns.points if "" not in columns.points else ())


@dataclass(frozen=True)
class AnnotationColumns:
    """Columns of a table that mark images.

    Args:
        kind: of marks; a table of boxes is no table of points.
        columns: role -> column as in a manifest (`class`, `xmin`, ..., `runs`), or name of a point -> its columns, with a comma.
        boxes: of the kind `boxes`, with what the names say of the numbers.
    """

    kind: Literal["boxes", "runs", "points"]
    columns: dict[str, str]
    boxes: BoxColumns | None = None


def propose_annotation_columns(frame: pl.DataFrame, image_column: str = "") -> AnnotationColumns | None:
    """Return the columns of boxes, run lengths or points of a table of texts, in this order; None if it has none.

    Args:
        image_column: names images, if it is known; it is no class.
    """
    boxes = propose_box_columns(frame)
    if boxes is not None:
        columns = dict(boxes.columns)
    elif runs := find_run_column(frame):
        columns = {"runs": runs}
    elif points := propose_point_columns(frame):
        columns = {name: ",".join(pair) for name, pair in points.points.items()}
    else:
        return None
    kind: Literal["boxes", "runs", "points"] = "boxes" if boxes else "runs" if "runs" in columns else "points"
    mark_columns = [column for text in columns.values() for column in (text.split(",") if kind == "points" else [text])]
    label = "" if kind == "points" and "" not in columns else propose_class_column(frame, [image_column, *mark_columns])
    return AnnotationColumns(kind, {**({"class": label} if label else {}), **columns}, boxes)
