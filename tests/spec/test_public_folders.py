"""Folders as public data sets come in: objects numbered in masks, parts named beside what they hold, sides, grades, flags."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from layout_kit_known import marks, volume
from PIL import Image
from spec_kit import mask, picture

from m3b.data.spec.proposals import Ask, Proposal, propose, sufficient
from m3b.data.survey import survey


def best(root: Path, task: str, request: str) -> Proposal:
    found = propose(survey(root), Ask(task, request))
    assert sufficient(found) == ""
    return found[0]


def objects_numbered(file: Path, count: int) -> None:
    """Squares that lie apart, each with a number of its own."""
    array = np.zeros((48, 48), np.uint8)
    for at in range(count):
        row, column = divmod(at, 3)
        array[row * 20 + 4 : row * 20 + 14, column * 15 + 2 : column * 15 + 12] = at + 1
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(file)


def test_values_that_count_objects_are_one_class(tmp_path: Path) -> None:
    for at in range(18):
        picture(tmp_path / f"train_{at}.bmp", 90, (48, 48))
        objects_numbered(tmp_path / f"train_{at}_anno.bmp", 1 + at % 6)
    found = best(tmp_path, "segmentation", "Segment glands in colon histology")
    assert found.spec.masks is not None
    assert (found.spec.masks.classes, found.spec.masks.cut) == ({"glands": 1}, 0.5)
    assert any("values count the objects of an image, " in line for line in found.evidence)


@pytest.mark.parametrize("request_", ["Segment liver, spleen and kidneys on CT", "Segment abdominal organs on CT"])
def test_structures_that_every_case_has_stay_classes(tmp_path: Path, request_: str) -> None:
    for at in range(18):
        picture(tmp_path / f"train_{at}.bmp", 90, (48, 48))
        objects_numbered(tmp_path / f"train_{at}_anno.bmp", 5 if at else 4)  # one of them is missing once
    found = propose(survey(tmp_path), Ask("segmentation", request_))[0]
    assert found.spec.masks is not None
    assert len(found.spec.masks.classes) == 5


def test_parts_named_beside_what_they_hold_are_a_split_and_no_classes(tmp_path: Path) -> None:
    for part, count in (("trainval", 18), ("test", 8)):
        for at in range(count):
            picture(tmp_path / f"{part}-image/{at:04d}.png")
            mask(tmp_path / f"{part}-mask/{at:04d}.png", (at % 5, at % 9, at % 5 + 6, at % 9 + 5))
    found = best(tmp_path, "segmentation", "Segment thyroid nodules on ultrasound")
    assert found.spec.masks is not None
    assert list(found.spec.masks.classes) == ["thyroid nodules"]
    assert (found.spec.split.train, found.spec.split.test) == (("trainval-image",), ("test-image",))


def test_masks_of_both_sides_are_united_where_no_side_is_asked_for(tmp_path: Path) -> None:
    for at in range(16):
        name = f"CXR_{at:04d}_{at % 2}.png"
        picture(tmp_path / "films" / name)
        mask(tmp_path / "ManualMask/leftMask" / name, (2, 1, 6 + at % 4, 6))
        mask(tmp_path / "ManualMask/rightMask" / name, (2, 9, 7 + at % 3, 14))
    found = best(tmp_path, "segmentation", "Segment the lungs on chest X-rays")
    assert found.spec.masks is not None
    assert (found.spec.masks.combine, list(found.spec.masks.classes)) == ("union", ["lungs"])


@pytest.mark.parametrize(
    "request_", ["Classify the severity of COVID-19 on CT from CT-0 to CT-3", "Grade severity, CT-0 to 3"]
)
def test_numbered_folders_are_grades_where_the_request_runs_from_the_first_to_the_last(
    tmp_path: Path, request_: str
) -> None:
    for at in range(24):
        volume(tmp_path / f"studies/CT-{at % 4}/study_{at:04d}.nii.gz")
    found = best(tmp_path, "diagnosis", request_)
    assert found.spec.labels is not None
    assert list(found.spec.labels.classes) == ["0", "1", "2", "3"]


def test_numbered_folders_of_which_a_request_says_nothing_are_no_grades(tmp_path: Path) -> None:
    for at in range(24):
        volume(tmp_path / f"studies/CT-{at % 4}/study_{at:04d}.nii.gz")
    assert sufficient(propose(survey(tmp_path), Ask("diagnosis", "Tell COVID-19 from healthy lungs"))) != ""


def test_boxes_of_a_column_that_says_yes_are_what_is_asked_for(tmp_path: Path) -> None:
    rows = ["patientId,x,y,width,height,Target"]
    for at in range(24):
        picture(tmp_path / f"films/a{at:02d}f.png", 90, (40, 40))
        rows.append(f"a{at:02d}f,{3 + at % 9}.0,4.0,12.0,14.0,1" if at % 2 else f"a{at:02d}f,,,,,0")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    found = propose(survey(tmp_path), Ask("detection", "Find pneumonia on chest X-rays, with boxes"))[0]
    assert found.spec.boxes is not None
    assert found.spec.boxes.classes == {"pneumonia": ("1",)}
    assert "1 is pneumonia" in found.evidence


def test_the_same_classes_cut_short_in_names_are_no_second_reading(tmp_path: Path) -> None:
    rows = ["file,finding"]
    for at in range(30):
        label = ("normal", "pneumonia", "COVID-19")[at % 3]
        picture(tmp_path / f"films/{label[:3]}-{at}.png", 60 + 20 * (at % 3))
        rows.append(f"{label[:3]}-{at}.png,{label}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    found = best(tmp_path, "diagnosis", "Detect COVID-19, pneumonia or normal on chest X-rays")
    assert found.spec.labels is not None
    assert set(found.spec.labels.classes) == {"normal", "pneumonia", "COVID-19"}


def test_values_that_nothing_names_are_asked_about_where_several_structures_are(tmp_path: Path) -> None:
    for at in range(12):
        volume(tmp_path / f"img/img{at:04d}.nii.gz")
        marks(tmp_path / f"label/label{at:04d}.nii.gz", (1, 2, 3, 6))
    found = propose(survey(tmp_path), Ask("segmentation", "Segment spleen and liver on CT"))
    assert "of the masks are spleen and liver: nothing says" in sufficient(found)
    named = "Segment spleen (1), right kidney (2), left kidney (3) and liver (6) on CT"
    assert sufficient(propose(survey(tmp_path), Ask("segmentation", named))) == ""


def test_a_numbered_word_of_names_is_no_finding(tmp_path: Path) -> None:
    for at in range(40):
        picture(tmp_path / f"patches/patient_{at // 8:03d}_node_{at % 2}/patch_{at:03d}_node_{at % 2}.png")
    asked = propose(survey(tmp_path), Ask("diagnosis", "Tell tumour from normal lymph node patches"))
    assert sufficient(asked) != ""


def test_boxes_without_a_class_are_asked_about_where_several_things_are_looked_for(tmp_path: Path) -> None:
    images, boxes = [], []
    for at in range(20):
        picture(tmp_path / f"xrays/train_{at}.png", 90, (24, 30))
        images.append({"id": at + 1, "file_name": f"train_{at}.png", "width": 30, "height": 24})
        boxes.append({"id": at, "image_id": at + 1, "category_id_1": at % 4, "bbox": [3.0, 4.0, 8.0, 9.0]})
    kinds = [{"id": 0, "name": "caries"}, {"id": 1, "name": "impacted"}]
    made = {"images": images, "annotations": boxes, "categories_1": kinds}
    (tmp_path / "train.json").write_text(json.dumps(made))
    asked = Ask("detection", "Find caries and impacted teeth, with boxes", boxes=True)
    assert "none has a class" in sufficient(propose(survey(tmp_path), asked))


def test_masks_beside_that_nothing_pairs_are_asked_about(tmp_path: Path) -> None:
    for at in range(9):
        picture(tmp_path / f"cells/01/t{at:03d}.png", 90, (48, 48))
        objects_numbered(tmp_path / f"cells/01_GT/TRA/man_track{at:03d}.png", 4)
        objects_numbered(tmp_path / f"cells/01_ST/SEG/man_seg{at:03d}.png", 4)
        if at % 2:
            objects_numbered(tmp_path / f"cells/01_GT/SEG/man_seg{at:03d}.png", 4)
    assert sufficient(propose(survey(tmp_path), Ask("segmentation", "Segment cells on microscopy"))) != ""


def test_shades_of_one_colour_are_asked_about(tmp_path: Path) -> None:
    for at in range(12):
        picture(tmp_path / f"images/{at:02d}.png", 90, (48, 48))
        shades = np.zeros((48, 48, 3), np.uint8)
        for count in range(2 + at % 5):
            shades[count * 7 : count * 7 + 5, 4 + at : 14 + at, 0] = count + 1
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray(shades).save(tmp_path / f"masks/{at:02d}.png")
    assert "shades" in sufficient(propose(survey(tmp_path), Ask("segmentation", "Segment nuclei on microscopy")))


def test_a_column_that_says_the_same_of_all_is_no_finding(tmp_path: Path) -> None:
    rows = ["file,study_number,fracture_visible"]
    for at in range(24):
        picture(tmp_path / f"images_part{1 + at % 2}/wrist_{at:03d}.png")
        rows.append(f"wrist_{at:03d}.png,1,{'' if at % 3 else 1}")
    (tmp_path / "dataset.csv").write_text("\n".join(rows))
    asked = Ask("diagnosis", "Tell fracture visible from not on wrist X-rays")
    assert sufficient(propose(survey(tmp_path), asked)) != ""
