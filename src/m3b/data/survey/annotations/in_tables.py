"""Boxes and circles in the columns of a table, by what the columns are called and by what they hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from m3b.data.survey.annotations import in_lists
from m3b.data.survey.annotations.box_columns import CENTRES, CORNERS, SIDES, rows_of
from m3b.data.survey.annotations.marks import IN_PERCENT, Marks, numbers
from m3b.data.survey.ends import paths_of
from m3b.data.survey.gathering import Gathered
from m3b.data.survey.joins import names_in
from m3b.data.survey.rows import Cell
from m3b.data.survey.tables import FILE, Loaded

COORDINATES = {axis: (f"coord{axis}", f"{axis}coord", f"pos{axis}", f"{axis}pos") for axis in "xyz"}
"""Names of a place that say neither corner nor middle."""
_ROLES: dict[str, tuple[str, ...]] = {
    **{f"{axis}min": (f"{axis}min", f"{axis}1", f"bbox{axis}min", f"bbox{axis}1", f"{axis}0", f"min{axis}", f"start{axis}",
                      f"{axis}start", f"{axis}low", f"box{axis}min") for axis in "xyz"},
    **{f"{axis}max": (f"{axis}max", f"{axis}2", f"bbox{axis}max", f"bbox{axis}2", f"max{axis}", f"end{axis}", f"{axis}end",
                      f"{axis}high", f"box{axis}max") for axis in "xyz"},
    **{axis: (axis, f"bbox{axis}", f"box{axis}", *COORDINATES[axis]) for axis in "xyz"},
    **{f"c{axis}": (f"c{axis}", f"{axis}center", f"{axis}centre", f"center{axis}", f"centre{axis}", f"{axis}c", f"mid{axis}",
                    f"bboxcenter{axis}", f"bboxcentre{axis}") for axis in "xyz"},
    "width": ("width", "w", "bboxwidth", "bboxw", "boxwidth", "sizex", "xsize"),
    "height": ("height", "h", "bboxheight", "bboxh", "boxheight", "sizey", "ysize"),
    "depth": ("depth", "d", "bboxdepth", "bboxd", "boxdepth", "sizez", "zsize"),
    "radius": ("radius", "r"),
    "diameter": ("diameter", "diam", "noddiameter", "nodulediameter"),
}  # fmt: skip
_SIDE = {"left": "xmin", "top": "ymin", "right": "xmax", "bottom": "ymax"}
KEY = "(key)"
_SHAPES = frozenset(("rect", "rectangle", "box", "bbox", "circle", "ellipse", "polygon", "polyline", "point"))
_UNIT = re.compile(r"(mm|world|px|pixels?|vox|voxels?)$")
_SIZES = ("width", "height", "depth", "radius", "diameter")
_CLASS = re.compile(r"class|label|category|categor|type|name|finding|target|lesion|abnormalit|patholog|disease", re.I)


def find(tables: Sequence[Loaded], images: Sequence[Gathered]) -> Iterator[Marks]:
    """Tables with the sides of a box, or a middle and a radius, or a column of boxes."""
    for table in tables:
        if table.fact.format not in ("csv", "xlsx", "jsonl", "json") or len(table.rows) < 1:
            continue
        columns = columns_of(table)
        roles, form = boxed(columns)
        if roles:
            yield _marks(table, roles, images, form=form)
        elif (lists := in_lists.find(table)) and (image := image_column(table, images)):
            lists.columns.insert(0, ("image", image))
            in_lists.fill(lists, table)
            yield lists


def columns_of(table: Loaded) -> dict[str, str]:
    """Which column plays which role, among those that hold numbers."""
    roles: dict[str, str] = {}
    for column in table.fact.columns:
        if column.type not in ("integer", "number") or not column.filled:
            continue
        plain = _plain(column.name)
        for role, names in _ROLES.items():
            if (plain in names or _SIDE.get(plain) == role) and role not in roles:
                roles[role] = column.name
    return roles


def _plain(name: str) -> str:
    """A column's name without folders of records, signs and units."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().rpartition(".")[2])
    short = _UNIT.sub("", plain)
    return re.sub(r"^world(?=coord|[xyz]$)", "", short or plain)


def boxed(columns: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The roles that give a box, and the form of its numbers; none where they give none."""
    for form, starts, ends in (
        (CORNERS, "{}min", "{}max"), (CENTRES, "c{}", ""), (SIDES, "{}", ""), (SIDES, "{}min", "")
    ):  # fmt: skip
        ends_of = dict(zip("xyz", ("width", "height", "depth"), strict=True))
        need = [(starts.format(axis), ends.format(axis) or ends_of[axis]) for axis in "xyz"]
        flat = need[:2]
        if all(role in columns for pair in flat for role in pair):
            whole = need if all(role in columns for role in need[2]) else flat
            return {role: columns[role] for pair in whole for role in pair}, form
    size = next((one for one in ("radius", "diameter") if one in columns), "diameter" if "depth" in columns else "")
    for start in ("c{}", "{}"):
        some = [start.format(axis) for axis in "xyz" if start.format(axis) in columns]
        if size and len(some) >= 2 and some[0].endswith("x") and some[1].endswith("y"):
            return {**{role: columns[role] for role in some}, size: columns.get(size) or columns["depth"]}, "ball"
    return {}, ""


def _marks(table: Loaded, roles: dict[str, str], images: Sequence[Gathered], *, form: str) -> Marks:
    fact, ball = table.fact, form == "ball"
    marks = Marks("csv_circles" if ball else "csv_boxes", fact.path, fact.files, group=fact.group, table=fact.id,
                  shapes={"circle" if ball else "box"}, exact=fact.exact, form=CENTRES if ball else form, ball=ball)  # fmt: skip
    _name_units(marks, roles)
    image = image_column(table, images)
    label = class_column(table, roles, image)
    marks.columns = [*([("image", image)] if image else []), *([("class", label)] if label else []),
                     *sorted(roles.items())]  # fmt: skip
    marks.class_source = label
    named = set()
    for row in table.rows:
        name = str(row.get(image, "")) if image else ""
        named.add(name)
        _draw(marks, row, name, roles, label)
    marks.marked = len({name for name, _ in marks.drawn} - {""})
    marks.named = sorted(named - {""})
    if not marks.drawn:
        marks.form = ""
    return marks


def _draw(marks: Marks, row: Mapping[str, Cell], name: str, roles: Mapping[str, str], label: str) -> None:
    """State what one row draws."""
    try:
        some = rows_of(row, {**roles, **({"class": label} if label else {})})
    except ValueError:
        marks.faults["lists_of_different_lengths"] += 1
        return
    for one in some:
        values = numbers(str(one.get(column, "")) for column in roles.values())
        if values is None or not all(map(math.isfinite, values)):
            marks.faults["unmarked_row"] += 1
            continue
        text = str(one.get(label, "")) if label else ""
        side = dict(zip(roles, values, strict=True))
        marks.items += 1
        marks.classes.update([text] if label else [])
        marks.drawn.append((name, numbers_of(side)))
        marks.labels.append(text)
        marks.faults["no_area"] += _empty(side, box=not marks.ball)


def _name_units(marks: Marks, roles: Mapping[str, str]) -> None:
    """What the names of columns say of units, and of corner or middle."""
    called = {role: re.sub(r"[^a-z0-9]", "", name.lower()) for role, name in roles.items()}
    places = [name for role, name in called.items() if role not in _SIZES]
    marks.in_mm = all(name.endswith("mm") or "world" in name for name in places)
    marks.sizes_mm = any(name.endswith("mm") for role, name in called.items() if role in _SIZES)
    marks.unsure = marks.form == SIDES and any(name in some for name in places for some in COORDINATES.values())


def numbers_of(side: Mapping[str, float]) -> tuple[float, ...]:
    """The numbers of a row in their form: corners as they are; else places, then sizes."""
    axes = [axis for axis in "xyz" if {axis, f"c{axis}", f"{axis}min"} & side.keys()]
    low = [next(side[role] for role in (axis, f"c{axis}", f"{axis}min") if role in side) for axis in axes]
    if "xmax" in side:
        return (*low, *(side[f"{axis}max"] for axis in axes))
    if "width" in side:
        return (*low, *(side[name] for name in ("width", "height", "depth")[: len(axes)]))
    size = side["radius"] * 2 if "radius" in side else side["diameter"]
    return (*low, *[size] * len(axes))


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
            better = found and (found[2] > most or (found[2] == most and best == KEY))
            if found and better and (found[1] != "number" or column.type != "integer"):
                best, most = column.name, found[2]
    if best:
        return best
    return FILE if FILE in table.names else next(
        (column.name for column in table.fact.columns if column.type in ("identifier", "path")), ""
    )  # fmt: skip


def class_column(table: Loaded, roles: Mapping[str, str], image: str) -> str:
    taken = {image, *roles.values()}
    lists = any(column.lists for column in table.fact.columns if column.name in roles.values())
    few = [
        column for column in table.fact.columns
        if column.name not in (*taken, FILE) and column.type in ("category", "boolean", "integer", "identifier")
        and column.values and (lists or not column.lists)
        and not {value.text.casefold() for value in column.values} <= _SHAPES
    ]  # fmt: skip
    named = [column for column in few if _CLASS.search(column.name)]
    if exported := [column for column in few if column.name.endswith(IN_PERCENT)]:
        return exported[0].name
    worded = [column for column in named if column.type != "integer"] or named
    if worded:
        return worded[0].name
    words = [column for column in few if column.type == "category"]
    return words[0].name if len(words) == 1 else ""
