"""What keeps a reading from being proposed, and what is only stated, on small folders: one test a code."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_mask, write_picture, write_rows
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from m3b.dataset.proposals.outcome import Outcome


def write_table(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def write_colour(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (40, 48, 3)).astype(np.uint8)).save(path)


def doubt_codes(outcome: Outcome) -> list[str]:
    return [doubt.code for doubt in outcome.proposals[0].doubts]


def why(outcome: Outcome) -> str:
    """Return the code of a question or refusal."""
    reason = outcome.question or outcome.refusal
    return reason.code if reason else ""


def test_a_requested_class_that_the_folder_lacks(tmp_path: Path) -> None:
    for number in range(40):
        write_picture(tmp_path / ("cyst", "nodule")[number % 2] / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Classify breast ultrasound images as cyst, nodule and abscess")
    assert outcome.kind != "proposed"
    assert why(outcome) == "fewer_classes"


def test_classes_that_are_not_requested_are_left_out(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / ("cyst", "nodule", "abscess")[number % 3] / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Classify breast ultrasound images as cyst or nodule")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"cyst": 20, "nodule": 20}
    assert "classes_left_out" in [evidence.code for evidence in outcome.proposals[0].evidence]


def test_all_others_are_one_class(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    for number in range(60):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        rows.append(
            [f"{number:03d}.png", ("influenza", "pneumonia", "tuberculosis", "influenza, pneumonia")[number % 4]]
        )
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Tell influenza from other findings on chest X-rays")
    assert outcome.kind == "proposed"
    assert list(outcome.proposals[0].classes.values()) == [30, 30]


def test_images_without_a_label_that_nothing_explains(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(60):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        if number % 7:
            rows.append([f"{number:03d}.png", ("cyst", "nodule")[(number // 5) % 2]])
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert outcome.kind == "ask"
    assert "unexplained_exclusions" in doubt_codes(outcome)


def test_a_folder_of_unlabelled_images_is_explained(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(60):
        place = "unlabelled" if number % 6 == 0 else "labelled"
        write_picture(tmp_path / place / f"{number:03d}.png", number)
        if place == "labelled":
            rows.append([f"{number:03d}.png", ("cyst", "nodule")[(number // 5) % 2]])
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert "unexplained_exclusions" not in doubt_codes(outcome)


def test_masks_of_another_size(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"case{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"case{number:02d}.png", number, size=(30, 36))
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images")
    assert outcome.kind == "ask"
    assert why(outcome) == "mask_size_differs"


def test_masks_with_rows_and_columns_exchanged(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"case{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"case{number:02d}.png", number, size=(48, 40))
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images")
    assert outcome.kind == "ask"
    assert {"turned_pixels", "mask_size_differs"} & set(doubt_codes(outcome))


def test_groups_of_names_that_cross_the_own_split_are_counted(tmp_path: Path) -> None:
    for number in range(60):
        part = "test" if number % 4 == 0 else "train"
        name = f"eye_{number // 3:03d}_{number % 3}.png"
        write_picture(tmp_path / part / ("cyst", "nodule")[(number // 3) % 2] / name, number)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert outcome.proposals[0].manifest.split.value is not None
    crossing = [doubt for doubt in outcome.proposals[0].doubts if doubt.code == "groups_cross_split"]
    assert len(crossing) == 1
    assert any(number in crossing[0].message for number in ("15", "20"))


def test_copies_of_an_image_stay_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(60):
        name = f"lesion_{number // 3:03d}.rf.{rng.bytes(12).hex()}.png"
        write_picture(tmp_path / ("cyst", "nodule")[(number // 3) % 2] / name, number)
    manifest = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule").proposals[0].manifest
    assert manifest.patient is not None or manifest.together


def test_stains_of_a_field_stay_together_where_some_are_missing(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "count"]]
    for number in range(60):
        field, stain = (number, 1) if number < 40 else (number - 40, 2)
        name = f"s{field:02d}_w{stain}.png"
        write_picture(tmp_path / name, number)
        rows.append([name, 3 + field * 7 % 29])
    write_rows(tmp_path / "counts.csv", rows)
    outcome = decide_folder(tmp_path, "Count the cells in fluorescence microscopy images")
    assert outcome.kind == "proposed"
    assert [source.value for source in outcome.proposals[0].manifest.together] == ["{number1}"]


def test_the_second_half_of_a_request_is_named(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"case{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"case{number:02d}.png", number)
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images and classify their type")
    assert "part_of_request_not_served" in doubt_codes(outcome)


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        ("Write a poem about the sea", "task_unclear"),
        ("Schreibe ein Gedicht über den Herbst", "task_unclear"),
        ("Tell me a joke", "no_targets"),
        ("Segment the liver on CT", "request_contradicted"),
        ("Segment surgical instruments", "request_contradicted"),
        ("Segment adversarial attacks", "request_contradicted"),
    ],
)
def test_a_request_that_the_folder_contradicts(tmp_path: Path, request_text: str, code: str) -> None:
    for number in range(30):
        write_colour(tmp_path / "images" / f"polyp_{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"polyp_{number:02d}.png", number)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind != "proposed"
    assert code in (why(outcome), *(doubt_codes(outcome) if outcome.proposals else ()))


def test_what_nothing_confirms_is_an_assumption(tmp_path: Path) -> None:
    for number in range(30):
        write_colour(tmp_path / "images" / f"{number:02d}.png", number)
        write_mask(tmp_path / "masks" / f"{number:02d}.png", number)
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images")
    assert outcome.kind == "proposed"
    assert {assumption.kind for assumption in outcome.assumptions} >= {"modality", "target"}


def test_two_readings_of_radiographs_take_the_pictures(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / "ABC"[number % 3] / f"{1000 + number // 2}{'LR'[number % 2]}.png", number)
    outcome = decide_folder(tmp_path, "Classify knee osteoarthritis on knee X-rays")
    assert outcome.proposals[0].cases == 60


def test_labels_of_other_images_are_the_reason_of_a_refusal(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    for number in range(40):
        write_picture(tmp_path / "images" / f"scan_{number:03d}.png", number)
        rows.append([f"x{9000 + 7 * number}q.png", ("cyst", "nodule")[number % 2]])
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert outcome.kind == "refuse"
    assert why(outcome) == "targets_unmatched"


def write_dicom(path: Path, seed: int, modality: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 900, (24, 28)).astype(np.uint16)
    image = Dataset()
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image.SOPClassUID, image.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", generate_uid()
    image.Modality, image.PatientID = modality, f"P{seed:03d}"
    image.Rows, image.Columns = pixels.shape
    image.SamplesPerPixel, image.PhotometricInterpretation = 1, "MONOCHROME2"
    image.BitsAllocated = image.BitsStored = 16
    image.HighBit, image.PixelRepresentation = 15, 0
    image.PixelData = pixels.tobytes()
    image.save_as(path, enforce_file_format=True)


def test_images_of_another_modality_are_left_out(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    for number in range(60):
        write_dicom(tmp_path / "images" / f"scan_{number:03d}.dcm", number, ("CT", "MR")[number % 2])
        rows.append([f"scan_{number:03d}", ("cyst", "nodule")[(number // 2) % 2]])
    write_table(tmp_path / "labels.csv", rows)
    best = decide_folder(tmp_path, "Classify CT images as cyst or nodule").proposals[0]
    assert best.cases == 30
    assert [(item.value.value, item.texts) for item in best.manifest.only] == [("{tag.Modality}", ("CT",))]
    assert decide_folder(tmp_path, "Classify the images as cyst or nodule").proposals[0].cases == 60


def test_only_the_requested_boxes_are_taken(tmp_path: Path) -> None:
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for number in range(40):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        images.append({"id": number, "file_name": f"{number:03d}.png", "width": 48, "height": 40})
        for category in (1, 2):
            box = [4 * category, 5, 9, 8]
            annotations.append({"id": len(annotations), "image_id": number, "category_id": category, "bbox": box})
    categories = [{"id": 1, "name": "polyp"}, {"id": 2, "name": "forceps"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "instances.json").write_text(json.dumps(content))
    boxes = decide_folder(tmp_path, "Detect polyps with boxes").proposals[0].manifest.boxes
    assert boxes is not None
    assert list(boxes.classes) == ["polyp"]


def test_boxes_that_were_drawn_on_images_of_another_size(tmp_path: Path) -> None:
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for number in range(20):
        write_picture(tmp_path / "views" / f"{number:03d}.png", number)
        images.append({"id": number, "file_name": f"{number:03d}.jpg", "width": 96, "height": 80})
        annotations.append({"id": number, "image_id": number, "category_id": 1, "bbox": [4, 5, 9, 8]})
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "polyp"}]}
    (tmp_path / "instances.json").write_text(json.dumps(content))
    outcome = decide_folder(tmp_path, "Detect polyps with boxes")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "mask_size_differs"


def test_previews_in_place_of_missing_images(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    for number in range(100):
        if number % 5 == 0:
            write_picture(tmp_path / "previews" / f"{number:03d}.png", number)
        rows.append([f"{number:03d}.png", ("cyst", "nodule")[(number // 5) % 2]])
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert outcome.kind != "proposed"
    assert "images_missing" in doubt_codes(outcome)


def test_a_few_folders_of_pictures_are_no_volumes(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / ("cyst", "nodule")[number // 30] / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"cyst": 30, "nodule": 30}
