"""The boxes of a case, from Pascal VOC, COCO, YOLO, LabelMe files or tables."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.reading import shared
from m3b.data.records import BoxLabel
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.folder import DataFolder, Item
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.model import Boxes as BoxesSpec
from m3b.data.spec.patterns import PatternError, filled
from m3b.data.survey.annotations.in_lists import CORNERS, SIDES, labelled
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.keys import key as normal
from m3b.data.survey.reading_documents import xml_root
from m3b.data.survey.reading_tables import read_rows
from m3b.data.survey.tables import FILE
from m3b.errors import DataError

Mark = tuple[str, str, tuple[float, ...]]
"""The image as it is named, the class as it is named, and (x0, y0, x1, y1) in pixels."""
MAX_BYTES = 512 * 2**20


@dataclass
class BoxSource:
    """Finds the boxes of cases.

    Args:
        notes: what was left out, by reason.
        told: how coordinates were read, where a format leaves that open.
    """

    spec: BoxesSpec
    folder: DataFolder
    accounting: Accounting
    notes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    told: str = ""
    _marks: dict[str, list[tuple[str, tuple[float, ...]]]] = field(default_factory=dict)
    _files: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        items = self.folder.items(self.spec.files)
        if not items:
            raise PatternError(f"No file matches boxes.files.pattern {self.spec.files.pattern!r}.")
        marks: dict[str, list[tuple[str, tuple[float, ...]]]] = defaultdict(list)
        for item in items:
            for image, name, box in _read(self.spec, self.folder.root, item):
                key = normal(self.spec.rule, image)
                if name:
                    marks[key].append((name, box))
                else:
                    marks.setdefault(key, [])
        self._marks = self._from_one(marks) if self.spec.format == "voc" else dict(marks)
        self.accounting.use((item.path for item in items), "annotation")

    def _from_one(
        self, marks: Mapping[str, list[tuple[str, tuple[float, ...]]]]
    ) -> dict[str, list[tuple[str, tuple[float, ...]]]]:
        """Pascal VOC counts pixels from 1 and includes the last, so that a box begins one earlier; files that have a 0
        count from 0."""
        if any(min(box[:2]) < 1 for listed in marks.values() for _, box in listed):
            self.told = "boxes of these VOC files count pixels from 0, as some begin at 0"
            return dict(marks)
        self.told = "Pascal VOC counts pixels from 1: 1 is taken off xmin and ymin"
        return {
            name: [(label, (box[0] - 1, box[1] - 1, *box[2:])) for label, box in listed]
            for name, listed in marks.items()
        }

    def boxes_of(self, case: CaseDraft) -> tuple[BoxLabel, ...]:
        """What is marked; empty for a healthy image.

        Raises:
            LeaveOut: no annotation names the image, where that does not mean that it is healthy.
        """
        named = self._named()
        found = []
        for name, box in self._of(case):
            wanted = named.get(normal("exact", name))
            if wanted is None:
                self.notes["of a class that is not asked for"] += 1
                continue
            inside = self._inside(case, box)
            if inside is None:
                self.notes["without area, or outside its image"] += 1
                continue
            found.append(BoxLabel(wanted, inside))
        return tuple(found)

    def classes_of(self, case: CaseDraft) -> tuple[str, ...]:
        """The classes of what is marked, without a look at the image.

        Raises:
            LeaveOut: as `boxes_of`.
        """
        named = self._named()
        found = (named.get(normal("exact", name)) for name, _ in self._of(case))
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _named(self) -> dict[str, str]:
        """Folded name in the files -> class."""
        return {normal("exact", text): name for name, texts in self.spec.classes.items() for text in (texts or (name,))}

    def _of(self, case: CaseDraft) -> list[tuple[str, tuple[float, ...]]]:
        """The marks of a case, as its annotation has them."""
        key = normal(self.spec.rule, filled(self.spec.image, case.slots))
        if key not in self._marks and self.spec.empty != "healthy":
            raise LeaveOut("no annotation names it")
        return self._marks.get(key, [])

    def _inside(self, case: CaseDraft, box: tuple[float, ...]) -> tuple[float, ...] | None:
        """The box in pixels, clipped to its image; None where nothing is left of it."""
        height, width = shared().probe(str(self.folder.root / case.items[0].reference))[:2]
        if self.spec.format == "yolo" or self.spec.relative:
            box = (box[0] * width, box[1] * height, box[2] * width, box[3] * height)
        x0, y0, x1, y1 = box
        clipped = (max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1))
        return clipped if clipped[2] - clipped[0] > 0 and clipped[3] - clipped[1] > 0 else None


def _read(spec: BoxesSpec, root: Path, item: Item) -> Iterator[Mark]:
    """The marks of one file.

    Raises:
        DataError: it cannot be read as what the spec says it is.
    """
    file = root / item.path
    try:
        match spec.format:
            case "voc":
                yield from _voc(file, item)
            case "coco":
                yield from _coco(_json(file))
            case "yolo":
                yield from _yolo(file, item)
            case "labelme":
                yield from _labelme(_json(file), item)
            case "json_boxes":
                yield from _lists(spec, file, item)
            case _:
                yield from _table(spec, file, item)
    except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise DataError(f"{item.path} cannot be read as {spec.format}: {type(error).__name__}: {error}.") from error


def _json(file: Path) -> Any:
    if file.stat().st_size > MAX_BYTES:
        raise ValueError("larger than 512 MiB")
    return json.loads(file.read_bytes())


def _voc(file: Path, item: Item) -> Iterator[Mark]:
    root = xml_root(file)
    named = (root.findtext("filename") or "").strip() or item.slots["stem"]
    yield named, "", ()
    for one in root.iter("object"):
        box = one.find("bndbox")
        if box is not None:
            corners = tuple(float(box.findtext(name) or "nan") for name in ("xmin", "ymin", "xmax", "ymax"))
            yield named, (one.findtext("name") or "").strip(), corners


def _coco(raw: Mapping[str, Any]) -> Iterator[Mark]:
    names = {one["id"]: str(one["name"]) for one in raw.get("categories", ())}
    images = {one["id"]: str(one["file_name"]) for one in raw["images"]}
    for name in images.values():
        yield name, "", ()
    for one in raw.get("annotations", ()):
        box = one.get("bbox")
        if box and one.get("image_id") in images and len(box) == 4:
            x, y, wide, high = map(float, box)
            yield images[one["image_id"]], names.get(one.get("category_id"), ""), (x, y, x + wide, y + high)


def _yolo(file: Path, item: Item) -> Iterator[Mark]:
    yield item.slots["stem"], "", ()
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        cells = line.split()
        if len(cells) >= 5:
            x, y, wide, high = map(float, cells[1:5])
            yield item.slots["stem"], cells[0], (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)


def _labelme(raw: Mapping[str, Any], item: Item) -> Iterator[Mark]:
    named = Path(str(raw.get("imagePath") or item.slots["stem"]).replace("\\", "/")).name
    yield named, "", ()
    for one in raw.get("shapes", ()):
        points = [(float(x), float(y)) for x, y in one.get("points", ())]
        if len(points) >= 2:
            columns, rows = [x for x, _ in points], [y for _, y in points]
            if one.get("shape_type") == "circle":
                radius = math.dist(points[0], points[1])
                box = (columns[0] - radius, rows[0] - radius, columns[0] + radius, rows[0] + radius)
            else:
                box = (min(columns), min(rows), max(columns), max(rows))
            yield named, str(one.get("label", "")).strip(), box


def _table(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    columns = spec.columns
    for table in read_rows(file, file.suffix.lower(), SurveyLimits()):
        for row in table.rows:
            named = item.slots["stem"] if columns.get("image") in (None, FILE) else _cell(row, columns["image"])
            yield named, "", ()
            box = _corners(columns, row)
            if box is not None:
                yield named, _cell(row, columns["class"]) if "class" in columns else next(iter(spec.classes)), box


def _lists(spec: BoxesSpec, file: Path, item: Item) -> Iterator[Mark]:
    columns, own = spec.columns, spec.columns["image"] == FILE
    form = CORNERS if CORNERS in columns else SIDES
    for table in read_rows(file, file.suffix.lower(), SurveyLimits()):
        if not own and columns["image"] not in table.names:
            continue
        for row in table.rows:
            named = item.slots["stem"] if own else _cell(row, columns["image"])
            yield named, "", ()
            for name, (a, b, c, d) in labelled(row, columns[form], columns.get("class", "")):
                yield named, name or next(iter(spec.classes)), (a, b, c, d) if form == CORNERS else (a, b, a + c, b + d)


def _cell(row: Mapping[str, Any], column: str) -> str:
    cell = row.get(column, "")
    return str(cell[0] if isinstance(cell, list) and cell else cell).strip()


def _missing(columns: Mapping[str, str]) -> str:
    """The roles that are needed beside those that there are; empty where they suffice."""
    if {"radius", "diameter"} & columns.keys():
        return "" if {"x", "y"} <= columns.keys() else "x and y"
    if not ({"xmin", "ymin"} <= columns.keys() or {"x", "y"} <= columns.keys()):
        return "xmin and ymin (or x and y)"
    ends = {"xmax", "ymax"} <= columns.keys() or {"width", "height"} <= columns.keys()
    return "" if ends else "xmax and ymax, width and height, or a radius"


def _corners(columns: Mapping[str, str], row: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The box of a row; None where its cells are empty (a healthy image)."""

    def number(role: str) -> float:
        return float(_cell(row, columns[role]))

    filled_in: Sequence[str] = [role for role in columns if role not in ("image", "class")]
    if any(not _cell(row, columns[role]) for role in filled_in):
        return None
    if missing := _missing(columns):
        raise DataError(f"boxes.columns has no column for {missing}")
    if "radius" in columns or "diameter" in columns:
        x, y = number("x"), number("y")
        radius = number("radius") if "radius" in columns else number("diameter") / 2
        return (x - radius, y - radius, x + radius, y + radius)
    x, y = (number("xmin"), number("ymin")) if {"xmin", "ymin"} <= columns.keys() else (number("x"), number("y"))
    if {"xmax", "ymax"} <= columns.keys():
        return (x, y, number("xmax"), number("ymax"))
    return (x, y, x + number("width"), y + number("height"))
