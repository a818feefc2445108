"""The boxes that files hold: Pascal VOC, COCO, YOLO, LabelMe, Aperio, tables and records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable
from m3b.data.spec.aperio import regions
from m3b.data.spec.folder import Item
from m3b.data.spec.model import Boxes as BoxesSpec
from m3b.data.survey.annotations import cvat, via
from m3b.data.survey.annotations.box_columns import (
    FORMS,
    cell_of,
    check_columns,
    check_names,
    corners_of,
    formed,
    rows_of,
)
from m3b.data.survey.annotations.in_lists import labelled
from m3b.data.survey.annotations.outline import DrawnOutline, around
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.reading_documents import xml_root
from m3b.data.survey.reading_tables import read_rows
from m3b.data.survey.reading_texts import RECORD
from m3b.data.survey.rows import Rows
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_data_json

Mark = tuple[str, str, tuple[float, ...]]
"""The image as it is named, the class as it is named, and the lower and upper corner; no class where nothing is marked."""
MAX_BYTES = 512 * 2**20


def read_marks(spec: BoxesSpec, root: Path, item: Item) -> list[Mark]:
    """The marks of one file.

    Raises:
        DataError: it cannot be read as what the spec says it is, or lacks a column that the spec names.
    """
    check_columns(spec.format, spec.columns)
    try:
        return list(_READERS[spec.format](spec, root / item.path, item))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, Unreadable) as error:
        raise DataError(f"{item.path} cannot be read as {spec.format}: {type(error).__name__}: {error}.") from error


def _json(file: Path) -> Any:
    if file.stat().st_size > MAX_BYTES:
        raise ValueError("larger than 512 MiB")
    return parse_data_json(file.read_bytes())


def _voc(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    root = xml_root(file)
    named = (root.findtext("filename") or "").strip() or item.slots["stem"]
    yield named, "", ()
    for one in root.iter("object"):
        box = one.find("bndbox")
        if box is not None:
            corners = tuple(float(box.findtext(name) or "nan") for name in ("xmin", "ymin", "xmax", "ymax"))
            yield named, (one.findtext("name") or "").strip(), corners


def _coco(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    raw = _json(file)
    names = {one["id"]: str(one["name"]) for one in raw.get("categories", ())}
    images = {one["id"]: str(one["file_name"]) for one in raw["images"]}
    for name in images.values():
        yield name, "", ()
    for one in raw.get("annotations", ()):
        box = one.get("bbox")
        if box and one.get("image_id") in images and len(box) == 4:
            yield images[one["image_id"]], names.get(one.get("category_id"), ""), formed("sides", [*map(float, box)])


def _yolo(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    yield item.slots["stem"], "", ()
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        cells = line.split()
        values = [float(cell) for cell in cells[1:]]
        if len(values) >= 4 and (len(values) == 4 or len(values) % 2):  # a fifth is a score
            yield item.slots["stem"], cells[0], formed("centres", values[:4])
        elif len(values) >= 6:  # an outline
            yield item.slots["stem"], cells[0], around(list(zip(values[::2], values[1::2], strict=False)))


def _labelme(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    raw = _json(file)
    named = Path(str(raw.get("imagePath") or item.slots["stem"]).replace("\\", "/")).name
    yield named, "", ()
    for one in raw.get("shapes", ()):
        points = [(float(x), float(y)) for x, y in one.get("points", ())]
        if len(points) >= 2:
            box = around(points)
            if one.get("shape_type") == "circle":
                (x, y), radius = points[0], math.dist(points[0], points[1])
                box = (x - radius, y - radius, x + radius, y + radius)
            yield named, str(one.get("label", "")).strip(), box


def _aperio(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    yield item.slots["stem"], "", ()
    for one in regions(file):
        if not one.hole:
            yield item.slots["stem"], one.name, around(list(one.points))


def _cvat(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    yield from map(_enclosing, cvat.in_root(xml_root(file)))


def _via(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    yield from map(_enclosing, via.in_document(_json(file)))


def _enclosing(one: DrawnOutline) -> Mark:
    return one.image, one.label, around(one.points) if one.points else ()


def _table(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    columns = spec.columns
    for table in _tables(file):
        check_names(columns, table.names, item.path)
        for row in table.rows:
            named = _named(columns, row, item)
            yield named, "", ()
            for one in rows_of(row, columns):
                if (box := corners_of(columns, one)) is not None:
                    yield named, cell_of(one, columns["class"]) if "class" in columns else next(iter(spec.classes)), box


def _tables(file: Path) -> list[Rows]:
    return [one for one in read_rows(file, file.suffix.lower(), SurveyLimits()) if one.record_path != RECORD]


def _named(columns: Mapping[str, str], row: Mapping[str, Any], item: Item) -> str:
    return item.slots["stem"] if columns.get("image") in (None, "(file)") else cell_of(row, columns["image"])


def _lists(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    columns = spec.columns
    form = next(one for one in FORMS if one in columns)
    for table in _tables(file):
        if columns[form] not in table.names or columns["image"] not in (*table.names, "(file)"):
            continue
        for row in table.rows:
            named = _named(columns, row, item)
            yield named, "", ()
            for name, numbers in labelled(row, columns[form], columns.get("class", "")):
                yield named, name or next(iter(spec.classes)), formed(form, numbers)


_READERS: dict[str, Callable[[BoxesSpec, Path, Item], Iterator[Mark]]] = {
    "voc": _voc, "coco": _coco, "yolo": _yolo, "labelme": _labelme, "aperio": _aperio, "cvat": _cvat, "via": _via,
    "csv_boxes": _table, "csv_circles": _table, "json_boxes": _lists, "csv_lists": _lists,
}  # fmt: skip
