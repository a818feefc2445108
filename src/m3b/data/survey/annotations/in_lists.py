"""Boxes as lists within one cell: `{"file_name": ..., "syms": ["Mass"], "boxes": [[12, 30, 80, 95]]}`, `"3.0, 4.0, 14.0, 15.0"`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from m3b.data.survey.annotations.box_columns import CENTRES, CORNERS, SIDES
from m3b.data.survey.annotations.marks import OPEN, Marks, numbers
from m3b.data.survey.rows import Cell
from m3b.data.survey.tables import Loaded

FLAT, DEEP = 4, 6
"""Numbers of a box in a picture and in a volume."""
_BOXES = re.compile(r"box|rect|roi|bound", re.I)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_LABELS = re.compile(r"class|label|categor|type|finding|target|abnormalit|patholog|disease|syms?$|name", re.I)
_LONGEST = 20_000
_COCO = frozenset({"image_id", "category_id"})


def find(table: Loaded) -> Marks | None:
    """The boxes of a table with a column of them, but for the images that they belong to; None where no column holds any."""
    if table.fact.format not in ("json", "jsonl", "csv", "xlsx") or set(table.names) >= _COCO:
        return None
    found: list[tuple[bool, str, list[tuple[float, ...]]]] = []
    for name in table.names:
        cells = [cell for row in table.rows if (cell := row.get(name, "")) and not _is_bare(cell)]
        held = [some for cell in cells if (some := boxes_of(cell))]
        if held and len(held) == len(cells) and len({len(one) for some in held for one in some}) == 1:
            found.append((not _BOXES.search(name), name, [one for some in held for one in some]))
    records = table.fact.format in ("json", "jsonl")
    found = [one for one in found if not one[0] or (records and max(max(box) for box in one[2]) > 1)]
    if not found:
        return None
    _, name, boxes = min(found, key=lambda one: one[0])
    return _marks(table, name, boxes)


def _is_bare(cell: Cell) -> bool:
    """Whether a cell lists nothing."""
    return isinstance(cell, str) and cell.strip(" []()").casefold() in ("", "nan", "none", "null")


def boxes_of(cell: Cell) -> list[tuple[float, ...]] | None:
    """The boxes of a cell: a list of them, or the four (of volumes six) numbers of one; None where it holds something else."""
    if not isinstance(cell, list):
        return _in_text(cell)
    if not cell:
        return None
    if len(cell) in (FLAT, DEEP) and (one := numbers(cell)) is not None:
        return [tuple(one)]
    found = [numbers(text.split(",")) for text in cell]
    return [tuple(one) for one in found if one] if all(one and len(one) in (FLAT, DEEP) for one in found) else None


def _in_text(text: str) -> list[tuple[float, ...]] | None:
    """The boxes that a text lists: `3, 4, 14, 15`, `[3 4 14 15]`, `[[3, 4, 14, 15], [1, 2, 5, 6]]`, `3,4,14,15;1,2,5,6`."""
    if not 7 <= len(text) <= _LONGEST:
        return None
    pieces = [
        one
        for piece in re.split(r"[\])};|]", text)
        if (one := re.split(r"[\s,]+", piece.strip("[({, \t\n\"'"))) != [""]
    ]
    if not pieces or any(len(one) not in (FLAT, DEEP) for one in pieces):
        return None
    found = [numbers(one) for one in pieces]
    return [tuple(one) for one in found if one] if all(found) else None


def _marks(table: Loaded, name: str, boxes: list[tuple[float, ...]]) -> Marks:
    fact = table.fact
    form = _named_form(name)
    marks = Marks("json_boxes" if fact.format in ("json", "jsonl") else "csv_lists", fact.path, fact.files, len(boxes),
                  group=fact.group, table=fact.id, shapes={"box"}, exact=fact.exact, form=form,
                  in_mm=bool(re.search(r"mm|world", name, re.I)))  # fmt: skip
    label = _labels(table, name)
    marks.columns = [*([("class", label)] if label else []), (form, name)]
    marks.class_source = label
    return marks


def fill(marks: Marks, table: Loaded) -> None:
    """State the images that rows name, and what is drawn on each."""
    columns = dict(marks.columns)
    image, label = columns["image"], columns.get("class", "")
    boxes = next(name for role, name in marks.columns if role not in ("image", "class"))
    for row in table.rows:
        for text, box in labelled(row, boxes, label):
            marks.drawn.append((str(row.get(image, "")), box))
            marks.labels.append(text)
            marks.classes[text] += bool(label)
    of = {str(row.get(image, "")): bool(row.get(boxes)) for row in table.rows}
    marks.named, marks.marked = sorted(of.keys() - {""}), sum(of.values())


def _named_form(name: str) -> str:
    """The form that a column's name says; open where it says none."""
    low = re.sub(r"[^a-z]", "", name.lower())
    said = {"xyxy": CORNERS, "xywh": SIDES, "cxcywh": CENTRES, "cccwhd": CENTRES, "xyzxyz": CORNERS, "xyzwhd": SIDES}
    return next((form for text, form in reversed(said.items()) if text in low), OPEN)


def _labels(table: Loaded, boxes: str) -> str:
    """The column of as many texts a row as there are boxes; else one of few words that a row has once."""
    for column in table.fact.columns:
        if column.name != boxes and column.values and column.type in ("category", "boolean", "identifier"):
            cells = [row.get(column.name, "") for row in table.rows if row.get(boxes)]
            counts = [len(boxes_of(row[boxes]) or ()) for row in table.rows if row.get(boxes)]
            if all(isinstance(cell, list) and len(cell) == count for cell, count in zip(cells, counts, strict=True)):
                return column.name
    few = [one for one in table.fact.columns if one.type == "category" and one.values and not one.lists and one.name != boxes
           and not any(len(_NUMBER.findall(value.text)) > 1 for value in one.values)]  # fmt: skip
    called = [one for one in few if _LABELS.search(one.name)]
    return (
        called[0].name
        if len(called) == 1
        else few[0].name
        if len(few) == 1 and table.fact.format in ("json", "jsonl")
        else ""
    )


def labelled(row: Mapping[str, Cell], name: str, label: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The boxes of a row, each with its label; empty labels without a column of them."""
    boxes = boxes_of(row.get(name, "")) or []
    cell = row.get(label, "") if label else ""
    texts = cell if isinstance(cell, list) else [cell] * len(boxes)
    yield from zip(texts, boxes, strict=True)
