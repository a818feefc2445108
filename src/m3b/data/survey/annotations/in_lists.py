"""Boxes as lists within records, `{"file_name": ..., "syms": ["Mass"], "boxes": [[12, 30, 80, 95]]}`, or as the four numbers of a
cell of a table, `"12, 30, 80, 95"`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from m3b.data.survey.annotations.marks import FRACTIONS, Marks, are_fractions, numbers
from m3b.data.survey.rows import Cell
from m3b.data.survey.tables import Loaded

CORNERS, SIDES = "corners", "sides"
"""Roles of a column of boxes: (x0, y0, x1, y1) and (x, y, width, height)."""
EITHER = "corners_or_sides"
"""The fault of boxes of which both may be meant."""
_CALLED = re.compile(r"box|rect|\broi\b", re.IGNORECASE)
_BRACKETED = re.compile(r"[\[({]?([^\[\](){}]*)[\])}]?")
_COCO = frozenset({"image_id", "category_id"})


def find(table: Loaded, longest: int) -> Marks | None:
    """The boxes of a table of records, but for the images that they belong to; None where no column holds any.

    Args:
        longest: side of the images in pixels, by which corners are told from sides; 0 where unknown.
    """
    if table.fact.format not in ("json", "jsonl", "csv", "xlsx") or set(table.names) >= _COCO:
        return None
    cells = table.fact.format in ("csv", "xlsx")
    for name in table.names:
        if cells and not _CALLED.search(name):
            continue  # four numbers in a cell may be anything
        boxes = [box for row in table.rows for box in boxes_of(row.get(name, "")) or ()]
        filled = sum(1 for row in table.rows if row.get(name))
        held = sum(1 for row in table.rows if boxes_of(row.get(name, "")))
        if boxes and held == filled and max(max(box) for box in boxes) > 0:
            return _marks(table, name, boxes, longest)
    return None


def boxes_of(cell: Cell) -> list[tuple[float, ...]] | None:
    """The boxes of a cell: a list of them, or the four numbers of one; None where it holds something else."""
    if isinstance(cell, str):
        return [tuple(one)] if (one := _four(cell)) is not None else None
    if not cell:
        return None
    if len(cell) == 4 and (one := numbers(cell)) is not None:
        return [tuple(one)]
    found = [numbers(text.split(",")) for text in cell]
    return [tuple(one) for one in found if one] if all(one and len(one) == 4 for one in found) else None


def _four(cell: str) -> list[float] | None:
    """The numbers of `12, 30, 80, 95`, `[12 30 80 95]` or `(12; 30; 80; 95)`."""
    found = _BRACKETED.fullmatch(cell.strip())
    one = numbers(re.split(r"[\s,;]+", found[1].strip())) if found else None
    return one if one and len(one) == 4 else None


def _marks(table: Loaded, name: str, boxes: list[tuple[float, ...]], longest: int) -> Marks:
    fact = table.fact
    marks = Marks("json_boxes", fact.path, fact.files, len(boxes), group=fact.group, table=fact.id, shapes={"box"},
                  exact=fact.exact)  # fmt: skip
    form = form_of(name, boxes, longest)
    label = _labels(table, name)
    marks.columns = [*([("class", label)] if label else []), (form or CORNERS, name)]
    marks.class_source = label
    marks.faults[EITHER] = 0 if form else len(boxes)
    marks.faults[FRACTIONS] = len(boxes) * are_fractions(boxes)
    for text, box in _labelled(table, name, label):
        marks.classes[text] += bool(label)
        low, high = box[:2], box[2:]
        empty = min(high) <= 0 if form == SIDES else high[0] <= low[0] or high[1] <= low[1]
        marks.faults["no_area"] += empty
    return marks


def form_of(name: str, boxes: list[tuple[float, ...]], longest: int) -> str:
    """What the four numbers are; empty where both would fit the images and the column's name does not say it."""
    low = name.lower()
    if "xyxy" in low or "xywh" in low:
        return CORNERS if "xyxy" in low else SIDES
    turned = sum(1 for a, b, c, d in boxes if c <= a or d <= b)
    beyond = sum(1 for a, b, c, d in boxes if longest and max(a + c, b + d) > longest * 1.01)
    if beyond and turned <= 0.02 * len(boxes):
        return CORNERS
    return SIDES if turned > 0.02 * len(boxes) and not beyond else ""


def _labels(table: Loaded, boxes: str) -> str:
    """The column of as many texts a row as there are boxes; else one of few words that a row has once."""
    for column in table.fact.columns:
        if column.name != boxes and column.values and column.type in ("category", "boolean", "identifier"):
            cells = [row.get(column.name, "") for row in table.rows if row.get(boxes)]
            counts = [len(boxes_of(row[boxes]) or ()) for row in table.rows if row.get(boxes)]
            if all(isinstance(cell, list) and len(cell) == count for cell, count in zip(cells, counts, strict=True)):
                return column.name
    few = [
        one for one in table.fact.columns
        if one.name != boxes and one.type == "category" and one.values and not one.lists
    ]  # fmt: skip
    return few[0].name if len(few) == 1 else ""


def _labelled(table: Loaded, name: str, label: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    for row in table.rows:
        yield from labelled(row, name, label)


def labelled(row: Mapping[str, Cell], name: str, label: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The boxes of a row, each with its label; empty labels without a column of them."""
    boxes = boxes_of(row.get(name, "")) or []
    cell = row.get(label, "") if label else ""
    texts = cell if isinstance(cell, list) else [cell] * len(boxes)
    yield from zip(texts, boxes, strict=True)


def named(table: Loaded, columns: Mapping[str, str]) -> tuple[list[str], int]:
    """The images that rows name, and how many of them have a box."""
    image, boxes = columns["image"], columns.get(CORNERS) or columns[SIDES]
    of = {str(row.get(image, "")): bool(row.get(boxes)) for row in table.rows}
    return sorted(of.keys() - {""}), sum(of.values())
