"""COCO and LabelMe files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from m3b.data.survey.annotations.marks import Marks, numbers
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.tables import FILE, Loaded


def find(found: Gathering, tables: Sequence[Loaded]) -> Iterator[Marks]:
    """COCO files by their lists of images and annotations, LabelMe files by their shapes."""
    by_path: dict[str, dict[str, Loaded]] = defaultdict(dict)
    for table in tables:
        if table.fact.format == "json" and table.fact.files == 1:
            by_path[table.fact.path][table.fact.record_path.rpartition(".")[2]] = table
    for path, lists in by_path.items():
        if "images" in lists and "annotations" in lists:
            yield _coco(path, lists)
    shapes = [one for one in tables if one.fact.record_path == "shapes" and {"label", "shape_type"} <= set(one.names)]
    if shapes:
        yield _labelme(shapes)


def _first(row: object) -> str:
    return str(row[0]) if isinstance(row, list) and row else str(row) if not isinstance(row, list) else ""


def _coco(path: str, lists: dict[str, Loaded]) -> Marks:
    images, items = lists["images"], lists["annotations"]
    names = {
        _first(row.get("id", "")): _first(row.get("name", row.get("id", "")))
        for row in (lists["categories"].rows if "categories" in lists else ())
    }
    files = {_first(row.get("id", "")): _first(row.get("file_name", "")) for row in images.rows}
    marks = Marks("coco", path, 1, len(items.rows), group=items.fact.group, table=items.fact.id,
                  class_source="categories", exact=items.fact.exact and images.fact.exact)  # fmt: skip
    marked = set()
    for row in items.rows:
        category, image = _first(row.get("category_id", "")), _first(row.get("image_id", ""))
        marks.classes[names.get(category, category or "(none)")] += 1
        marks.faults["unknown_class"] += bool(names) and category not in names
        marks.faults["unknown_image"] += image not in files
        marked.add(image)
        _shapes(marks, row.get("bbox"), row)
    marks.classes.update(dict.fromkeys(names.values(), 0))
    marks.named = [name for name in files.values() if name]
    marks.marked = len(marked & files.keys())
    return marks


def _shapes(marks: Marks, box: object, row: dict[str, str | list[str]]) -> None:
    if isinstance(box, list) and len(box) == 4:
        marks.shapes.add("box")
        sides = numbers(box[2:])
        marks.faults["no_area"] += sides is None or min(sides) <= 0
    if any(name.startswith("segmentation.") for name in row):
        marks.shapes.add("rle")
    if "segmentation" in row or "iscrowd" in row:
        marks.shapes.add("polygon") if row.get("segmentation") else None
    if row.get("caption"):
        marks.shapes.add("caption")


def _labelme(tables: Sequence[Loaded]) -> Marks:
    first = tables[0].fact
    marks = Marks("labelme", first.path, sum(one.fact.files for one in tables), group=first.group, table=first.id,
                  class_source="label")  # fmt: skip
    shapes = Counter[str]()
    files = set()
    for table in tables:
        for row in table.rows:
            marks.classes[_first(row.get("label", ""))] += 1
            shapes[_first(row.get("shape_type", ""))] += 1
            files.add(_first(row.get(FILE, table.fact.path)))
            marks.items += 1
    known = {"rectangle": "box", "polygon": "polygon", "circle": "circle", "point": "point", "linestrip": "polygon"}
    marks.shapes = {known.get(shape, "polygon") for shape in shapes}
    marks.named, marks.marked = sorted(files), len(files)
    return marks
