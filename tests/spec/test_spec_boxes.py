"""Boxes of a reading: from which pixel a format counts, what is dropped, and that both are said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spec_kit import picture, read

from m3b.errors import DataError

VOC = {"format": "voc", "files": {"pattern": "voc/{stem}.xml"}, "classes": {"cell": ["cell"]}, "image": "{stem}.png"}


@pytest.mark.parametrize(
    ("first", "wanted", "said"), [(3, (2, 4, 9, 10), "1 is taken off"), (0, (3, 5, 9, 10), "from 0")]
)
def test_voc_counts_from_one_unless_a_box_begins_at_nought(
    tmp_path: Path, first: int, wanted: tuple[int, ...], said: str
) -> None:
    root = tmp_path / "data"
    for at in range(6):
        picture(root / "images" / f"p{at}.png", value=40 + 20 * at)
        corner = first if at == 0 else 3
        empty = "<object><name>cell</name><bndbox><xmin>7</xmin><ymin>7</ymin><xmax>6</xmax><ymax>6</ymax></bndbox></object>"
        box = f"<xmin>{corner}</xmin><ymin>5</ymin><xmax>9</xmax><ymax>10</ymax>"
        (root / "voc").mkdir(exist_ok=True)
        (root / "voc" / f"p{at}.xml").write_text(
            f"<annotation><filename>p{at}.png</filename>{empty if at == 5 else ''}"
            f"<object><name>cell</name><bndbox>{box}</bndbox></object></annotation>"
        )
    made = read(root, tmp_path / "work", task="detection", images={"files": {"pattern": "images/*.png"}}, boxes=VOC)
    boxes = {box.box for record in (*made.train, *made.test) if "p3" in record.reference for box in record.boxes or ()}
    assert boxes == {wanted}
    notes = " ".join(made.notes)
    assert said in notes
    assert "1 boxes left out: without area, or outside its image" in notes


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ({"image": "image", "x": "x", "y": "y"}, "the role xmax or width and the role ymax or height"),
        ({"image": "image", "radius": "r"}, "the role xmin or x or cx"),
        ({"image": "image", "xmax": "x", "ymax": "y"}, "the role ymin or y or cy"),
    ],
)
def test_columns_that_make_no_box_are_named(tmp_path: Path, columns: dict[str, str], missing: str) -> None:
    root = tmp_path / "raw"
    for at in range(4):
        picture(root / f"images/{at}.png")
    (root / "boxes.csv").write_text("image,x,y,r\n" + "".join(f"{at}.png,5,5,2\n" for at in range(4)))
    boxes = {"format": "csv_boxes", "files": {"pattern": "boxes.csv"}, "classes": {"node": []}, "columns": columns}
    with pytest.raises(DataError, match=missing):
        read(root, tmp_path, task="detection", images={"files": {"pattern": "images/{id}.png"}}, boxes=boxes)


def test_a_box_that_is_listed_twice_counts_once(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(6):
        picture(root / f"images/{at}.png", value=40 + 20 * at)
    images = [{"id": at, "file_name": f"{at}.png"} for at in range(6)]
    boxes = [{"id": at, "image_id": at // 2, "category_id": 1, "bbox": [2, 3, 4, 5]} for at in range(12)]
    boxes[5]["bbox"] = [3, 3, 4, 5]
    kinds = [{"id": 1, "name": "cell"}]
    (root / "a.json").write_text(json.dumps({"images": images, "annotations": boxes, "categories": kinds}))
    spec = {"format": "coco", "files": {"pattern": "a.json"}, "classes": {"cell": []}, "image": "{stem}.png"}
    made = read(root, tmp_path / "work", task="detection", images={"files": {"pattern": "images/*.png"}}, boxes=spec)
    counts = {Path(record.reference).stem: len(record.boxes or ()) for record in (*made.train, *made.test)}
    assert counts == {"0": 1, "1": 1, "2": 2, "3": 1, "4": 1, "5": 1}
    assert "5 boxes left out: listed twice for the same image" in made.notes
