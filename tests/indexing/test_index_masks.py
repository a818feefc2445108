"""build_index.py on masks: which belongs to which image, what their values are called, and what is left out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mask_kit import mask, picture, values, volume

PAIR = ("--images", "data/x/images", "--masks", "data/x/masks")


@pytest.mark.parametrize(
    ("image", "truth"),
    [
        ("images/c{}.png", "masks/c{}.png"),
        ("images/c{}.png", "masks/c{}_mask.png"),
        ("images/c{}_0000.png", "masks/c{}.png"),
        ("images/img{}.png", "masks/label{}.png"),
        ("images/train/c{}.png", "masks/train/c{}-label.png"),
        ("images/x_{}_t1.png", "masks/gold_{}.png"),
        ("images/{}_test.png", "masks/{}_manual1.png"),
    ],
)
def test_pairs_by_their_names(desk: Any, image: str, truth: str) -> None:
    for at in range(10, 20):
        picture(desk, image.format(at))
        mask(desk, truth.format(at), 1, 2)
    built = desk.build(*PAIR, "--values", "1=liver,2=tumour")
    assert len(built.all) == 10
    for record in built.all:
        number = Path(str(record["image_path"])).stem.replace("_0000", "").replace("_t1", "").replace("_test", "")[-2:]
        assert number in Path(str(record["mask_path"])).name
        assert set(record) == {"image_path", "mask_path", "patient"}
    assert values(built, desk) == {"liver": 1, "tumour": 2}
    assert len(built.test) == 2
    assert len({record["patient"] for record in built.all}) == 10


def test_random_names_name_no_patient_and_patterns_may_hold_folders(desk: Any) -> None:
    """Letters and digits of a random name made a patient each, which was said to be known."""
    for at, name in enumerate(("cju0qkwl35piu0993l0dewei2", "cju0qoxqj9q6s0835b43399p4", "cju0qx73cjw570799j4n5cjze")):
        picture(desk, f"images/{name}.png")
        mask(desk, f"masks/{name}.png", 1 + at % 2)
    built = desk.build(*PAIR, "--image", "images/*.png", "--values", "1=polyp,2=scar", "--test-share", "0.5")
    assert len(built.all) == 3
    assert {str(record["patient"])[:8] for record in built.all} == {"unknown-"}
    assert "patient unknown: 3 cases" in built.out


def test_masks_and_images_in_one_folder_a_case(desk: Any) -> None:
    for at in range(6):
        for name, marks in (("flair", ()), ("t1", ()), ("gold_standard", (1,))):
            volume(desk, f"patient{at:02d}/{name}.nii.gz", *marks)
    built = desk.build(
        "--case-folders", "data/x", "--image", "flair*", "--mask", "gold*", "--values", "1=lesion"
    )  # fmt: skip
    assert len(built.all) == 6
    for record in built.all:
        assert record["image_path"] == f"data/x/{record['patient']}/flair.nii.gz"
        assert record["mask_path"] == f"data/x/{record['patient']}/gold_standard.nii.gz"


def test_one_binary_mask_a_class(desk: Any) -> None:
    for at in range(6):
        picture(desk, f"images/c{at}.png")
        mask(desk, f"liver/c{at}.png", 255)
        mask(desk, f"spleen/c{at}.png", *([255] if at % 2 else []))
    built = desk.build(
        "--images", "data/x/images", "--masks", "liver=data/x/liver", "--masks", "spleen=data/x/spleen"
    )  # fmt: skip
    assert values(built, desk) == {"liver": 1, "spleen": 2}
    record = built.by_image["data/x/images/c1.png"]
    assert record["mask_path"] == {"liver": "data/x/liver/c1.png", "spleen": "data/x/spleen/c1.png"}


def test_masks_called_after_their_class(desk: Any) -> None:
    for at in range(6):
        volume(desk, f"s{at}/ct.nii.gz")
        for organ in ("liver", "spleen"):
            volume(desk, f"s{at}/segmentations/{organ}.nii.gz", 1)
    built = desk.build(
        "--case-folders", "data/x", "--image", "ct.nii.gz", "--mask", "*/segmentations/*", "--class-masks"
    )  # fmt: skip
    assert values(built, desk) == {"liver": 1, "spleen": 2}
    assert built.by_image["data/x/s3/ct.nii.gz"]["mask_path"]["spleen"] == "data/x/s3/segmentations/spleen.nii.gz"


def test_dataset_json_of_the_decathlon(desk: Any) -> None:
    listed = []
    for at in range(6):
        volume(desk, f"imagesTr/case_{at}.nii.gz")
        volume(desk, f"labelsTr/case_{at}.nii.gz", 1, 2)
        listed.append({"image": f"./imagesTr/case_{at}.nii.gz", "label": f"./labelsTr/case_{at}.nii.gz"})
    listed.append({"image": "./imagesTr/gone.nii.gz", "label": "./labelsTr/gone.nii.gz"})
    labels = {"0": "background", "1": "anterior", "2": "posterior"}
    desk.write("dataset.json", json.dumps({"labels": labels, "training": listed}))
    built = desk.build("--dataset-json", "data/x/dataset.json")
    assert values(built, desk) == {"anterior": 1, "posterior": 2}
    assert "with both files: 6; without: 1" in built.out


def test_nnunet_with_channels_and_its_own_test_part(desk: Any) -> None:
    for half, count in (("Tr", 6), ("Ts", 2)):
        for at in range(count):
            for channel in range(2):
                picture(desk, f"images{half}/{half}x_{at:03d}_{channel:04d}.png")
            mask(desk, f"labels{half}/{half}x_{at:03d}.png", 3)
    desk.write("dataset.json", json.dumps({"labels": {"background": 0, "tumour": 3}}))
    built = desk.build("--dataset-json", "data/x/dataset.json")
    assert (len(built.train), len(built.test)) == (6, 2)
    assert all(str(record["image_path"]).endswith("_0000.png") for record in built.all)
    assert "split: the data set's own" in built.out


def test_what_does_not_fit_is_left_out_and_counted(desk: Any) -> None:
    for at in range(8):
        picture(desk, f"images/c{at}.png")
        mask(desk, f"masks/c{at}.png", 1, size=(8, 10) if at else (5, 5))
    picture(desk, "images/c9.png")
    mask(desk, "masks/lonely.png", 1)
    desk.write("images/bad.png", "no image")
    mask(desk, "masks/bad.png", 1)
    built = desk.build(*PAIR)
    assert len(built.all) == 7
    assert "without a mask, left out: 1 (e.g. c9.png)" in built.out
    assert "mask does not fit or does not open: 2" in built.out
    assert "5x5, its image 8x10" in built.out
    assert values(built, desk) == {"finding": 1}


def test_images_without_a_mask_can_be_healthy(desk: Any) -> None:
    for at in range(10):
        picture(desk, f"images/c{at}.png")
        if at % 2:
            mask(desk, f"masks/c{at}.png", 255)
    built = desk.build(*PAIR, "--missing-mask", "empty", "--values", "1=lesion")
    assert sum(record["mask_path"] is None for record in built.all) == 5
    assert values(built, desk) == {"lesion": 255}, "the one name is that of the one value"


def test_values_without_names_and_names_without_values(desk: Any) -> None:
    for at in range(8):
        picture(desk, f"images/c{at}.png")
        mask(desk, f"masks/c{at}.png", 1, 28)
    desk.write("labels.json", '["C1", "C2"]')
    built = desk.build(*PAIR, "--values", "data/x/labels.json")
    assert "values without a name count as background: 28 in 8 masks" in built.out
    assert "named values in no mask, left out: 2 C2" in built.out
    assert values(built, desk) == {"C1": 1}
    built = desk.build(*PAIR)
    assert values(built, desk) == {"class_1": 1, "class_28": 28}


def test_float_masks_of_whole_numbers_are_read_and_fractions_are_not(desk: Any) -> None:
    for at in range(8):
        volume(desk, f"images/c{at}.nii.gz")
        volume(desk, f"masks/c{at}.nii.gz", 1.0 if at else 0.5, 20.0, dtype=np.float64)
    built = desk.build(*PAIR, "--values", "1=C1,20=L1")
    assert len(built.all) == 7
    assert "fractions" in built.out


def test_classes_are_chosen_and_merged(desk: Any) -> None:
    for at in range(6):
        volume(desk, f"images/c{at}.nii.gz")
        volume(desk, f"masks/c{at}.nii.gz", 1, 2, 6)
    named = ("--values", "1=left lung,2=right lung,6=liver")
    assert values(desk.build(*PAIR, *named, "--classes", "liver"), desk) == {"liver": 6}
    built = desk.build(*PAIR, *named, "--map", "lung=left lung|right lung")
    assert values(built, desk) == {"lung": 1}
    import nibabel as nib

    written = np.asarray(nib.load(desk.work / str(built.all[0]["mask_path"])).dataobj)
    assert sorted(np.unique(written)) == [0, 1]
    assert int(written.sum()) == 2


def test_few_patients_of_many_classes_do_not_fill_the_test_part(desk: Any) -> None:
    for at in range(20):
        picture(desk, f"images/c{at}.png")
        mask(desk, f"masks/c{at}.png", 1 + at // 2, 11 + at // 2)
    built = desk.build(*PAIR)
    assert 2 <= len(built.test) <= 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--images", "data/x/images"), "Give one of"),
        (("--masks", "data/x/masks"), "Give --images too"),
        (("--images", "data/x/images", "--masks", "data/x/gone"), "There is no data/x/gone"),
        (("--images", "data/x/images", "--masks", "data/x/other"), "No mask belongs to an image"),
        ((*PAIR, "--mask", "*.nii"), "No file below data/x/masks fits '*.nii'"),
        (("--images", "data/x/images", "--masks", "data/x/other"), "3 images, such as c0.png"),
        (("--images", "data/x/images", "--masks", "data/x/other"), "1 masks, such as none.png"),
        (
            ("--images", "data/x/images", "--masks", "data/x/several"),
            "'1' is the same first number of 1 images and 2 masks",
        ),
        ((*PAIR, "--values", "a=1"), "is no whole number"),
        ((*PAIR, "--classes", "heart"), "there is no class heart"),
        (("--case-folders", "data/x", "--image", "*.png"), "Give --mask too"),
    ],
)
def test_what_cannot_be_read_is_said(desk: Any, options: tuple[str, ...], told: str) -> None:
    for at in range(3):
        picture(desk, f"images/c{at}.png")
        mask(desk, f"masks/c{at}.png", 1)
        mask(desk, "other/none.png", 1)
        mask(desk, f"several/nucleus1_{at}.png", 1) if at else None
    assert told in desk.fail(*options)


def test_all_masks_empty(desk: Any) -> None:
    for at in range(3):
        picture(desk, f"images/c{at}.png")
        mask(desk, f"masks/c{at}.png")
    assert "All masks are empty" in desk.fail(*PAIR)
