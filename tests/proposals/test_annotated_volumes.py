"""Decisions about folders whose masks need a table or their format for names, and whose sites use the same names."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from proposals_kit import decide_folder, write_dicom, write_mask, write_picture, write_rows


def _write_volume(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, np.diag([1.0, 1.0, 2.0, 1.0])), path)


def _write_labelled_volumes(folder: Path) -> None:
    rng = np.random.default_rng(5)
    for number in range(12):
        labels = np.zeros((32, 32, 8), np.uint8)
        labels[4:12, 4:12, 2:6], labels[16:24, 16:24, 2:6] = 1, 2
        _write_volume(folder / "images" / f"case_{number:02d}.nii.gz", rng.normal(0, 50, labels.shape).astype(np.int16))
        _write_volume(folder / "labels" / f"case_{number:02d}.nii.gz", labels)


def test_a_colour_table_of_3d_slicer_names_the_classes_of_masks(tmp_path: Path) -> None:
    _write_labelled_volumes(tmp_path)
    header = ["LabelValue", "Name", "Color_R", "Color_G", "Color_B", "Color_A"]
    rows = [header, [1, "liver", 221, 130, 101, 255], [2, "spleen", 157, 108, 162, 255]]
    write_rows(tmp_path / "organs.csv", [list(row) for row in rows])
    outcome = decide_folder(tmp_path, "Segment liver and spleen on CT")
    assert outcome.kind == "proposed"
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert masks.classes == {"liver": (1,), "spleen": (2,)}


@pytest.mark.parametrize("kind", ["labels", "masks"])
def test_sites_that_use_the_same_names_stay_apart(tmp_path: Path, kind: str) -> None:
    rows: list[list[object]] = [["site", "image", "finding"]]
    for site in ("north", "south"):
        for number in range(20):
            name = f"{number:03d}.png"
            write_picture(tmp_path / site / "images" / name, number + 100 * (site == "north"))
            if kind == "masks":
                write_mask(tmp_path / site / "masks" / name, number + 100 * (site == "north"))
            rows.append([site, name, ("cyst", "nodule")[(number + (site == "north")) % 2]])
    if kind == "labels":
        write_rows(tmp_path / "labels.csv", rows)
    request = {"labels": "Classify ultrasound images as cyst or nodule", "masks": "Segment nodules on ultrasound"}[kind]
    outcome = decide_folder(tmp_path, request)
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.cases == 40
    if kind == "labels":
        assert best.classes == {"cyst": 20, "nodule": 20}
    assert (
        best.manifest.patient is None
        or "site" in best.manifest.patient.value
        or "folder" in best.manifest.patient.value
    )


def test_each_segment_of_dicom_segmentations_is_a_class(tmp_path: Path) -> None:
    hd = pytest.importorskip("highdicom")
    from pydicom import dcmread
    from pydicom.sr.codedict import codes
    from pydicom.uid import generate_uid

    for patient in range(6):
        folder = tmp_path / f"P{patient}"
        tags = {
            "SeriesInstanceUID": generate_uid(),
            "StudyInstanceUID": generate_uid(),
            "FrameOfReferenceUID": generate_uid(),
            "PatientID": f"P{patient}",
            "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
            "PixelSpacing": [1, 1],
            "SliceThickness": 2,
            "RescaleSlope": 1,
            "RescaleIntercept": -1024,
            **dict.fromkeys(
                (
                    "PatientName",
                    "PatientBirthDate",
                    "PatientSex",
                    "AccessionNumber",
                    "StudyID",
                    "StudyDate",
                    "StudyTime",
                ),
                "",
            ),
            "ReferringPhysicianName": "",
            "SeriesNumber": 1,
        }
        for level in range(6):
            place = {"ImagePositionPatient": [0, 0, 2 * level], "InstanceNumber": level + 1}
            write_dicom(folder / "ct" / f"{level}.dcm", 10 * patient + level, tags | place)
        slices = [dcmread(folder / "ct" / f"{level}.dcm") for level in range(6)]
        pixels = np.zeros((6, 40, 48, 2), np.uint8)
        pixels[1:4, 4:14, 4:14, 0], pixels[2:5, 20:30, 20:30, 1] = 1, 1
        method = hd.seg.SegmentAlgorithmTypeValues.MANUAL
        segments = [
            hd.seg.SegmentDescription(number, name, codes.SCT.Organ, codes.SCT.Liver, method)
            for number, name in enumerate(("liver", "spleen"), 1)
        ]
        uids = generate_uid(), 5, generate_uid(), 1
        result = hd.seg.Segmentation(slices, pixels, "BINARY", segments, *uids, "m", "model", "1", "serial")
        result.save_as(folder / "seg.dcm")
    outcome = decide_folder(tmp_path, "Segment liver and spleen on CT")
    assert outcome.kind == "proposed"
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert (masks.format, list(masks.classes)) == ("dicom_seg", ["liver", "spleen"])
    assert outcome.proposals[0].cases == 6
