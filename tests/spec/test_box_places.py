"""Corners of boxes in voxels, computed by hand for turned, flipped and tilted grids; what a file must say for that."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from layout_kit import Names
from layout_kit_boxes import LPS, balls_in_mm, one_document, volume
from spec_kit import picture, read

from m3b.data.box_places import clipped, grid_for, to_voxels
from m3b.data.records import BoxLabel
from m3b.data.spec.execute import execute
from m3b.data.spec.proposals import Ask, Proposal, propose, sufficient
from m3b.data.survey import survey
from m3b.errors import DataError

TURNED = np.array([[0, -2.0, 0, 30.0], [0, 0, 0.5, -10.0], [4.0, 0, 0, 100.0]])
"""RAS: the first axis runs to the head by 4 mm, the second to the left by 2, the third to the front by 0.5."""
TILT = np.sqrt(0.5)
TILTED = np.array([[TILT, -TILT, 0, 0], [TILT, TILT, 0, 0], [0, 0, 1.0, 0]])
"""RAS: 45 degrees about the axis of the body, voxels of 1 mm."""


def ball(middle: tuple[float, float, float], radius: float) -> tuple[float, ...]:
    return (*(one - radius for one in middle), *(one + radius for one in middle))


def test_a_ball_in_mm_on_a_turned_grid(tmp_path: Path) -> None:
    volume(tmp_path / "v.nii.gz", TURNED, (12, 16, 40))
    grid = grid_for("v.nii.gz", tmp_path)
    # RAS (20, -3, 120): second axis (30 - 20) / 2 = 5, third (-3 + 10) / 0.5 = 14, first (120 - 100) / 4 = 5
    wanted = (5.5 - 0.5, 5.5 - 1, 14.5 - 4, 5.5 + 0.5, 5.5 + 1, 14.5 + 4)
    assert to_voxels(ball((20, -3, 120), 2), grid, "ras", ball=True) == pytest.approx(wanted)
    assert to_voxels(ball((-20, 3, 120), 2), grid, "lps", ball=True) == pytest.approx(wanted)
    assert grid.extent == (12, 16, 40)


def test_a_tilted_grid_enlarges_a_box_in_mm_and_no_ball(tmp_path: Path) -> None:
    volume(tmp_path / "v.nii.gz", TILTED, (20, 20, 10))
    grid = grid_for("v.nii.gz", tmp_path)
    middle = (0.0, 10 / TILT, 5.0)  # voxel (10, 10, 5)
    assert to_voxels(ball(middle, 2), grid, "ras", ball=True) == pytest.approx((8.5, 8.5, 3.5, 12.5, 12.5, 7.5))
    reach = 2 * 2 * TILT
    wanted = (10.5 - reach, 10.5 - reach, 3.5, 10.5 + reach, 10.5 + reach, 7.5)
    assert to_voxels(ball(middle, 2), grid, "ras") == pytest.approx(wanted)


def test_voxels_with_a_diameter_in_mm(tmp_path: Path) -> None:
    volume(tmp_path / "v.nii.gz", TURNED, (12, 16, 40))
    grid = grid_for("v.nii.gz", tmp_path)
    assert to_voxels(ball((5, 6, 14), 4), grid, ball=True, sizes_mm=True) == pytest.approx((4, 4, 6, 6, 8, 22))


def test_what_lies_outside_is_cut_off_and_a_flat_box_is_no_box_of_a_volume(tmp_path: Path) -> None:
    volume(tmp_path / "v.nii.gz", LPS)
    picture(tmp_path / "p.png")
    grid = grid_for("v.nii.gz", tmp_path)
    assert clipped((-2, 3, 8, 5, 9, 12), grid) == (0, 3, 8, 5, 9, 10)
    assert clipped((3, 3, 10, 5, 9, 12), grid) is None
    with pytest.raises(DataError, match="two axes"):
        to_voxels((1, 2, 3, 4), grid)
    with pytest.raises(DataError, match="where it lies"):
        to_voxels((1, 2, 3, 4, 5, 6), grid_for("p.png", tmp_path), "lps")
    assert to_voxels((0.25, 0.5, 0.75, 1), grid_for("p.png", tmp_path), "fractions") == (4, 6, 12, 12)


def best(root: Path, request: str = "Find nodules with boxes on CT") -> Proposal:
    return propose(survey(root), Ask("detection", request, boxes=True))[0]


def boxes(root: Path, one: Proposal, work: Path) -> list[BoxLabel]:
    made = execute(one.spec, root, name="set", work=work)
    records = sorted((*made.train, *made.test), key=lambda record: str(record.image))
    return [box for record in records for box in record.boxes or ()]


def test_balls_in_mm_are_told_by_the_images_and_candidates_are_no_boxes(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    balls_in_mm(root, Names(), random.Random(0))
    found = best(root)
    assert found.spec.boxes is not None
    assert found.spec.boxes.space == "lps"
    assert any("mm of the patient" in one for one in found.evidence)
    # x (-95 + 100) / 0.5 = 10, y (80 - 76) / 0.5 = 8, z (250 - 240) / 2 = 5; radius 3.5 and 0.875 voxels
    assert boxes(root, found, tmp_path)[0].box == pytest.approx((7, 5, 4.625, 14, 12, 6.375))


def listed(root: Path, header: str, row: str, images: int = 12, affine: np.ndarray = LPS) -> None:
    lines = [header]
    for at in range(images):
        volume(root / f"images/c{at:02d}.nii.gz", affine)
        lines.append(f"c{at:02d},{row}")
    (root / "boxes.csv").write_text("\n".join(lines))


def test_a_middle_with_sizes_is_no_corner(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    listed(root, "case,center_x,center_y,center_z,width,height,depth", "10,9,5,4,6,2")
    found = best(root)
    assert sufficient([found]) == ""
    assert {box.box for box in boxes(root, found, tmp_path)} == {(8, 6, 4, 12, 12, 6)}


def test_voxels_that_are_mm_too_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    affine = np.array([[-0.8, 0, 0, 0], [0, -0.8, 0, 0], [0, 0, 2.0, 0]])
    listed(root, "case,x,y,z,radius", "9,8,6,2", affine=affine)
    assert "voxels or mm" in sufficient([best(root)])
    (root / "boxes.csv").write_text(
        (root / "boxes.csv").read_text().replace("x,y,z,radius", "x_mm,y_mm,z_mm,radius_mm")
    )
    assert "LPS" not in sufficient([best(root)])
    assert best(root).spec.boxes is not None
    assert best(root).spec.boxes.space == "lps", "to the right and front they would lie outside"


@pytest.mark.parametrize(("step", "asked"), [(1, False), (0.5, True)])
def test_whole_numbers_that_are_no_voxels_as_mm_are_voxels(tmp_path: Path, step: float, asked: bool) -> None:
    """Boxes drawn on voxels were asked about wherever they lay in the image as mm too."""
    root = tmp_path / "raw"
    affine = np.array([[-0.8, 0, 0, 0], [0, -0.8, 0, 0], [0, 0, 2.0, 0]])
    listed(root, "case,x_min,y_min,z_min,x_max,y_max,z_max", "0,0,0,1,1,1", affine=affine)
    rows = (root / "boxes.csv").read_text().splitlines()
    for at in range(1, len(rows)):
        x, y = step * (1 + at % 7), step * (2 + at % 5)
        rows[at] = f"{rows[at].split(',')[0]},{x:g},{y:g},2,{x + 5:g},{y + 4:g},4" + ",nodule" * (
            rows[0].count(",") - 6
        )
    (root / "boxes.csv").write_text("\n".join(rows))
    found = best(root)
    assert ("voxels or mm" in sufficient([found])) is asked
    assert found.spec.boxes is not None
    assert found.spec.boxes.space == "pixels"


def test_mm_of_nifti_that_fit_both_ways_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    affine = np.array([[-2.0, 0, 0, 24.0], [0, -2.0, 0, 20.0], [0, 0, 2.0, -300]])
    listed(root, "case,coordX,coordY,coordZ,diameter_mm", "-3,5,-290,4", affine=affine)
    assert "LPS" in sufficient([best(root)])


def test_boxes_that_would_lie_beside_their_images_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    listed(root, "case,x_min,y_min,z_min,x_max,y_max,z_max", "400,300,2,420,330,5")
    assert "beside their images" in sufficient([best(root)])


def test_flat_boxes_of_volumes_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    listed(root, "case,x_min,y_min,x_max,y_max", "4,3,9,8")
    assert "how deep" in sufficient([best(root)])
    with pytest.raises(DataError, match="two axes"):
        boxes(root, best(root), tmp_path)


def test_sizes_in_mm_of_pictures_are_asked_about(tmp_path: Path) -> None:
    rows = ["image,x,y,diameter_mm"]
    for at in range(12):
        picture(tmp_path / f"p{at:02d}.png")
        rows.append(f"p{at:02d}.png,6,5,4")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    assert "how large a pixel is" in sufficient([best(tmp_path)])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"format": "csv_circles", "columns": {"image": "image", "x": "x", "y": "y"}}, "radius or diameter"),
        ({"format": "csv_boxes", "columns": {"image": "image", "x": "x", "y": "y"}}, "width"),
        ({"format": "csv_lists", "columns": {"image": "image"}}, "corners or sides or centres"),
        ({"format": "csv_circles", "columns": {"image": "image", "x": "x", "y": "y", "radius": "r"}}, "no column 'r'"),
        ({"format": "aperio", "columns": {}}, "cannot be read as aperio"),
    ],
)
def test_what_a_format_lacks_is_named(tmp_path: Path, spec: dict[str, object], said: str) -> None:
    root = tmp_path / "raw"
    rows = ["image,x,y"]
    for at in range(6):
        picture(root / f"p{at}.png")
        rows.append(f"p{at}.png,3,4")
    (root / "t.csv").write_text("\n".join(rows))
    part = {**spec, "files": {"pattern": "t.csv"}, "classes": {"finding": []}}
    with pytest.raises(DataError, match=said):
        read(root, tmp_path, task="detection", images={"files": {"pattern": "*.png"}}, boxes=part)


@pytest.mark.parametrize(("labels", "asked"), [("01", True), ("00", True), ("12", False)])
def test_nought_may_be_a_class_or_say_that_nothing_is_there(tmp_path: Path, labels: str, asked: bool) -> None:
    rows = ["image,x1,y1,x2,y2,label"]
    for at in range(14):
        picture(tmp_path / f"p{at:02d}.png")
        rows.append(f"p{at:02d}.png,3,4,12,11,{labels[at % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    assert ("says that nothing is there" in sufficient([best(tmp_path)])) is asked


def test_cells_without_a_box_are_healthy_images(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    rows = ["image;bbox"]
    for at in range(12):
        picture(root / f"p{at:02d}.png")
        rows.append(f"p{at:02d}.png;{'[]' if at % 3 == 0 else '[[3, 4, 14, 11], [10, 5, 16, 12]]'}")
    (root / "t.csv").write_text("\n".join(rows))
    found = best(root)
    assert sufficient([found]) == ""
    made = execute(found.spec, root, name="set", work=tmp_path)
    assert sorted(len(one.boxes or ()) for one in (*made.train, *made.test)) == [0] * 4 + [2] * 8


def test_coco_files_without_boxes_are_no_reading_of_boxes(tmp_path: Path) -> None:
    images = [{"id": at, "file_name": f"p{at:02d}.png", "width": 16, "height": 12} for at in range(12)]
    for one in images:
        picture(tmp_path / str(one["file_name"]))
    marks = [{"id": at, "image_id": at, "category_id": 1, "bbox": []} for at in range(12)]
    kinds = [{"id": 1, "name": "cyst"}]
    (tmp_path / "c.json").write_text(json.dumps({"images": images, "annotations": marks, "categories": kinds}))
    assert propose(survey(tmp_path), Ask("detection", "Find cysts with boxes on CT", boxes=True)) == []


def test_a_reading_whose_classes_are_not_those_of_the_files_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(6):
        picture(root / f"p{at}.png")
        (root / f"p{at}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    part = {"format": "yolo", "files": {"pattern": "*.txt"}, "classes": {"cell": ["cell"]}, "image": "{stem}"}
    with pytest.raises(DataError, match=r"none is left .* call their classes 0; boxes.classes has cell"):
        read(root, tmp_path, task="detection", images={"files": {"pattern": "*.png"}}, boxes=part)


def test_files_that_start_anew_in_every_part_stay_with_their_images(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for part in ("train", "test"):
        for at in range(8):
            picture(root / part / "images" / f"{at:03d}.png")
            file = root / part / "labels" / f"{at:03d}.txt"
            file.parent.mkdir(exist_ok=True)
            if (part, at) != ("test", 2):
                file.write_text(f"0 0.5 0.5 {'0.25 0.5' if part == 'train' else '0.5 0.25'}\n")
    found = best(root)
    assert sufficient([found]) == ""
    made = execute(found.spec, root, name="set", work=tmp_path)
    by_part = {
        part: [
            box.box
            for record in (*made.train, *made.test)
            if f"/{part}/" in str(record.image)
            for box in record.boxes or ()
        ]
        for part in ("train", "test")
    }
    assert by_part == {"train": [(6, 3, 10, 9)] * 8, "test": [(4, 4.5, 12, 7.5)] * 7}


def test_boxes_of_several_readers_and_images_without_rows_are_told(tmp_path: Path) -> None:
    rows = ["image_id,class_name,rad_id,x_min,y_min,x_max,y_max"]
    for at in range(24):
        picture(tmp_path / f"train/{at:04d}a.png")
        marks = ("Nodule", "3,4,12,11") if at % 2 else ("No finding", ",,,")
        rows += [f"{at:04d}a,{marks[0]},R{reader},{marks[1]}" for reader in (8, 9, 10)] if at < 22 else []
    (tmp_path / "train.csv").write_text("\n".join(rows))
    found = best(tmp_path)
    assert found.spec.boxes is not None
    assert list(found.spec.boxes.classes) == ["Nodule"]
    assert any("22 of 33 boxes lie on another one of their class" in one for one in found.doubts)
    assert any("2 images that no annotation names are healthy or were not looked at" in one for one in found.doubts)


def test_four_numbers_that_may_be_corners_or_sizes_are_asked_about(tmp_path: Path) -> None:
    rows = [{"file": f"p{at:02d}.png", "boxes": [[1, 2, 5, 6]]} for at in range(12)]
    for row in rows:
        picture(tmp_path / str(row["file"]))
    (tmp_path / "boxes.json").write_text(json.dumps(rows))
    assert "two corners" in sufficient([best(tmp_path)])
    (tmp_path / "boxes.json").write_text(json.dumps([{**row, "boxes": [[1, 2, 16, 12]]} for row in rows]))
    assert best(tmp_path).unclear == ""


def test_outlines_and_ellipses_of_cvat_are_boxed_in(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    one_document(root, Names(), random.Random(0))
    found = best(root, "Find cysts and stones with boxes on CT slices")
    assert {box.box for box in boxes(root, found, tmp_path)} == {(3, 4, 14.5, 12.5)}
