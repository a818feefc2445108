"""Where labels, numbers and reports of images come from: headers, small files, several rows, arrays, archives."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from proposals_kit import decide_folder, list_targets, write_dicom, write_mask, write_picture, write_rows

from m3b.dataset.proposals.request import parse

SEVERAL = "Find out which findings are present on chest X-ray images; several can apply"


def test_header_fields_of_the_scanner_are_no_classes(tmp_path: Path) -> None:
    for number in range(30):
        tags = {"Manufacturer": "AB"[number % 2], "RescaleSlope": 1 + number % 2, "PatientComments": "xy"[number // 15]}
        write_dicom(tmp_path / f"{number:02d}.dcm", number, tags)
    titles = list_targets(tmp_path, "Tell whether contrast was given on CT slices", "diagnosis")
    assert "classes by {tag.PatientComments}" in titles
    assert not {"classes by {tag.Manufacturer}", "classes by {tag.RescaleSlope}"} & titles


def test_a_header_field_that_the_request_names_is_a_class(tmp_path: Path) -> None:
    for number in range(30):
        write_dicom(tmp_path / f"{number:02d}.dcm", number, {"Manufacturer": "AB"[number % 2]})
    titles = list_targets(tmp_path, "Classify the manufacturer of CT slices", "diagnosis")
    assert "classes by {tag.Manufacturer}" in titles


def test_small_files_with_a_label_a_line(tmp_path: Path) -> None:
    names = ("effusion", "pneumonia", "nodule")
    for number in range(40):
        write_picture(tmp_path / f"{number:02d}.png", number)
        labels = [name for place, name in enumerate(names) if number >> place & 1]
        (tmp_path / f"{number:02d}.txt").write_text("\n".join(labels))
    best = decide_folder(tmp_path, SEVERAL).proposals[0]
    assert best.cases == 40
    assert best.classes == {"effusion": 20, "nodule": 20, "pneumonia": 20}
    assert best.manifest.labels is not None
    assert best.manifest.labels.multi_label


def test_several_rows_of_an_image_are_several_labels(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    for number in range(40):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows += [[f"{number:02d}.png", "effusion"]] if number % 2 else []
        rows += [[f"{number:02d}.png", "pneumonia"]] if number % 3 or not number % 2 else []
    write_rows(tmp_path / "findings.csv", rows)
    best = decide_folder(tmp_path, SEVERAL).proposals[0]
    assert best.cases == 40
    assert best.classes == {"effusion": 20, "pneumonia": 33}


def test_an_empty_list_says_that_there_is_no_finding(tmp_path: Path) -> None:
    entries = []
    for number in range(40):
        write_picture(tmp_path / f"{number:02d}.png", number)
        labels = [name for place, name in enumerate(("effusion", "pneumonia")) if number >> place & 1]
        entries.append({"image": f"{number:02d}.png", "labels": labels})
    (tmp_path / "cases.json").write_text(json.dumps(entries))
    best = decide_folder(tmp_path, SEVERAL).proposals[0]
    assert best.cases == 40
    assert best.classes == {"effusion": 20, "pneumonia": 20}


@pytest.mark.parametrize("suffix", [".h5", ".mat"])
def test_names_of_classes_within_an_array_file(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 255, (60, 32, 40), np.uint8),
        "labels": rng.integers(0, 2, (60, 2), np.uint8),
    }
    if suffix == ".h5":
        with h5py.File(tmp_path / "set.h5", "w") as store:
            for key, array in arrays.items():
                store[key] = array
            store["classes"] = ["polyp", "ulcer"]
    else:
        scipy.io.savemat(tmp_path / "set.mat", {**arrays, "classes": np.array(["polyp", "ulcer"], dtype=object)})
    best = decide_folder(
        tmp_path, "Decide for each of polyp and ulcer whether it is present; several can apply"
    ).proposals[0]
    assert set(best.classes) == {"polyp", "ulcer"}


def test_pictures_in_an_archive_are_no_previews_beside_it(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "train-000.tar", "w") as archive:
        for number in range(40):
            write_picture(tmp_path / "previews" / f"{number:03d}.png", number)
            for name, data in (
                (f"{number:03d}.png", (tmp_path / "previews" / f"{number:03d}.png").read_bytes()),
                (f"{number:03d}.json", json.dumps({"label": ("cyst", "stone")[number % 2]}).encode()),
            ):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    for number in range(10, 40):
        (tmp_path / "previews" / f"{number:03d}.png").unlink()
    outcome = decide_folder(tmp_path, "Classify kidney ultrasound as cyst or stone")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 40


def test_an_analyze_pair_is_one_image(tmp_path: Path) -> None:
    import nibabel

    rows: list[list[object]] = [["image", "age"]]
    for number in range(24):
        image = nibabel.Nifti1Pair(np.random.default_rng(number).random((12, 12, 8), dtype=np.float32), np.eye(4))
        nibabel.save(image, tmp_path / f"s{number:02d}.hdr")
        rows.append([f"s{number:02d}", 40 + number * 1.5])
    write_rows(tmp_path / "ages.csv", rows)
    best = decide_folder(tmp_path, "Predict the age from brain MRI volumes").proposals[0]
    assert best.cases == 24


def test_all_other_findings_are_one_class(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    names = ("COVID-19", "tuberculosis", "effusion", "normal")
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows.append([f"{number:02d}.png", names[number % 4]])
    write_rows(tmp_path / "metadata.csv", rows)
    outcome = decide_folder(tmp_path, "Tell COVID-19 from other findings on chest X-rays")
    assert outcome.proposals[0].classes == {"COVID-19": 15, "other findings": 45}
    assert any("tuberculosis" in item.claim for item in outcome.assumptions)


@pytest.mark.parametrize(
    ("request_text", "classes"),
    [
        ("Find what is wrong on chest X-rays", ["edema", "mass"]),
        ("Detect edema and mass on chest X-rays", ["edema", "mass"]),
        ("Tell edema from all other findings on chest X-rays", ["other findings", "edema"]),
    ],
)
def test_classes_that_are_joined_in_cells(tmp_path: Path, request_text: str, classes: list[str]) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows.append([f"{number:02d}.png", "edema|mass" if number == 17 else ("edema", "mass", "none")[number % 3]])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, request_text)
    labels = outcome.proposals[0].manifest.labels
    assert labels is not None
    assert list(labels.classes) == classes
    assert labels.multi_label == ("mass" in classes)


def test_a_name_with_a_comma_is_one_class(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows.append([f"{number:02d}.png", ("carcinoma", "carcinoma, in situ")[number % 2]])
    write_rows(tmp_path / "labels.csv", rows)
    best = decide_folder(tmp_path, "Classify histology images").proposals[0]
    assert best.classes == {"carcinoma": 30, "carcinoma, in situ": 30}


@pytest.mark.parametrize(
    ("request_text", "classes"),
    [
        ("Classify chest X-rays by all findings", ["edema", "mass", "effusion"]),
        ("Detect edema and effusion on chest X-rays", ["edema", "effusion"]),
        ("Detect effusion on chest X-rays", ["no effusion", "effusion"]),
    ],
)
def test_the_yes_no_columns_that_a_request_means(tmp_path: Path, request_text: str, classes: list[str]) -> None:
    rows: list[list[object]] = [["image", "edema", "mass", "effusion"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows.append([f"{number:02d}.png", number % 2, int(number % 3 == 0), int(number % 5 < 2)])
    write_rows(tmp_path / "labels.csv", rows)
    labels = decide_folder(tmp_path, request_text).proposals[0].manifest.labels
    assert labels is not None
    assert list(labels.columns or labels.classes) == classes


@pytest.mark.parametrize("pattern", ["images/{}_anno.png", "derivatives/masks/{}_seg.png"])
def test_masks_of_the_images_are_no_other_images(tmp_path: Path, pattern: str) -> None:
    rows: list[list[object]] = [["name", "grade"]]
    for number in range(60):
        name = f"{('train', 'scan')[number % 2]}_{number:02d}"
        write_picture(tmp_path / f"images/{name}.png", number)
        write_mask(tmp_path / pattern.format(name), number, values=(1, 2, 3))
        rows.append([name, ("benign", "malignant")[number // 2 % 2]])
    write_rows(tmp_path / "grades.csv", rows)
    outcome = decide_folder(tmp_path, "Decide benign or malignant for the histology images")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 60)
    assert all(
        "anno" not in text and "seg" not in text
        for proposal in outcome.proposals
        for text in proposal.manifest.images.patterns
    )


@pytest.mark.parametrize("request_text", ["Classify dermoscopy pictures", "Classify naevus, melanoma and wart"])
def test_classes_that_no_image_has_are_left_out_unless_requested(tmp_path: Path, request_text: str) -> None:
    rows: list[list[object]] = [["image", "naevus", "wart", "melanoma", "keratosis", "unknown"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        rows.append([f"{number:02d}.png", int(number % 3 > 0), 0, int(number % 3 == 0), 0, ""])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, request_text)
    if "wart" in request_text:
        assert outcome.kind != "proposed"
    else:
        assert (outcome.kind, outcome.proposals[0].classes) == ("proposed", {"naevus": 40, "melanoma": 20})
        assert any("wart" in assumption.message for assumption in outcome.assumptions)


@pytest.mark.parametrize(
    ("request_text", "classes"),
    [
        (
            "Dire pour chaque anomalie (carie et fracture) si elle est présente sur les radiographies",
            ("carie", "fracture"),
        ),
        ("Decidir para cada hallazgo (caries y fractura) si está presente en radiografías", ("caries", "fractura")),
        ("Entscheide für jeden Befund (Karies und Bruch), ob er auf Röntgenbildern vorliegt", ("Karies", "Bruch")),
    ],
)
def test_classes_in_parentheses_are_asked_for(request_text: str, classes: tuple[str, ...]) -> None:
    assert parse(request_text).classes == classes


def test_empty_cells_beside_findings_mean_no_and_uncertain_ones_are_unknown(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "edema", "mass", "device"]]
    for number in range(60):
        write_picture(tmp_path / f"{number:02d}.png", number)
        edema = -1 if number == 30 else ("1", "", "0")[number % 3]
        rows.append([f"{number:02d}.png", edema, ("", "1")[number % 2], "0"])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Detect edema and mass on chest X-rays")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 60
    assert outcome.proposals[0].classes == {"edema": 19, "mass": 30}
    assert any("empty" in item.claim for item in outcome.assumptions)


def test_numbered_folders_are_grades(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / str(number % 5) / f"{9000 + number}.png", number)
    outcome = decide_folder(tmp_path, "Grade knee osteoarthritis (Kellgren-Lawrence 0 to 4) on knee X-rays")
    assert outcome.kind == "proposed"
    assert outcome.task == "grading"
    assert list(outcome.proposals[0].classes) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("request_text", "grades", "kind"),
    [
        ("Grade knee osteoarthritis on radiographs by Kellgren-Lawrence", "01234", "proposed"),
        ("Stage white matter lesions on brain MRI (Fazekas)", "0123", "proposed"),
        ("Grade prostate cancer in biopsies by ISUP", "1234", "proposed"),
        ("Grade diabetic retinopathy in fundus photographs", "0123", "proposed"),
        ("Predict the BI-RADS grade of mammograms", "2345", "proposed"),
        ("Grade knee osteoarthritis on radiographs by Kellgren-Lawrence", "01236", "refuse"),
    ],
)
def test_numbered_folders_of_a_published_scale(tmp_path: Path, request_text: str, grades: str, kind: str) -> None:
    for number in range(60):
        write_picture(tmp_path / grades[number % len(grades)] / f"{9000 + number}.png", number)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == kind
    if kind == "proposed":
        assert outcome.task == "grading"
        assert list(outcome.proposals[0].classes) == list(grades)


def test_a_scale_says_nothing_of_numbers_if_no_grade_is_asked_for() -> None:
    available = ["0", "1", "2", "3"]
    graded, detected = (
        parse(f"{verb} diabetic retinopathy in fundus photographs").match_classes(available)
        for verb in ("Grade", "Detect")
    )
    assert set(graded.pairs) == set(available)
    assert not detected.pairs


def test_images_of_other_parts_are_no_masks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 60), ("val", 20), ("test", 20)):
        arrays[f"{part}_images"] = rng.integers(0, 255, (count, 28, 28), np.uint8)
        arrays[f"{part}_labels"] = rng.integers(0, 2, (count, 1), np.uint8)
    np.savez(tmp_path / "set.npz", **arrays)
    titles = list_targets(tmp_path, "Detect pneumonia on chest X-rays", "detection")
    assert not any("_images" in title for title in titles)


def test_numbers_of_classes_that_the_request_gives(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "group"]]
    for number in range(30):
        site = ("Bonn", "Ulm", "Kiel")[number % 3]
        write_picture(tmp_path / f"images/{site}_{number:04d}.png", number)
        rows.append([f"{site}_{number:04d}", 1 + number // 3 % 2])
    write_rows(tmp_path / "participants.csv", rows)
    outcome = decide_folder(tmp_path, "Tell autism (1) from control (2) on brain MRI")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"autism": 15, "control": 15}


def test_one_finding_of_a_list_is_there_or_not(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "findings"]]
    texts = ("Effusion", "Nodule|Effusion", "Nodule", "No Finding")
    for number in range(40):
        write_picture(tmp_path / f"images/{number:02d}.png", number)
        rows.append([f"{number:02d}.png", texts[number % 4]])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Detect pleural effusion on chest X-rays")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"no Effusion": 20, "Effusion": 20}
    labels = outcome.proposals[0].manifest.labels
    assert labels is not None
    assert not labels.multi_label


def test_abnormal_and_normal_are_no_unknown_words(tmp_path: Path) -> None:
    for number in range(40):
        state = ("negative", "positive")[number % 2]
        write_picture(tmp_path / f"XR_WRIST/patient{number:05d}/study1_{state}/image1.png", number)
    outcome = decide_folder(tmp_path, "Tell abnormal from normal musculoskeletal radiographs")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"normal": 20, "abnormal": 20}


@pytest.mark.parametrize(
    ("target_codes", "names", "request_text", "classes"),
    [
        ((0, 1), "names:\n  0: negative\n  1: positive\n", "Detect tumours (positive and negative regions) with boxes",
         ["negative", "positive"]),
        ((0, 1), "names:\n  0: small polyp\n  1: large polyp\n", "Detect polyps with boxes", ["polyps"]),
    ],
)  # fmt: skip
def test_classes_of_boxes_that_the_request_names_stay_apart(
    tmp_path: Path, target_codes: tuple[int, ...], names: str, request_text: str, classes: list[str]
) -> None:
    (tmp_path / "data.yaml").write_text(names)
    for number in range(24):
        write_picture(tmp_path / f"images/{number:02d}.png", number)
        (tmp_path / "labels").mkdir(exist_ok=True)
        code = target_codes[number % len(target_codes)]
        (tmp_path / f"labels/{number:02d}.txt").write_text(f"{code} 0.5 0.5 0.2 0.{2 + number % 3}\n")
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    boxes = outcome.proposals[0].manifest.boxes
    assert boxes is not None
    assert list(boxes.classes) == classes


def test_the_only_code_of_boxes_is_what_is_asked_for(tmp_path: Path) -> None:
    rows: list[list[object]] = [["patientId", "x", "y", "width", "height", "Target"]]
    for number in range(24):
        write_picture(tmp_path / f"images/{number:02d}.png", number, size=(64, 64))
        rows.append([f"{number:02d}", *([10, 8, 20 + number % 5, 15, 1] if number % 2 else ["", "", "", "", 0])])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Find lung opacities on chest radiographs, with bounding boxes")
    assert outcome.kind == "proposed"
    boxes = outcome.proposals[0].manifest.boxes
    assert boxes is not None
    assert boxes.classes == {"lung opacities": ("1",)}


def test_numbers_beside_names_are_no_classes_that_are_left_out(tmp_path: Path) -> None:
    for part, labels in (("Training", ("benign", "malignant")), ("Test", ("0.0", "1.0"))):
        rows: list[list[object]] = []
        for number in range(24):
            name = f"S_{number + (100 if part == 'Test' else 0):04d}"
            write_picture(tmp_path / f"{part}_Data/{name}.png", number + len(part) * 50)
            rows.append([name, labels[number % 2]])
        write_rows(tmp_path / f"{part}_GroundTruth.csv", rows)
    outcome = decide_folder(tmp_path, "Tell malignant from benign skin lesions on dermoscopy images")
    assert outcome.kind == "ask"
    assert outcome.question is not None
    assert outcome.question.code == "legend_not_applied"


def test_numbers_that_start_anew_in_the_test_part_are_told_apart_by_the_folder(tmp_path: Path) -> None:
    for number in range(20):
        write_picture(tmp_path / f"training_data/Case{number:02d}.png", number)
        write_mask(tmp_path / f"training_data/Case{number:02d}_segmentation.png", number)
        if number < 8:
            write_picture(tmp_path / f"test_data/Case{number:02d}.png", number + 100)
    outcome = decide_folder(tmp_path, "Segment the prostate on MRI slices")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 20)


def test_yes_no_columns_with_codes_as_headings_take_the_names_of_a_legend(tmp_path: Path) -> None:
    rows: list[list[object]] = [["image", "0", "1"]]
    for number in range(40):
        write_picture(tmp_path / f"images/{number:02d}.png", number)
        rows.append([f"{number:02d}.png", number % 2, number // 2 % 2])
    write_rows(tmp_path / "cases.csv", rows)
    (tmp_path / "README.txt").write_text("Findings:\n0: polyp\n1: ulcer\n")
    outcome = decide_folder(tmp_path, "Find out which findings are present on endoscopy images; several can apply")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"polyp": 20, "ulcer": 20}


@pytest.mark.parametrize("unclear", ["todo", "Pending", "to be determined", "待定"])
def test_cases_of_which_nobody_knows_the_class_are_left_out(tmp_path: Path, unclear: str) -> None:
    rows: list[list[object]] = [["image", "finding"]]
    for number in range(48):
        write_picture(tmp_path / f"images/{number:02d}.png", number)
        rows.append([f"{number:02d}.png", ("COVID-19", "pneumonia", unclear, "normal")[number % 4]])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Tell COVID-19 from other findings on chest X-rays")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"COVID-19": 12, "other findings": 24}


def test_codes_in_lists_take_the_names_of_a_legend(tmp_path: Path) -> None:
    labels = ["[]", "0", "1", "0|1"]
    for number in range(40):
        write_picture(tmp_path / f"{number:03d}.png", number)
    write_rows(tmp_path / "labels.csv", [["image", "labels"], *([f"{n:03d}.png", labels[n % 4]] for n in range(40))])
    (tmp_path / "classes.json").write_text('{"0": "effusion", "1": "nodule"}', encoding="utf-8")
    outcome = decide_folder(tmp_path, SEVERAL)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"effusion": 20, "nodule": 20}


@pytest.mark.parametrize(
    ("test_names", "classes"),
    [
        (("Covid-19", "normal"), {"COVID": 30, "Normal": 30}),
        (("influenza", "normal"), {"COVID": 20, "influenza": 10, "Normal": 30}),  # another class and not another name
    ],
)
def test_parts_with_other_names_of_the_same_classes(
    tmp_path: Path, test_names: tuple[str, str], classes: dict[str, int]
) -> None:
    for number in range(60):
        part, names = ("train", ("COVID", "Normal")) if number % 3 else ("test", test_names)
        write_picture(tmp_path / part / names[number // 3 % 2] / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Classify chest X-rays")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == classes
    assert "classes" in {item.kind for item in outcome.assumptions}


@pytest.mark.parametrize(
    ("request_text", "classes"),
    [
        (
            "Classify mammograms as malignant or benign; benign without callback counts as benign",
            {"benign": 24, "MALIGNANT": 12},
        ),
        ("Classify mammograms by pathology. Treat benign without callback as benign.", {"benign": 24, "MALIGNANT": 12}),
        (
            "Unterscheide bösartig von gutartig auf Mammographien, BENIGN_WITHOUT_CALLBACK zählt als bösartig",
            {"BENIGN": 12, "bösartig": 24},
        ),
    ],
)
def test_a_class_that_counts_as_another_one(tmp_path: Path, request_text: str, classes: dict[str, int]) -> None:
    rows: list[list[object]] = [["image", "pathology"]]
    for number in range(36):
        write_picture(tmp_path / f"images/{number:02d}.png", number)
        rows.append([f"{number:02d}.png", ("BENIGN", "BENIGN_WITHOUT_CALLBACK", "MALIGNANT")[number % 3]])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == classes


def test_a_class_that_shall_count_as_another_one_and_is_not_there(tmp_path: Path) -> None:
    for number in range(36):
        write_picture(tmp_path / ("benign", "malignant")[number % 2] / f"{number:02d}.png", number)
    outcome = decide_folder(tmp_path, "Tell benign from malignant skin lesions; keratosis counts as malignant")
    assert outcome.question is not None
    assert outcome.question.code == "fewer_classes"


def test_a_level_with_a_part_for_tests_is_no_class(tmp_path: Path) -> None:
    for number in range(60):
        part = "tissue-VAL-7K" if number % 3 == 0 else "tissue-100K"
        write_picture(tmp_path / part / ("ADI", "LYM", "MUC", "TUM")[number % 4] / f"{number:03d}.png", number)
    outcome = decide_folder(
        tmp_path,
        "I need a classifier of ADI, LYM, MUC or TUM on histology patches, please evaluate on the external validation set",
    )
    assert (outcome.kind, outcome.task) == ("proposed", "diagnosis")
    assert set(outcome.proposals[0].classes) == {"ADI", "LYM", "MUC", "TUM"}
    split = outcome.proposals[0].manifest.split
    assert (split.train, split.test) == (("tissue-100K",), ("tissue-VAL-7K",))


@pytest.mark.parametrize("level", ["images", "patient-3/images", "unsorted"])
def test_a_folder_that_only_the_test_part_has_is_no_class(tmp_path: Path, level: str) -> None:
    for number in range(60):
        write_picture(tmp_path / "training" / ("none", "mild", "severe")[number % 3] / f"{number:03d}.png", number)
    for number in range(60, 80):
        write_picture(tmp_path / "testing" / level / f"{number:03d}.png", number)
    outcome = decide_folder(tmp_path, "Grade the severity on knee X-rays")
    assert (outcome.kind, outcome.task) == ("proposed", "grading")
    proposal = outcome.proposals[0]
    assert list(proposal.classes) == ["none", "mild", "severe"]
    assert proposal.cases == 60


@pytest.mark.parametrize(("length", "has_patients"), [(8, False), (4, True)])
def test_folders_named_after_the_first_letters_of_files_are_no_patients(
    tmp_path: Path, length: int, has_patients: bool
) -> None:
    for number in range(60):
        person = f"{number // 3 * 7919 % 256:02x}{number // 3 * 104729 % 256:02x}"
        name = f"{person}{number:04x}" if length == 8 else f"{person}_{number % 3}"
        write_picture(tmp_path / ("eczema", "acne")[number // 3 % 2] / person / f"{name}.png", number)
    outcome = decide_folder(tmp_path, "Tell eczema from acne on photos of skin")
    assert outcome.kind == "proposed"
    assert (outcome.proposals[0].manifest.patient is not None) == has_patients


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["normal"] * 30 + ["pneumonia"] * 30 + ["nromal", "pneumona"], {"normal": 31, "pneumonia": 31}),
        (["grade I"] * 30 + ["grade II"] * 30 + ["grade III"] * 2, {"grade I": 30, "grade II": 30, "grade III": 2}),
        (["normal"] * 30 + ["abnormal"] * 2, {"normal": 30, "abnormal": 2}),
        (["monocyte"] * 20 + ["monocytes"] * 20, {"monocyte": 20, "monocytes": 20}),
    ],
)
def test_rare_misspellings_count_as_the_class_spelt_right(
    tmp_path: Path, names: list[str], classes: dict[str, int]
) -> None:
    for number, _ in enumerate(names):
        write_picture(tmp_path / "images" / f"{number:03d}.png", number)
    write_rows(
        tmp_path / "labels.csv", [["image", "finding"], *([f"{n:03d}.png", name] for n, name in enumerate(names))]
    )
    outcome = decide_folder(tmp_path, "Classify the findings")
    assert outcome.proposals[0].classes == classes


def test_a_folder_of_links_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_picture(tmp_path / "store" / "1.png", 1)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "images").symlink_to(tmp_path / "store", target_is_directory=True)
    write_rows(folder / "labels.csv", [["image", "finding"], ["1.png", "normal"]])
    refusal = decide_folder(folder, "Detect pneumonia on chest X-rays").refusal
    assert refusal is not None
    assert refusal.code == "no_images"
    assert "images" in refusal.message
    assert "cp -rL" in refusal.remedy


@pytest.mark.parametrize("part", ["train", "trainval", "train_val"])
def test_lists_of_cases_are_the_split(tmp_path: Path, part: str) -> None:
    names = [f"P{number:03d}" for number in range(40)]
    for number, name in enumerate(names):
        write_picture(tmp_path / ("normal", "pneumonia")[number % 2] / f"{name}.png", number)
    (tmp_path / "lists").mkdir()
    for file, cases in ((part, names[:30]), ("test", names[30:])):
        (tmp_path / "lists" / f"{file}.txt").write_text("\n".join(cases) + "\n")
    split = decide_folder(tmp_path, "Tell pneumonia from normal on chest X-rays").proposals[0].manifest.split
    assert split.is_given
