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
from proposals_kit import decide_folder, list_targets, write_dicom, write_picture, write_rows

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


def test_numbered_folders_are_grades(tmp_path: Path) -> None:
    for number in range(60):
        write_picture(tmp_path / str(number % 5) / f"{9000 + number}.png", number)
    outcome = decide_folder(tmp_path, "Grade knee osteoarthritis (Kellgren-Lawrence 0 to 4) on knee X-rays")
    assert outcome.kind == "proposed"
    assert outcome.task == "grading"
    assert list(outcome.proposals[0].classes) == ["0", "1", "2", "3", "4"]


def test_images_of_other_parts_are_no_masks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 60), ("val", 20), ("test", 20)):
        arrays[f"{part}_images"] = rng.integers(0, 255, (count, 28, 28), np.uint8)
        arrays[f"{part}_labels"] = rng.integers(0, 2, (count, 1), np.uint8)
    np.savez(tmp_path / "set.npz", **arrays)
    titles = list_targets(tmp_path, "Detect pneumonia on chest X-rays", "detection")
    assert not any("_images" in title for title in titles)
