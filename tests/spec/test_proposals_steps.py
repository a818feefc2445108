"""What readings of lists in records, of numbered masks and of several annotation files hold, and what is asked instead."""

from __future__ import annotations

import json
import random
from pathlib import Path

import layout_kit as kit
import numpy as np
import pytest
from layout_kit_steps import lists_in_records, numbered_masks
from PIL import Image
from spec_kit import mask, picture

from m3b.data.spec.execute import Executed, execute
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey

SIDE = 100


def best(root: Path, want: kit.Want, work: Path) -> tuple[Executed, str]:
    found = propose(survey(root), Ask(want.task, want.request, boxes=want.boxes))
    work.mkdir(exist_ok=True)
    return execute(found[0].spec, root, name="set", work=work), sufficient(found)


def of(made: Executed, name: str) -> list[tuple[str, tuple[float, ...]]]:
    one = next(one for one in (*made.train, *made.test) if str(one.image).endswith(name))
    return [(box.label, tuple(box.box)) for box in one.boxes or ()]


def test_boxes_in_lists_of_records_are_those_of_their_image(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    made, why = best(root, lists_in_records(root, kit.Names(), random.Random(0)), tmp_path / "w")
    assert why == ""
    assert of(made, "train_data/102.png") == [("Effusion", (1, 2, 7, 8)), ("Nodule", (9, 3, 12, 9))]
    assert of(made, "train_data/100.png") == []
    assert of(made, "test_data/603.png")[2] == ("Effusion", (14, 4, 19, 12))


def records(root: Path, boxes: list[list[int]], key: str = "boxes") -> None:
    found = []
    for at in range(16):
        picture(root / "images" / f"a{at:02d}.png", 80, (SIDE, SIDE))
        found.append({"image": f"a{at:02d}.png", "labels": ["mass"], key: [boxes[at % len(boxes)]]})
    (root / "boxes.json").write_text(json.dumps(found))


WANT = kit.Want("Find masses on mammograms, with boxes", "detection", 16, boxes=True)


def test_corners_are_told_from_sides_by_what_fits_the_images(tmp_path: Path) -> None:
    records(tmp_path / "a", [[10, 20, 60, 90], [5, 5, 99, 80]])
    made, why = best(tmp_path / "a", WANT, tmp_path / "w")
    assert (of(made, "a00.png"), why) == ([("mass", (10, 20, 60, 90))], "")
    records(tmp_path / "b", [[60, 70, 20, 10], [80, 5, 15, 80]])
    made, why = best(tmp_path / "b", WANT, tmp_path / "v")
    assert (of(made, "a00.png"), why) == ([("mass", (60, 70, 80, 80))], "")


def test_boxes_that_could_be_either_are_asked_about(tmp_path: Path) -> None:
    records(tmp_path / "raw", [[10, 10, 30, 40], [5, 6, 20, 30]])
    assert "two corners" in best(tmp_path / "raw", WANT, tmp_path / "w")[1]
    records(tmp_path / "named", [[10, 10, 30, 40], [5, 6, 20, 30]], "bbox_xywh")
    made, why = best(tmp_path / "named", WANT, tmp_path / "v")
    assert (of(made, "a00.png"), why) == ([("mass", (10, 10, 40, 50))], "")


def test_each_part_of_a_coco_set_has_its_own_boxes(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    made, why = best(root, kit.coco_parts(root, kit.Names(), random.Random(0)), tmp_path / "w")
    assert (why, len(made.test)) == ("", 4)
    assert all(one.boxes for one in (*made.train, *made.test))


def test_images_that_no_annotation_names_are_not_healthy(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    kit.coco_parts(root, kit.Names(), random.Random(0))
    (root / "test.json").unlink()
    made, _ = best(root, kit.Want("Find nodules and masses, with boxes", "detection", 10, boxes=True), tmp_path / "w")
    assert len([*made.train, *made.test]) == 10
    assert made.accounting.to_json()["left_out"]


def test_names_that_two_folders_share_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for part, count in (("train", 12), ("test", 4)):
        images = []
        for at in range(count):
            picture(root / part / f"{at:03d}.png", 80, (SIDE, SIDE))
            images.append({"id": at, "file_name": f"{at:03d}.png", "width": SIDE, "height": SIDE})
        marks = [{"id": at, "image_id": at, "category_id": 1, "bbox": [2 + at, 3, 6, 5]} for at in range(count)]
        kinds = [{"id": 1, "name": "mass"}]
        (root / f"{part}.json").write_text(json.dumps({"images": images, "annotations": marks, "categories": kinds}))
    assert "are called so" in best(root, WANT, tmp_path / "w")[1]


def test_numbered_masks_are_united(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    made, why = best(root, numbered_masks(root, kit.Names(), random.Random(0)), tmp_path / "w")
    assert why == ""
    one = next(one for one in (*made.train, *made.test) if "benign (3)" in str(one.image))
    drawn = np.asarray(Image.open(tmp_path / "w" / str(one.mask))) if str(one.mask).endswith(".png") else None
    if drawn is None:
        import nibabel as nib

        drawn = np.asarray(nib.load(tmp_path / "w" / str(one.mask)).dataobj).squeeze()
    assert sorted(np.unique(drawn)) == [0, 1]
    assert (drawn > 0).sum() == (7 - 3) * (8 - 2) + 4 * 5


@pytest.mark.parametrize("names", [("mask_1", "mask_2"), ("lesion_1", "lesion_2"), ("mask", "mask_1")])
def test_a_second_mask_of_every_image_is_asked_about(tmp_path: Path, names: tuple[str, str]) -> None:
    root = tmp_path / "raw"
    for at in range(12):
        picture(root / f"p{at:02d}.png", 80, (32, 32))
        for shift, name in enumerate(names):
            mask(root / f"p{at:02d}_{name}.png", (at, 3 + shift, at + 5, 9 + at), size=(32, 32))
    assert best(root, kit.Want("Segment lesions on ultrasound", "segmentation", 12), tmp_path / "w")[1]


def test_masks_that_a_word_of_their_names_tells_apart_are_classes(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(12):
        picture(root / f"p{at:02d}.png", 80, (32, 32))
        for shift, name in enumerate(("cup", "disc")):
            mask(root / f"p{at:02d}_{name}.png", (at, 3 + shift, at + 5, 9 + at + shift), size=(32, 32))
    made, why = best(
        root, kit.Want("Segment the optic disc and cup on fundus photographs", "segmentation", 12), tmp_path / "w"
    )
    assert (why, len([*made.train, *made.test]), sorted(made.values)) == ("", 12, ["cup", "disc"])
    masks = made.train[0].mask
    assert isinstance(masks, dict)
    assert all(path.endswith(f"_{name}.png") for name, path in masks.items())


def test_numbers_that_are_shares_of_the_image_are_no_pixels(tmp_path: Path) -> None:
    """They were boxes of less than a pixel in the corner of each image, without a word."""
    root, rows = tmp_path / "raw", ["image,xmin,ymin,xmax,ymax,label"]
    for at in range(16):
        picture(root / "images" / f"a{at:02d}.png", 80, (SIDE, SIDE))
        rows.append(f"a{at:02d}.png,0.1,0.2,0.4,{0.5 + at / 100},mass")
    (root / "boxes.csv").write_text("\n".join(rows))
    made, why = best(root, WANT, tmp_path / "w")
    assert why == ""
    assert of(made, "a00.png") == [("mass", pytest.approx((10, 20, 40, 50)))]


def test_boxes_of_label_studio_are_percent_of_the_image(tmp_path: Path) -> None:
    root, found = tmp_path / "raw", []
    for at in range(16):
        picture(root / "images" / f"a{at:02d}.png", 80, (40, 200))
        value = {"x": 25.0, "y": 50.0, "width": 50.0, "height": 25.0, "rectanglelabels": ["mass"]}
        other = {**value, "x": 10.0, "width": 5.0}
        marks = [{"type": "rectanglelabels", "value": one} for one in (value, other)[: 1 + at % 2]]
        found.append({"id": at, "data": {"image": f"/up/a{at:02d}.png"}, "annotations": [{"result": marks}]})
    (root / "export.json").write_text(json.dumps(found))
    made, why = best(root, kit.Want("Find masses with boxes", "detection", 16, boxes=True), tmp_path / "w")
    assert (set(made.values), why) == ({"mass"}, "")
    own, more = ("mass", (50, 20, 150, 30)), ("mass", (20, 20, 30, 30))
    assert (of(made, "a00.png"), of(made, "a01.png")) == ([own], [own, more])


def test_a_category_without_a_mark_is_no_class(tmp_path: Path) -> None:
    root, images, marks = tmp_path / "raw", [], []
    for at in range(16):
        picture(root / f"a{at:02d}.png", 80, (SIDE, SIDE))
        images.append({"id": at, "file_name": f"a{at:02d}.png", "width": SIDE, "height": SIDE})
        marks.append({"id": at, "image_id": at, "category_id": 1 + at % 2, "bbox": [10, 20, 30, 25]})
    names = [{"id": 0, "name": "cells"}, {"id": 1, "name": "RBC"}, {"id": 2, "name": "WBC"}]
    (root / "_annotations.coco.json").write_text(
        json.dumps({"images": images, "annotations": marks, "categories": names})
    )
    want = kit.Want("Find red and white blood cells (RBC, WBC) with boxes", "detection", 16, boxes=True)
    made, why = best(root, want, tmp_path / "w")
    assert (set(made.values), why) == ({"RBC", "WBC"}, "")


def test_a_document_an_image_names_it_by_its_own_name(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(16):
        picture(root / "images" / f"a{at:02d}.png", 80, (SIDE, SIDE))
        (root / "labels").mkdir(exist_ok=True)
        marks = [{"class": "nodule", "bbox": [60, 70, 90, 95]}]
        (root / "labels" / f"a{at:02d}.json").write_text(json.dumps({"image": f"a{at:02d}.png", "objects": marks}))
    want = kit.Want("Find nodules with boxes on ultrasound", "detection", 16, boxes=True)
    made, why = best(root, want, tmp_path / "w")
    assert (of(made, "a00.png"), why) == ([("nodule", (60, 70, 90, 95))], "")


def test_lists_of_training_validation_and_of_both(tmp_path: Path) -> None:
    root, names = tmp_path / "raw", [f"{at:06d}" for at in range(24)]
    for at, name in enumerate(names):
        picture(root / "JPEGImages" / f"{name}.jpg", 80, (SIDE, SIDE))
        (root / "Annotations").mkdir(exist_ok=True)
        box = "<bndbox><xmin>3</xmin><ymin>4</ymin><xmax>40</xmax><ymax>50</ymax></bndbox>"
        kind = ("tooth", "caries")[at % 2]
        text = f"<annotation><filename>{name}.jpg</filename><object><name>{kind}</name>{box}</object></annotation>"
        (root / "Annotations" / f"{name}.xml").write_text(text)
    (root / "ImageSets/Main").mkdir(parents=True)
    for part, some in (("train", names[:12]), ("val", names[12:18]), ("trainval", names[:18]), ("test", names[18:])):
        (root / "ImageSets/Main" / f"{part}.txt").write_text("\n".join(some))
    want = kit.Want("Find teeth and caries with boxes on dental X-rays", "detection", 24, boxes=True)
    made, why = best(root, want, tmp_path / "w")
    assert (len(made.train), len(made.test), why) == (18, 6, "")


def test_yolo_files_keep_their_boxes_under_the_names_that_a_document_gives(tmp_path: Path) -> None:
    """Names were looked for in files that have numbers: every box was dropped, and each image became healthy."""
    root = tmp_path / "raw"
    for part, count in (("train", 16), ("test", 4)):
        for at in range(count):
            picture(root / part / "images" / f"{part}_{at:02d}.png", 80, (SIDE, SIDE))
            (root / part / "labels").mkdir(exist_ok=True)
            (root / part / "labels" / f"{part}_{at:02d}.txt").write_text(f"{at % 2} 0.5 0.5 0.2 0.4\n")
    (root / "data.yaml").write_text("train: train/images\ntest: test/images\nnc: 2\nnames: ['fracture', 'implant']\n")
    want = kit.Want("Find fractures and implants with boxes on X-rays", "detection", 20, boxes=True)
    made, why = best(root, want, tmp_path / "w")
    assert why == ""
    assert of(made, "train_00.png") == [("fracture", pytest.approx((40, 30, 60, 70)))]
    assert of(made, "train_01.png") == [("implant", pytest.approx((40, 30, 60, 70)))]
