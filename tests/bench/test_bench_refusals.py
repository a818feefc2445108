"""A folder that is not the set, or not the whole of it, is refused in words that help."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from m3b.bench.datasets import DATASET_NAMES, get_dataset
from m3b.bench.datasets.definitions import save_nifti, save_picture
from m3b.bench.datasets.masks import read_mask
from m3b.errors import DataError


@pytest.fixture
def copy(stand_in, tmp_path: Path):
    """`copy(name, layout)`: a stand-in that a test may break."""

    def get(name: str, layout: str = "card") -> Path:
        generated = stand_in(name, layout)[1]
        shutil.copytree(generated.folder, tmp_path / "copy")
        return tmp_path / "copy"

    return get


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_no_folder_an_empty_one_and_a_strange_one(name: str, tmp_path: Path) -> None:
    spec = get_dataset(name)
    with pytest.raises(DataError, match="There is no folder"):
        spec.read(tmp_path / "nowhere")
    with pytest.raises(DataError, match="it is empty"):
        spec.read(tmp_path)
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match=r"holiday\.jpg"):
        spec.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "missing_part", "words"),
    [
        ("ADNI", "ADNI_PT", "ADNI_PT missing"),
        ("KneeMRI", "metadata.csv", "metadata.csv missing"),
        ("CC-CCII", "NCP", "NCP missing"),
        ("CT-Kidney", "Stone", "Stone missing"),
        ("BTCV", "Training/label", "label missing"),
        ("VerSe", "labels.json", "labels.json missing"),
        ("COVID19", "segmentation_masks", "segmentation_masks missing"),
        ("CT-RATE", "test_reports.json", "test_reports.json missing"),
        ("RadGenome-BrainMRI", "reports_test.json", "reports_test.json missing"),
        ("IU-Xray", "reports.csv", "exactly one .csv"),
    ],
)
def test_a_missing_part_is_named(name: str, missing_part: str, words: str, copy) -> None:
    folder = copy(name)
    target = folder / missing_part
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises(DataError, match=words):
        get_dataset(name).read(folder)


@pytest.mark.parametrize(
    ("name", "inner"),
    [("ADNI", "ADNI_PT"), ("KneeMRI", "volumetric_data"), ("COVID19", "images"), ("IU-Xray", "images")],
)
def test_an_incomplete_download_is_not_read_as_a_small_set(name: str, inner: str, copy) -> None:
    folder = copy(name)
    for file in sorted((folder / inner).iterdir())[3:]:
        file.unlink()
    with pytest.raises(DataError, match="Is the download complete"):
        get_dataset(name).read(folder)


def test_a_table_without_its_column(copy) -> None:
    folder = copy("KneeMRI")
    table = folder / "metadata.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("aclDiagnosis", "diagnosis"), encoding="utf-8")
    with pytest.raises(DataError, match="no column aclDiagnosis; its columns are examId"):
        get_dataset("KneeMRI").read(folder)


def test_a_label_that_does_not_exist(copy) -> None:
    folder = copy("KneeMRI")
    lines = (folder / "metadata.csv").read_text(encoding="utf-8").splitlines()
    lines[1] = ",".join([*lines[1].split(",")[:2], "7", *lines[1].split(",")[3:]])
    (folder / "metadata.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match="'7', not 0, 1, 2"):
        get_dataset("KneeMRI").read(folder)


def test_a_patient_in_two_classes(copy) -> None:
    folder = copy("CC-CCII")
    patient = next(entry for entry in (folder / "CP").iterdir() if entry.is_dir() and entry.name.isdigit())
    shutil.copytree(patient, folder / "Normal" / patient.name)
    with pytest.raises(DataError, match=f"Patient {patient.name} is in Normal and in CP"):
        get_dataset("CC-CCII").read(folder)


def test_another_list_of_labels(copy) -> None:
    folder = copy("INSTANCE22")
    (folder / "labels.json").write_text('["haemorrhage", "stroke"]', encoding="utf-8")
    with pytest.raises(DataError, match="must list 1 names"):
        get_dataset("INSTANCE22").read(folder)
    (folder / "labels.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="cannot be read as JSON"):
        get_dataset("INSTANCE22").read(folder)


@pytest.mark.parametrize("path", ["../other/1.nii.gz", "/etc/passwd", "images/../../x.nii.gz", ""])
def test_a_list_that_points_outside(path: str, copy) -> None:
    folder = copy("RadGenome-BrainMRI")
    file = folder / "reports_train.json"
    records = json.loads(file.read_text(encoding="utf-8"))
    records[0]["image_path"] = path
    file.write_text(json.dumps(records), encoding="utf-8")
    with pytest.raises(DataError, match="which is not inside"):
        get_dataset("RadGenome-BrainMRI").read(folder)


@pytest.mark.parametrize("record", [{"image_path": "a"}, ["a"], {"image_path": "a", "finding": 3}, 7])
def test_a_record_without_its_text(record: object, copy) -> None:
    folder = copy("CT-RATE")
    (folder / "test_reports.json").write_text(json.dumps([record]), encoding="utf-8")
    with pytest.raises(DataError, match="record 0"):
        get_dataset("CT-RATE").read(folder)


@pytest.mark.parametrize(
    "change", [{"syms": []}, {"syms": ["Cough"] * 9}, {"boxes": [[1, 2]] * 9}, {"boxes": ["x"] * 9}, {"syms": None}]
)
def test_a_damaged_box_record(change: dict[str, object], copy) -> None:
    folder = copy("ChestX-Det10", "official")
    file = folder / "train.json"
    records = json.loads(file.read_text(encoding="utf-8"))
    record = next(entry for entry in records if entry["syms"])
    for key, value in change.items():
        record[key] = value[: len(record["boxes"])] if value else value
    file.write_text(json.dumps(records), encoding="utf-8")
    with pytest.raises(DataError, match=r"train\.json"):
        get_dataset("ChestX-Det10").read(folder)


def test_masks_that_are_none(tmp_path: Path) -> None:
    values = {1: "a", 2: "b"}
    save_nifti(tmp_path / "f.nii.gz", np.full((4, 4, 4), 0.5))
    save_nifti(tmp_path / "v.nii.gz", np.full((4, 4, 4), 9, dtype=np.uint8))
    save_picture(tmp_path / "c.png", np.zeros((4, 4, 3), dtype=np.uint8))
    (tmp_path / "b.nii.gz").write_bytes(b"\x1f\x8b nothing")
    (tmp_path / "b.png").write_bytes(b"no")
    save_nifti(tmp_path / "ok.nii.gz", np.full((2, 2, 2), 2.0001))
    for name, words in (("f.nii.gz", "fractions"), ("v.nii.gz", r"values \[9\]"), ("c.png", "colour"),
                        ("b.nii.gz", "does not open"), ("b.png", "does not open")):  # fmt: skip
        with pytest.raises(DataError, match=words):
            read_mask(tmp_path / name, values)
    assert (read_mask(tmp_path / "ok.nii.gz", values) == 2).all()
