"""Outlines of YOLO, CVAT and the VGG annotator: as masks, as boxes around them, and what is no such file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import layout_kit as kit
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_kit import picture

from m3b.data.spec.execute import Executed, execute
from m3b.data.spec.model import Task
from m3b.data.spec.named_outlines import OutlineFormat, drawn
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey
from m3b.data.survey.annotations.outline import around, ellipse, rectangle
from m3b.dataset.reading import read_mask
from m3b.errors import DataError

SIZE = (20, 40)
SQUARE = [(4, 3), (10, 3), (10, 9), (4, 9)]
"""As (x, y) edges: rows 3 to 8, columns 4 to 9."""
POLYPS = kit.Want("Segment polyps on colonoscopy images", "segmentation", 16, values=1)


def pictures(root: Path, folder: str = "images") -> list[str]:
    names = [f"scan{at:03d}.png" for at in range(16)]
    for name in names:
        picture(root / folder / name, 90, SIZE)
    return names


def yolo(root: Path) -> None:
    line = "0 " + " ".join(f"{x / SIZE[1]:.4f} {y / SIZE[0]:.4f}" for x, y in SQUARE)
    for part, some in (("train", range(12)), ("val", range(12, 16))):
        (root / "labels" / part).mkdir(parents=True)
        for at in some:
            picture(root / "images" / part / f"scan{at:03d}.png", 90, SIZE)
            (root / "labels" / part / f"scan{at:03d}.txt").write_text(line if at != 5 else "")
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames:\n  0: polyp\n")


def cvat(root: Path) -> None:
    points, text = ";".join(f"{x},{y}" for x, y in SQUARE), "<annotations><version>1.1</version>"
    for at, name in enumerate(pictures(root)):
        mark = f'<polygon label="polyp" points="{points}"/>' if at != 5 else ""
        text += f'<image id="{at}" name="{name}" width="{SIZE[1]}" height="{SIZE[0]}">{mark}</image>'
    (root / "annotations.xml").write_text(text + "</annotations>")


def via(root: Path, **whole: Any) -> None:
    shape = {"name": "polygon", "all_points_x": [x for x, _ in SQUARE], "all_points_y": [y for _, y in SQUARE]}
    region = {"shape_attributes": shape, "region_attributes": {"type": "polyp"}}
    names = pictures(root)
    images = {
        f"{name}812": {"filename": name, "size": 812, "regions": [region] if at != 5 else [], "file_attributes": {}}
        for at, name in enumerate(names)
    }
    (root / "regions.json").write_text(json.dumps({"_via_img_metadata": images, **whole} if whole else images))


def project(root: Path) -> None:
    via(root, _via_settings={"ui": {}}, _via_attributes={"region": {}})


def made(root: Path, want: kit.Want, work: Path) -> Executed:
    found = propose(survey(root), Ask(want.task, want.request, boxes=want.boxes))
    assert sufficient(found) == ""
    work.mkdir(exist_ok=True)
    return execute(found[0].spec, root, name="set", work=work)


@pytest.mark.parametrize("write", [yolo, cvat, via, project])
def test_outlines_are_masks_and_images_without_one_have_empty_masks(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    root, work = tmp_path / "raw", tmp_path / "work"
    write(root)
    done = made(root, POLYPS, work)
    masks = {Path(str(one.image)).stem: one.mask for one in (*done.train, *done.test)}
    assert len(masks) == 16
    wanted = np.zeros(SIZE, bool)
    wanted[3:9, 4:10] = True
    for name, mask in masks.items():
        array = read_mask(str(mask), str(work)).array
        assert np.array_equal(array.squeeze() != 0, wanted if name != "scan005" else np.zeros_like(wanted)), name


@pytest.mark.parametrize("write", [yolo, cvat, via])
def test_the_same_outlines_are_boxes_where_boxes_are_asked_for(write: Callable[[Path], None], tmp_path: Path) -> None:
    root = tmp_path / "raw"
    write(root)
    want = kit.Want("Find polyps with boxes on colonoscopy images", "detection", 16, values=1, boxes=True)
    done = made(root, want, tmp_path / "work")
    boxes = {
        Path(str(one.image)).stem: [tuple(box.box) for box in one.boxes or ()] for one in (*done.train, *done.test)
    }
    assert (boxes.pop("scan005"), boxes["scan003"], len(boxes)) == ([], [pytest.approx((4, 3, 10, 9))], 15)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("yolo", "polyp 0.1 0.1 0.2 0.2 0.3 0.3"),
        ("yolo", "0 12 14 20 21 30 31"),
        ("cvat", "<annotations/>"),
        ("cvat", '<annotations><image name="a.png"><polygon label="p" points="1,2;x,3"/></image></annotations>'),
        ("cvat", "<annotations><image"),
        ("via", "[1, 2]"),
        ("via", '{"a": {"filename": "a.png"}}'),
        ("via", '{"a": {"filename": "a.png", "regions": [{"shape_attributes": {"name": "rect", "x": 1}}]}}'),
        ("via", "{"),
    ],
)
def test_what_is_no_such_file_is_named(format: OutlineFormat, text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(text)
    with pytest.raises(DataError, match=f"cannot be read as {format}"):
        drawn(format, file, "images/a.png", SIZE, {"polyp": "polyp"})


def test_a_file_that_does_not_name_an_image_says_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    file.write_text('<annotations><image name="b.png"/><image name="images/a.png"/></annotations>')
    assert drawn("cvat", file, "x/a.png", SIZE, {}) is None
    assert drawn("cvat", file, "x/images/a.png", SIZE, {}) == {}


def test_shapes_of_every_kind_bound_their_area(tmp_path: Path) -> None:
    shapes = (
        '<box label="a" xtl="2" ytl="3" xbr="8" ybr="5" rotation="90"/>',
        '<ellipse label="b" cx="20" cy="10" rx="6" ry="4"/>',
        '<points label="c" points="3,3"/><polyline label="c" points="1,1;5,5"/><tag label="c"/>',
    )
    file = tmp_path / "a.xml"
    file.write_text(f'<annotations><image name="a.png">{"".join(shapes)}</image></annotations>')
    found = drawn("cvat", file, "a.png", SIZE, {one: one for one in "abc"})
    assert found is not None
    assert found.keys() == {"a", "b"}
    rows, columns = np.nonzero(found["a"])
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (1, 6, 4, 5)
    assert found["b"].sum() == pytest.approx(math.pi * 24, rel=0.1)  # of pixels whose middles lie in it
    assert found["b"][10, 20]


@given(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), st.floats(0.5, 30), st.floats(0.5, 30), st.integers(-3, 3))
def test_an_ellipse_and_its_rectangle_have_one_box(
    middle: tuple[float, float], wide: float, high: float, quarters: int
) -> None:
    low, top = (middle[0] - wide, middle[1] - high), (middle[0] + wide, middle[1] + high)
    turned = 90.0 * quarters
    box = around(ellipse(middle, wide, high, turned))
    assert box == pytest.approx(around(rectangle(low, top, turned)), abs=1e-6)
    sides = (2 * high, 2 * wide) if quarters % 2 else (2 * wide, 2 * high)
    assert (box[2] - box[0], box[3] - box[1]) == pytest.approx(sides, abs=1e-6)


@pytest.mark.parametrize(("boxes", "task"), [(False, "segmentation"), (True, "detection")])
def test_the_only_class_is_called_as_it_was_chosen(tmp_path: Path, boxes: bool, task: Task) -> None:
    """A selection asked for "tumour", a reading had "polyp" for it: an action and a rejection were spent on the name."""
    cvat(tmp_path / "raw")
    ask = Ask(task, "Mark the tumour on colonoscopy images", classes=("tumour",), boxes=boxes)
    best = propose(survey(tmp_path / "raw"), ask)[0]
    (tmp_path / "work").mkdir()
    done = execute(best.spec, tmp_path / "raw", name="set", work=tmp_path / "work")
    assert list(done.values) == ["tumour"]
    assert sum(bool(one.boxes) if boxes else one.mask is not None for one in (*done.train, *done.test)) >= 15
