"""build_index.py on boxes: COCO, JSON lists, CSV, YOLO and Pascal VOC, and boxes that cannot be right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mask_kit import picture, values

IMAGES = ("--images", "data/x/images")


@pytest.fixture
def filled(desk: Any) -> Any:
    for at in range(10):
        picture(desk, f"images/p{at}.png", (40, 60))
    return desk


def boxes_of(built: Any, name: str) -> list[Any]:
    found = built.by_image[f"data/x/images/{name}"]["boxes"]
    return [(one["label"], one["box"]) for one in found]


def test_coco(filled: Any) -> None:
    raw = {
        "categories": [{"id": 7, "name": "nodule"}, {"id": 2, "name": "mass"}],
        "images": [{"id": at, "file_name": f"p{at}.png", "meta": {"pid": f"z{at // 2}"}} for at in range(12)],
        "annotations": [{"image_id": at, "category_id": 7 if at % 2 else 2, "bbox": [5, 6, 10, 20]} for at in range(8)],
    }
    filled.write("notes.json", json.dumps(raw))
    built = filled.build("--boxes", "data/x/notes.json", *IMAGES, "--patient", "meta.pid")
    assert len(built.all) == 10
    assert boxes_of(built, "p1.png") == [("nodule", [5, 6, 15, 26])]
    assert boxes_of(built, "p9.png") == [], "an image that is listed without a box is healthy"
    assert values(built, filled) == {"mass": 0, "nodule": 1}, "in the order of their ids"
    assert built.by_image["data/x/images/p3.png"]["patient"] == "z1"
    assert "absent: 2" in built.out


def test_records_with_lists_and_a_file_for_testing(filled: Any) -> None:
    for name, numbers in (("train", range(7)), ("test", range(7, 10))):
        listed = [
            {"file_name": f"p{at}.png", "syms": ["a", "b"][: at % 3], "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]][: at % 3]}
            for at in numbers
        ]
        filled.write(f"{name}.json", json.dumps(listed))
    built = filled.build("--boxes", "data/x/train.json", "--test-table", "data/x/test.json", *IMAGES)
    assert (len(built.train), len(built.test)) == (7, 3)
    assert boxes_of(built, "p2.png") == [("a", [1, 2, 3, 4]), ("b", [5, 6, 7, 8])]


@pytest.mark.parametrize(
    ("head", "cells", "options"),
    [
        ("image,label,x1,y1,x2,y2", "5,6,15,26", ()),
        ("image,label,xmin,ymin,xmax,ymax", "5,6,15,26", ()),
        ("image,label,x,y,width,height", "5,6,10,20", ()),
        ("image,cell_type,xmin,ymin,xmax,ymax", "5,6,15,26", ()),
        ("image,label,a,b,c,d", "5,6,15,26", ("--box", "a,b,c,d")),
    ],
)
def test_a_table_with_a_box_a_row(filled: Any, head: str, cells: str, options: tuple[str, ...]) -> None:
    rows = [f"p{at}.png,nodule,{cells}" for at in range(8)] + ["p1.png,mass,1,1,4,4", "p8.png,No finding,,,,"]
    filled.write("b.csv", "\n".join([head, *rows]))
    built = filled.build("--boxes", "data/x/b.csv", *IMAGES, *options)
    assert len(built.all) == 9
    assert boxes_of(built, "p1.png")[0] == ("nodule", [5, 6, 15, 26])
    assert len(boxes_of(built, "p1.png")) == 2
    assert boxes_of(built, "p8.png") == []
    assert "images that the file does not name: 1, left out" in built.out
    built = filled.build("--boxes", "data/x/b.csv", *IMAGES, *options, "--unlisted", "healthy", "--classes", "mass")
    assert boxes_of(built, "p9.png") == boxes_of(built, "p2.png") == []
    assert values(built, filled) == {"mass": 0}


@pytest.mark.parametrize("names", ["classes.txt", "data.yaml"])
def test_yolo(filled: Any, names: str) -> None:
    for at in range(9):
        filled.write(f"labels/p{at}.txt", "1 0.5 0.5 0.5 0.25\n" if at else "")
    filled.write(names, "nodule\nmass\n" if names.endswith("txt") else "nc: 2\nnames: ['nodule', 'mass']\n")
    built = filled.build("--boxes", "data/x/labels", *IMAGES)
    assert boxes_of(built, "p3.png") == [("mass", [15, 15, 45, 25])]
    assert boxes_of(built, "p0.png") == []
    assert len(built.all) == 9


def test_pascal_voc(filled: Any) -> None:
    box = "<bndbox><xmin>6</xmin><ymin>7</ymin><xmax>15</xmax><ymax>26</ymax></bndbox>"
    for at in range(8):
        inner = f"<filename>p{at}.png</filename><object><name>mass</name>{box}</object>"
        filled.write(f"voc/p{at}.xml", f"<annotation>{inner}</annotation>")
    built = filled.build("--boxes", "data/x/voc", *IMAGES)
    assert boxes_of(built, "p3.png") == [("mass", [5, 6, 15, 26])], "VOC counts from 1 and includes the last pixel"
    assert "1 is taken off xmin and ymin" in built.out
    from_zero = "<filename>p0.png</filename><object><name>mass</name>" + box.replace("<xmin>6", "<xmin>0")
    filled.write("voc/p0.xml", f"<annotation>{from_zero}</object></annotation>")
    again = filled.build("--boxes", "data/x/voc", *IMAGES)
    assert boxes_of(again, "p3.png") == [("mass", [6, 7, 15, 26])], (
        "a box that begins at 0 counts from 0, and so do all"
    )
    assert "count pixels from 0" in again.out


def test_boxes_that_cannot_be_right_are_mended_or_left_out(filled: Any) -> None:
    wrong = [[15, 26, 5, 6], [50, 30, 90, 90], [3, 3, 3, 9], [70, 70, 80, 80], [1, 1, 9, 9], [1, 1, 9, 9]]
    listed = [{"image": f"p{at}.png", "label": "n", "boxes": [box]} for at, box in enumerate(wrong[:4])]
    listed += [{"image": "p5.png", "label": "n", "boxes": wrong[4:]}, {"image": "p6.png", "boxes": []}]
    filled.write("b.json", json.dumps(listed))
    built = filled.build("--boxes", "data/x/b.json", *IMAGES)
    assert boxes_of(built, "p0.png") == [("n", [5, 6, 15, 26])]
    assert boxes_of(built, "p1.png") == [("n", [50, 30, 60, 40])]
    assert boxes_of(built, "p2.png") == boxes_of(built, "p3.png") == []
    assert len(boxes_of(built, "p5.png")) == 1
    for told in ("reversed corners 1", "over the border 2", "without an area, dropped 2", "double boxes 1"):
        assert told in built.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not valid JSON"),
        ("[1, 2]", "holds no list of images with boxes"),
        ('[{"file_name": "p1.png"}]', "give --image and --box"),
        ('[{"file_name": "p1.png", "boxes": [[1, 2, 3]]}]', "is no box of 4 or 6 numbers"),
        ('[{"file_name": "p1.png", "boxes": [[1, 2, 3, 4]], "labels": []}]', "1 boxes and 0 labels"),
        ('[{"file_name": "p1.png", "boxes": []}]', "No image has a box"),
        ('[{"file_name": "gone.png", "boxes": [[1, 2, 3, 4]]}]', "None of the images"),
    ],
)
def test_what_cannot_be_read_is_said(filled: Any, text: str, told: str) -> None:
    filled.write("b.json", text)
    assert told in filled.fail("--boxes", "data/x/b.json", *IMAGES)
