"""What keeps a reading from being proposed, and what is only stated, on small folders: one test a code."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_mask, write_picture, write_rows
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from m3b.dataset.manifest.execute import execute
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.survey.walk import walk


def write_table(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def write_colour(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (40, 48, 3)).astype(np.uint8)).save(path)


def doubt_codes(outcome: Outcome) -> list[str]:
    return [doubt.code for doubt in outcome.proposals[0].doubts]


def code_of(outcome: Outcome) -> str:
    """Return the code of a question or refusal."""
    reason = outcome.question or outcome.refusal
    return reason.code if reason else ""


def test_a_requested_class_that_the_folder_lacks(tmp_path: Path) -> None:
    for number in range(40):
        write_picture(tmp_path / ("cyst", "nodule")[number % 2] / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Classify breast ultrasound images as cyst, nodule and abscess")
    assert outcome.kind != "proposed"
    assert code_of(outcome) == "fewer_classes"


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


@pytest.mark.parametrize(
    ("names_of_other_rows", "is_blank", "code"),
    [
        ((), False, "images_without_target"),
        ((), True, "images_without_target"),
        (("a7.png", "b7.png", "c7.png", "d7.png", "e7.png"), False, "unexplained_exclusions"),
    ],
)
def test_images_without_a_label(
    tmp_path: Path, names_of_other_rows: tuple[str, ...], is_blank: bool, code: str
) -> None:
    rows: list[list[object]] = [["image", "label"]]
    rows += [[name, "cyst"] for name in names_of_other_rows]
    for number in range(60):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        if number % 7 or is_blank:
            rows.append([f"{number:03d}.png", ("cyst", "nodule")[(number // 5) % 2] if number % 7 else ""])
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert [name for name in doubt_codes(outcome) if name in ("images_without_target", "unexplained_exclusions")] == [
        code
    ]
    assert outcome.kind == ("ask" if code == "unexplained_exclusions" else "proposed")
    if outcome.kind == "proposed":
        assert outcome.assumptions[0].kind == "exclusions"
        assert outcome.assumptions[0].message.startswith("9 of 60 ")


def test_most_images_without_a_label_are_asked_about(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label", "sex"]]
    for number in range(90):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
        if number % 7 < 4:
            rows.append([f"{number:03d}.png", ("cyst", "nodule")[(number // 5) % 2], "FM"[number % 2]])
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert (outcome.kind, code_of(outcome)) == ("ask", "unexplained_exclusions")


@pytest.mark.parametrize("n_other", [0, 6])
def test_images_without_a_mask(tmp_path: Path, n_other: int) -> None:
    for number in range(40):
        write_picture(tmp_path / "images" / f"case{number:02d}.png", number)
        if number % 8:
            write_mask(tmp_path / "masks" / f"case{number:02d}.png", number)
    for number in range(n_other):
        write_mask(tmp_path / "masks" / f"case{number + 70}.png", number)
    outcome = decide_folder(tmp_path, "Segment polyps on endoscopy images")
    if n_other:
        assert (outcome.kind, code_of(outcome)) == ("ask", "unexplained_exclusions")
    else:
        assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 35)
        assert outcome.assumptions[0].kind == "exclusions"
        assert outcome.assumptions[0].message.startswith("5 of 40 ")


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
    assert code_of(outcome) == "mask_size_differs"


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


@pytest.mark.parametrize(("n_patients", "is_kept"), [(8, False), (24, True)])
def test_an_own_split_that_divides_all_its_patients_is_drawn_anew(
    tmp_path: Path, n_patients: int, is_kept: bool
) -> None:
    rows: list[list[object]] = [["image", "patient_id", "finding"]]
    for number in range(72):
        part = "test" if number < 24 else "train"
        write_picture(tmp_path / part / f"{number:03d}.png", number)
        patient = number % n_patients if number < 24 or n_patients == 8 else 100 + number // 2
        rows.append([f"{number:03d}.png", f"P{patient:03d}", ("cyst", "nodule")[number // 4 % 2]])
    write_table(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify ultrasound images as cyst or nodule")
    assert outcome.kind == "proposed"
    assert (outcome.proposals[0].manifest.split.value is not None) == is_kept
    assert ("split_divides_patients" in {item.code for item in outcome.proposals[0].evidence}) != is_kept
    assert code_of(outcome) == ""


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
    assert code in (code_of(outcome), *(doubt_codes(outcome) if outcome.proposals else ()))


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
    assert code_of(outcome) == "targets_unmatched"


def test_days_of_dates_are_no_numbers_of_patients_whose_images_are_missing(tmp_path: Path) -> None:
    lists: dict[str, list[str]] = {"training": [], "testing": []}
    images, labels = [["patient_id", "filename"]], [["image", "label"]]
    for number in range(60):
        name = f"20{10 + number % 9}-{1 + number % 12:02d}-{1 + number % 28:02d}_{number + 44:04d}"
        write_picture(tmp_path / "images" / f"{name}.png", number)
        lists["testing" if number % 4 == 3 else "training"].append(name)
        images.append([f"P{number + 1:03d}", f"q{number * 7919 + 99991:06x}"])
        labels.append([images[-1][1], ("cyst", "stone")[number % 2]])
    for part, names in lists.items():
        (tmp_path / f"{part}.txt").write_text("\n".join(names))
    write_table(tmp_path / "cases.csv", images)
    write_table(tmp_path / "labels.csv", labels)
    outcome = decide_folder(tmp_path, "Classify CT images as cyst or stone")
    assert (outcome.kind, code_of(outcome)) == ("refuse", "targets_unmatched")


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


@pytest.mark.parametrize(
    ("alteration", "n_copies"), [("_rot90", 20), ("_flip", 20), ("_aug_3", 20), (" (2)", 0), ("_left", 0)]
)
def test_altered_copies_are_stated_and_stay_with_their_originals(
    tmp_path: Path, alteration: str, n_copies: int
) -> None:
    rng = np.random.default_rng(5)
    for number in range(40):
        folder, stem = ("cyst", "nodule")[number % 2], f"{rng.integers(16**8):08x}"
        write_picture(tmp_path / folder / f"{stem}.png", number)
        if number < 20:
            write_picture(tmp_path / folder / f"{stem}{alteration}.png", 100 + number)
    outcome = decide_folder(tmp_path, "Classify breast ultrasound images as cyst or nodule")
    assert outcome.kind == "proposed"
    statements = [assumption.message for assumption in outcome.assumptions if assumption.kind == "copies"]
    assert len(statements) == bool(n_copies)
    assert all(f"{n_copies} of 60 images" in statement for statement in statements)
    if n_copies:
        manifest, inventory = outcome.proposals[0].manifest, walk(tmp_path)
        index = execute(manifest, inventory, name="data", work=tmp_path, readers=FolderReaders(inventory))
        sides = [
            {Path(str(case.image)).stem.partition(alteration)[0] for case in part} for part in (index.train, index.test)
        ]
        assert not sides[0] & sides[1]


@pytest.mark.parametrize("per_person", [1, 3])
def test_numbers_of_images_that_their_altered_copies_share_are_no_patients(tmp_path: Path, per_person: int) -> None:
    for number in range(60):
        image = f"ISIC_{24306 + number // per_person:07d}" + (f"_{number % per_person}" if per_person > 1 else "")
        folder = tmp_path / ("cyst", "nodule")[number // per_person % 2]
        write_picture(folder / f"{image}.png", number)
        if number % 2:
            write_picture(folder / f"{image}_transformed_0_.png", 100 + number)
    manifest = decide_folder(tmp_path, "Classify breast ultrasound images as cyst or nodule").proposals[0].manifest
    assert (manifest.patient is None) == (per_person == 1)
    assert manifest.together


@pytest.mark.parametrize(
    ("folders", "request_text", "positive"),
    [
        (("abscess", "influenza", "pneumonia"), "Tell influenza from other findings on chest X-rays", "influenza"),
        (("adenoma", "melanoma", "naevus"), "Tell melanoma from all others on dermoscopy images", "melanoma"),
        (("cyst", "nodule", "normal"), "Classify breast ultrasound images as nodule or normal", "nodule"),
    ],
)
def test_the_finding_is_the_second_of_two_classes(
    tmp_path: Path, folders: tuple[str, ...], request_text: str, positive: str
) -> None:
    for number in range(60):
        write_picture(tmp_path / folders[number % 3] / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    labels = outcome.proposals[0].manifest.labels
    assert labels is not None
    assert len(labels.classes) == 2
    assert list(labels.classes)[1] == positive


def test_questions_show_files_and_not_patterns_of_names(tmp_path: Path) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"case_{number:03d}.png", number)
        write_mask(tmp_path / "labels" / f"case_{number:03d}.png", number, (1, 2, 4))
    outcome = decide_folder(tmp_path, "Segment oedema and tumour on brain MRI")
    assert outcome.question is not None
    assert outcome.question.code == "legend_not_applied"
    assert "30 files such as labels/case_000.png" in outcome.question.text
    assert "{" not in outcome.question.text


@pytest.mark.parametrize(
    "note",
    [
        "Rows with `consent` = no MUST NOT be used for model training.",
        "Please exclude all rows with consent: no",
        "Zeilen mit consent = no bitte nicht verwenden.",
        "consent 为 no 的病例请勿用于训练。",
    ],
)
def test_rows_that_notes_forbid_are_left_out(tmp_path: Path, note: str) -> None:
    rows: list[list[object]] = [["image", "condition", "consent"]]
    for number in range(60):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        rows.append([f"{number:03d}.png", ("eczema", "acne")[number % 2], "yes" if number % 5 else "no"])
    write_rows(tmp_path / "labels.csv", rows)
    (tmp_path / "README.txt").write_text(f"Photos of skin.\n{note}\n", encoding="utf-8")
    outcome = decide_folder(tmp_path, "Tell eczema from acne on photos of skin")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"acne": 24, "eczema": 24}


@pytest.mark.parametrize(
    ("note", "column", "bad", "good"),
    [
        ("Quality was good / usable / reject; images rated reject are not to be used.", "quality", "reject", "good"),
        ("Aufnahmen mit starker Unschärfe bitte nicht verwenden.", "bemerkung", "starker Unschärfe", None),
        ("撤回知情同意的病例请勿使用。", "备注", "撤回知情同意", None),
        ("Patients who withdrew consent must not be used.", "consent_withdrawn", "1", "0"),
        ("Patients without consent must not be used.", "consent", "no", "yes"),
        ("Les images avec artefact ne doivent pas être utilisées.", "artefact", "oui", "non"),
        ("Images from the test part must not be used for training.", "part", None, "test"),
        ("Images from site reject may not be shared commercially or used.", "quality", None, "reject"),
    ],
)
def test_rows_are_left_out_by_what_notes_call_unusable(
    tmp_path: Path, note: str, column: str, bad: str | None, good: str | None
) -> None:
    rows: list[list[object]] = [["image", "condition", column]]
    for number in range(60):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        value = bad if number % 5 == 0 and bad else good if number % 4 == 0 or bad else "train"
        rows.append([f"{number:03d}.png", ("eczema", "acne")[number % 2], value])
    write_rows(tmp_path / "labels.csv", rows)
    (tmp_path / "README.txt").write_text(f"Photos of skin.\n{note}\n", encoding="utf-8")
    outcome = decide_folder(tmp_path, "Tell eczema from acne on photos of skin")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == (48 if bad else 60)


@pytest.mark.parametrize(
    ("note", "reader"),
    [
        ("masks_b is the agreed outline and the reference.", "b"),
        ("Als Referenz gelten die Masken in masks_a.", "a"),
        ("Two readers drew masks; use only masks_b.", "b"),
        ("Two readers drew masks.", None),
    ],
)
def test_of_two_readers_the_one_that_notes_call_the_reference_is_taken(
    tmp_path: Path, note: str, reader: str | None
) -> None:
    for number in range(30):
        write_picture(tmp_path / "images" / f"k{number:02d}.png", number)
        for place, name in enumerate("ab"):
            write_mask(tmp_path / f"masks_{name}" / f"k{number:02d}.png", number, shift=place)
    (tmp_path / "README.txt").write_text(f"Ultrasound of kidneys.\n{note}\n", encoding="utf-8")
    outcome = decide_folder(tmp_path, "Segment the kidney on ultrasound")
    assert outcome.kind == ("ask" if reader is None else "proposed")
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert reader is None or f"masks_{reader}" in str(masks.files)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("W{subject:02d}_2021-{month:02d}-{day:02d}.png", "{number1}"),
        ("W{subject:02d}_{day:02d}.{month:02d}.2021.png", "{number1}"),
        ("B21-{subject:04d}-A{block}_x{x}_y{y}.png", "{number1}"),
        ("case{subject:03d}_slice{x:03d}.png", "{number1}"),
        ("2021-{month:02d}-{day:02d}_{subject:02d}.png", None),
        ("x{x}_y{y}_{unique:03d}.png", None),
    ],
)
def test_pictures_that_differ_in_date_or_position_alone_are_of_one_subject(
    tmp_path: Path, name: str, value: str | None
) -> None:
    for number in range(60):
        subject, picture = divmod(number, 5)
        parts = {"month": 1 + picture * 2, "day": 1 + number * 7 % 28, "block": 1 + picture % 2, "x": number * 37 % 97,
                 "y": number * 53 % 89, "unique": number * 29 % 1000}  # fmt: skip
        file = name.format(subject=subject * 3 + 11, **parts)
        write_picture(tmp_path / ("eczema", "acne")[number % 2] / file, number)
    (proposal, *_) = decide_folder(tmp_path, "Tell eczema from acne on photos of skin").proposals
    assert (proposal.manifest.patient.value if proposal.manifest.patient else None) == value


@pytest.mark.parametrize(
    ("note", "encoding", "classes"),
    [
        (
            "良性/恶性以术后病理为准；“待复查”尚无病理结果，请勿用于训练。\n同一患者可有多张图像。\n",
            "gb18030",
            {"良性", "恶性"},
        ),
        ("良性/恶性以术后病理为准。\n", "utf-8", {"良性", "恶性", "待复查"}),
        ("Images of 待复查 must not be shared.\n", "utf-8", {"良性", "恶性", "待复查"}),
    ],
)
def test_classes_that_notes_forbid_are_left_out(tmp_path: Path, note: str, encoding: str, classes: set[str]) -> None:
    for number in range(60):
        write_picture(tmp_path / ("良性", "恶性", "待复查")[number % 3] / f"{number:03d}.png", number)
    (tmp_path / "说明.txt").write_text(note, encoding=encoding)
    outcome = decide_folder(tmp_path, "请训练一个模型，根据超声图像对甲状腺结节进行分类")
    assert set(outcome.proposals[0].classes) == classes


@pytest.mark.parametrize(("is_shuffled", "has_split"), [(True, False), (False, True)])
def test_a_split_of_images_that_divides_most_patients_is_not_kept(
    tmp_path: Path, is_shuffled: bool, has_split: bool
) -> None:
    rows: list[list[object]] = [["image", "patient", "finding", "split"]]
    for number in range(60):
        write_picture(tmp_path / f"images/{number:03d}.png", number)
        is_test = number % 4 == 0 if is_shuffled else number < 15
        rows.append(
            [f"{number:03d}.png", f"P{number // 3:02d}", "xy"[number // 3 % 2] * 3, "test" if is_test else "train"]
        )
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify the finding on skin photos")
    assert outcome.proposals[0].cases == 60
    assert (outcome.proposals[0].manifest.split.value is not None) == has_split


def test_frames_of_several_videos_with_the_same_numbers_are_no_views(tmp_path: Path) -> None:
    rows: list[list[object]] = [["file", "x1", "y1", "x2", "y2", "class"]]
    for number in range(60):
        name = f"video{number // 10}/frame_{number % 10:03d}.png"
        write_picture(tmp_path / name, number)
        rows.append([name, 3, 4, 12 + number % 9, 15, "hook"])
    write_table(tmp_path / "boxes.csv", rows)
    outcome = decide_folder(tmp_path, "Detect the hook on laparoscopic video frames, with boxes")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].manifest.patient is not None
    assert not outcome.proposals[0].manifest.together


@pytest.mark.parametrize("sheet", ["Hinweise", "Info"])
def test_sheets_of_prose_in_a_workbook_are_notes(tmp_path: Path, sheet: str) -> None:
    book = openpyxl.Workbook()
    rows: list[list[object]] = [["Bild", "Befund", "Qualität"]]
    for number in range(60):
        write_picture(tmp_path / f"bilder/{number:03d}.png", number)
        rows.append([f"{number:03d}", ("Fraktur", "unauffällig")[number % 2], "schlecht" if number % 6 == 0 else "gut"])
    for row in rows:
        book.active.append(row)
    notes = book.create_sheet(sheet)
    notes.append(["Aufnahmen des Unterarms, Stand Mai 2022"])
    notes.append(["Bilder mit Qualität schlecht bitte nicht verwenden."])
    book.save(tmp_path / "Befunde.xlsx")
    outcome = decide_folder(tmp_path, "Detect fractures on X-rays of the forearm")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 50
    assert not [item for item in outcome.assumptions if "forearm" in item.message]


@pytest.mark.parametrize(
    ("note", "kind"),
    [
        (
            "Use for research or for the training of algorithms is NOT covered by the consent and is not permitted.",
            "ask",
        ),
        ("Die Nutzung für das Training von Algorithmen ist nicht gestattet.", "ask"),
        ("L'utilisation pour l'entraînement de modèles est interdite.", "ask"),
        ("禁止用于训练模型。", "ask"),
        ("Use for commercial models is not permitted.", "proposed"),
        ("Training of models on the test set is not allowed.", "proposed"),
        ("These data may be used for the training of algorithms.", "proposed"),
    ],
)
def test_notes_that_forbid_training_lead_to_a_question(tmp_path: Path, note: str, kind: str) -> None:
    for number in range(40):
        write_picture(tmp_path / ("eczema", "acne")[number % 2] / f"{number:03d}.png", number)
    (tmp_path / "DATA_USE.txt").write_text(f"Photos of skin.\n{note}\n", encoding="utf-8")
    outcome = decide_folder(tmp_path, "Tell eczema from acne on photos of skin")
    assert outcome.kind == kind
    assert kind == "proposed" or (outcome.question is not None and outcome.question.code == "use_forbidden")


@pytest.mark.parametrize(
    ("request_text", "kind", "classes"),
    [
        ("Segment necrosis, oedema and enhancing tumour", "ask", {"necrosis": (1,), "oedema": (2,), "value 4": (4,)}),
        ("Segment the 4 parts necrosis, oedema and enhancing tumour", "ask", None),
        (
            "Segment necrosis, oedema and enhancing tumour (4)",
            "proposed",
            {"necrosis": (1,), "oedema": (2,), "enhancing tumour": (4,)},
        ),
    ],
)
def test_a_legend_that_names_most_values_leaves_only_the_others_open(
    tmp_path: Path, request_text: str, kind: str, classes: dict[str, tuple[int, ...]] | None
) -> None:
    for number in range(14):
        write_picture(tmp_path / "images" / f"case_{number:02d}.png", number)
        write_mask(tmp_path / "labels" / f"case_{number:02d}.png", number, (1, 2, 4))
    legend = {"labels": {"background": 0, "necrosis": 1, "oedema": 2, "enhancing": 3}}
    (tmp_path / "dataset.json").write_text(json.dumps(legend))
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == kind
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    if classes is not None:
        assert masks.classes == classes
    if outcome.question is not None:
        assert outcome.question.code == "legend_not_applied"
        assert '{"NAME": [4]}' in outcome.question.remedy
