"""Boxes and circles in the columns of a table, by what the columns are called and by what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from m3b.data.survey.annotations import in_lists
from m3b.data.survey.annotations.marks import FRACTIONS, Marks, are_fractions, numbers
from m3b.data.survey.ends import paths_of
from m3b.data.survey.gathering import Gathered
from m3b.data.survey.joins import names_in
from m3b.data.survey.tables import FILE, Loaded

_ROLES: dict[str, tuple[str, ...]] = {
    "xmin": ("xmin", "x1", "left", "bboxxmin", "x0", "minx", "startx", "xstart"),
    "ymin": ("ymin", "y1", "top", "bboxymin", "y0", "miny", "starty", "ystart"),
    "xmax": ("xmax", "x2", "right", "bboxxmax", "maxx", "endx", "xend"),
    "ymax": ("ymax", "y2", "bottom", "bboxymax", "maxy", "endy", "yend"),
    "x": ("x", "bboxx", "cx", "xcenter", "centerx", "coordx", "xc"),
    "y": ("y", "bboxy", "cy", "ycenter", "centery", "coordy", "yc"),
    "width": ("width", "w", "bboxwidth", "bboxw"),
    "height": ("height", "h", "bboxheight", "bboxh"),
    "z": ("z", "cz", "zcenter", "centerz", "coordz"),
    "radius": ("radius", "r", "radiuspx"),
    "diameter": ("diameter", "diametermm", "d"),
}
_CLASS = re.compile(r"class|label|category|categor|type|name|finding|target|lesion|abnormalit|patholog|disease", re.I)


def find(tables: Sequence[Loaded], images: Sequence[Gathered]) -> Iterator[Marks]:
    """Tables with four sides of a box, or a middle and a radius."""
    for table in tables:
        if table.fact.format not in ("csv", "xlsx", "jsonl", "json") or len(table.rows) < 1:
            continue
        roles = columns_of(table)
        box = {"xmin", "ymin", "xmax", "ymax"} <= roles.keys() or {"x", "y", "width", "height"} <= roles.keys()
        circle = {"x", "y"} <= roles.keys() and bool({"radius", "diameter"} & roles.keys())
        if box or circle:
            yield _marks(table, roles, images, box=box)
        elif (lists := in_lists.find(table, max_side(images))) and (image := image_column(table, images)):
            lists.columns.insert(0, ("image", image))
            lists.named, lists.marked = in_lists.named(table, dict(lists.columns))
            yield lists


def max_side(images: Sequence[Gathered]) -> int:
    """The longest side, in pixels, of the images that were looked at; 0 where none is known."""
    shapes = [one.fact.content.shapes for one in images if one.fact.content is not None]
    return max((side for some in shapes for shape in some for side in shape.shape), default=0)


def columns_of(table: Loaded) -> dict[str, str]:
    """Which column plays which role, among those that hold numbers."""
    roles: dict[str, str] = {}
    for column in table.fact.columns:
        if column.type not in ("integer", "number") and column.filled:
            continue
        plain = re.sub(r"[^a-z0-9]", "", column.name.lower().rpartition(".")[2])
        for role, names in _ROLES.items():
            if plain in names and role not in roles and column.filled:
                roles[role] = column.name
    return roles


def _marks(table: Loaded, roles: dict[str, str], images: Sequence[Gathered], *, box: bool) -> Marks:
    fact = table.fact
    marks = Marks("csv_boxes" if box else "csv_circles", fact.path, fact.files, group=fact.group, table=fact.id,
                  shapes={"box" if box else "circle"}, exact=fact.exact)  # fmt: skip
    image = image_column(table, images)
    label = _class_column(table, image)
    marks.columns = [*([("image", image)] if image else []), *([("class", label)] if label else []),
                     *sorted(roles.items())]  # fmt: skip
    marks.class_source = label
    named, marked = set(), set()
    every: list[list[float]] = []
    for row in table.rows:
        name = str(row.get(image, "")) if image else ""
        named.add(name)
        values = numbers(str(row.get(column, "")) for column in roles.values())
        if values is None:
            marks.faults["unmarked_row"] += 1
            continue
        marked.add(name)
        marks.items += 1
        every.append(values)
        if label:
            marks.classes[str(row.get(label, ""))] += 1
        marks.faults["no_area"] += _empty(dict(zip(roles, values, strict=True)), box=box)
    marks.faults[FRACTIONS] = len(every) * are_fractions(every)
    marks.named, marks.marked = sorted(named - {""}), len(marked - {""})
    return marks


def _empty(side: dict[str, float], *, box: bool) -> bool:
    if not box:
        return side.get("radius", side.get("diameter", 0)) <= 0
    if "xmax" in side and "xmin" in side:
        return side["xmax"] <= side["xmin"] or side.get("ymax", 0) <= side.get("ymin", 0)
    return side.get("width", 0) <= 0 or side.get("height", 0) <= 0


def image_column(table: Loaded, images: Sequence[Gathered]) -> str:
    """The column whose values name the most images; the file itself where each image has its table."""
    ends = [paths_of(one, 200_000) for one in images]
    best, most = "", 0
    for column in table.fact.columns:
        if column.type in ("identifier", "path", "integer", "category") and column.distinct > 1:
            values = sorted({str(row.get(column.name, "")) for row in table.rows if not isinstance(row, list)})
            found = names_in(values, ends)
            if found and found[2] > most and (found[1] != "number" or column.type != "integer"):
                best, most = column.name, found[2]
    if best:
        return best
    return FILE if FILE in table.names else next(
        (column.name for column in table.fact.columns if column.type in ("identifier", "path")), ""
    )  # fmt: skip


def _class_column(table: Loaded, image: str) -> str:
    few = [
        column for column in table.fact.columns
        if column.name not in (image, FILE) and column.type in ("category", "boolean", "integer", "identifier")
        and column.values and not column.lists
    ]  # fmt: skip
    named = [column for column in few if _CLASS.search(column.name)]
    worded = [column for column in named if column.type != "integer"] or named
    if worded:
        return worded[0].name
    words = [column for column in few if column.type == "category"]
    return words[0].name if len(words) == 1 else ""
