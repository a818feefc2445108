"""Checks of meaning: a wrong reading of the data is found where it is one, and a right one passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset

from audit_kit import find_metric_problem
from m3b.data.index import BoxLabel, Index, Record
from m3b.dataset.audit import Audit, Finding, IndexRequest, audit_index

COUNT = 24


def only(audit: Audit, code: str) -> Finding:
    (match,) = [finding for finding in audit.findings if finding.code == code]
    return match


def codes(audit: Audit) -> set[str]:
    return {finding.code for finding in audit.findings}


def noise(work: Path, at: int, name: str = "") -> str:
    name = name or f"i{at}.png"
    array = np.random.default_rng(at).integers(40, 200, (40, 48), dtype=np.uint8)
    Image.fromarray(array).save(work / name)
    return name


def labelled(
    work: Path, labels: Sequence[str], patients: Sequence[str] | None = None, names: Sequence[str] = ()
) -> Index:
    patient_ids = patients or [f"p{at}" for at in range(len(labels))]
    records = [
        Record(noise(work, at, names[at] if names else ""), (label,), patient_ids[at])
        for at, label in enumerate(labels)
    ]
    cut = len(records) * 3 // 4
    return Index(tuple(records[:cut]), tuple(records[cut:]), tuple(sorted(set(labels))))


# --- classes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PAT{:03}", "patient_{}", "case-{:02}", "ISIC_002430{}", "d41d8cd98f00b{:03}"])
def test_classes_that_are_names_of_patients(tmp_path: Path, name: str) -> None:
    labels = [name.format(at % 6) for at in range(COUNT)]
    finding = only(audit_index(labelled(tmp_path, labels), tmp_path), "classes_are_identifiers")
    assert finding.severity == "fix"
    assert name.format(0) in finding.message
    assert "column" in finding.agent_message


@pytest.mark.parametrize(
    "names",
    [("0", "1", "2"), ("stage 1", "stage 2", "stage 3"), ("T1", "T2", "T10"), ("BI-RADS 2", "BI-RADS 3", "BI-RADS 4"),
     ("nv", "mel", "bcc"), ("covid19", "pneumonia", "healthy"), ("grade_0", "grade_1", "grade_2"), ("L5", "S1", "C2")],
)  # fmt: skip
def test_numbered_classes_are_classes(tmp_path: Path, names: tuple[str, ...]) -> None:
    labels = [names[at % len(names)] for at in range(COUNT)]
    assert not codes(audit_index(labelled(tmp_path, labels), tmp_path)) & {
        "classes_are_identifiers", "classes_are_patients", "one_case_a_class"
    }  # fmt: skip


def test_classes_that_coincide_with_patients(tmp_path: Path) -> None:
    labels = [("alpha", "beta", "gamma")[at % 3] for at in range(COUNT)]
    index = labelled(tmp_path, labels, [f"who-{label}" for label in labels])
    finding = only(audit_index(index, tmp_path), "classes_are_patients")
    assert (finding.severity, "cannot be told apart" in finding.message) == ("fix", True)
    unknown = labelled(tmp_path, labels, [f"unknown-{at}" for at in range(COUNT)])
    assert "classes_are_patients" not in codes(audit_index(unknown, tmp_path))


def test_a_class_for_every_case(tmp_path: Path) -> None:
    labels = [f"a finding of {chr(97 + at)}" for at in range(COUNT - 4)] + ["other"] * 4
    finding = only(audit_index(labelled(tmp_path, labels), tmp_path), "one_case_a_class")
    assert "20 of 21 classes have a single case" in finding.message


# --- the request --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["Grade the knee (0 to 4)", "Kellgren-Lawrence 0-4 on X-rays", "Grad 0 bis 4"])
def test_the_ends_of_a_range_are_no_classes(tmp_path: Path, words: str) -> None:
    index = labelled(tmp_path, ["04"[at % 2] for at in range(COUNT)])
    assert only(audit_index(index, tmp_path, request=IndexRequest(words)), "numbers_of_request").severity == "fix"
    assert "numbers_of_request" not in codes(audit_index(index, tmp_path, request=IndexRequest("Tell 0 from 4")))
    full_range_index = labelled(tmp_path, ["01234"[at % 5] for at in range(COUNT)])
    assert "numbers_of_request" not in codes(audit_index(full_range_index, tmp_path, request=IndexRequest(words)))


def test_classes_of_another_subject(tmp_path: Path) -> None:
    index = labelled(tmp_path, [("urinary system", "musculoskeletal")[at % 2] for at in range(COUNT)])
    request = IndexRequest("Tell pneumonia from tuberculosis on chest X-rays")
    assert "pneumonia" in only(audit_index(index, tmp_path, request=request), "classes_off_request").agent_message
    for fitting in ("Tell urinary from musculoskeletal cases", "Classify these images", "Detect fractures"):
        assert "classes_off_request" not in codes(audit_index(index, tmp_path, request=IndexRequest(fitting)))


# --- what stands beside the pixels --------------------------------------------------------------------------------


def test_a_label_in_the_file_names(tmp_path: Path) -> None:
    labels = [("no", "yes")[at % 2] for at in range(COUNT)]
    names = [f"ID_{at:03}_CONTRAST_{at % 2}_CT.png" for at in range(COUNT)]
    finding = only(audit_index(labelled(tmp_path, labels, names=names), tmp_path), "label_in_name")
    assert (finding.severity, "part 4" in finding.agent_message) == ("warn", True)
    assert "label_in_name" not in codes(audit_index(labelled(tmp_path, labels), tmp_path))


def dicom(file: Path, at: int, **fields: str) -> str:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 24, 20, 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 16
    dataset.HighBit, dataset.PixelRepresentation, dataset.PatientID, dataset.Modality = 15, 0, f"P{at}", "CT"
    for name, value in fields.items():
        setattr(dataset, name, value)
    dataset.PixelData = np.random.default_rng(at).integers(0, 900, (24, 20), dtype=np.uint16).tobytes()
    dataset.save_as(file, enforce_file_format=True)
    return file.name


def test_a_label_in_the_header(tmp_path: Path) -> None:
    def index(make_fields: Callable[[int], dict[str, str]]) -> Index:
        records = [
            Record(dicom(tmp_path / f"{at}.dcm", at, **make_fields(at)), (("no", "yes")[at % 2],), f"p{at}")
            for at in range(COUNT)
        ]
        return Index(tuple(records[:18]), tuple(records[18:]), ("no", "yes"))

    finding = only(
        audit_index(index(lambda at: {"ContrastBolusAgent": "APPLIED"} if at % 2 else {}), tmp_path), "label_in_header"
    )
    assert (finding.severity, "ContrastBolusAgent" in finding.agent_message) == ("warn", True)
    assert "label_in_header" not in codes(audit_index(index(lambda at: {"StationName": f"CT{at % 3}"}), tmp_path))


@pytest.mark.parametrize(
    ("fields", "expected_text"),
    [
        ({"BurnedInAnnotation": "YES"}, "6 say in their DICOM header that text is burnt"),
        ({"Modality": "US"}, "6 are of a kind that often has such text"),
        ({"Modality": "US", "BurnedInAnnotation": "NO"}, ""),
        ({}, ""),
    ],
)
def test_text_in_the_pixels_is_warned_of(tmp_path: Path, fields: dict[str, str], expected_text: str) -> None:
    records = [
        Record(dicom(tmp_path / f"{at}.dcm", at, **(fields if at % 4 == 0 else {})), (("no", "yes")[at % 2],), f"p{at}")
        for at in range(COUNT)
    ]
    audit = audit_index(Index(tuple(records[:18]), tuple(records[18:]), ("no", "yes")), tmp_path)
    if expected_text:
        finding = only(audit, "text_in_pixels")
        assert (finding.severity, expected_text in finding.agent_message) == ("warn", True)
        assert f"Of {COUNT} images opened" in finding.agent_message
    else:
        assert "text_in_pixels" not in codes(audit)


@pytest.mark.parametrize(
    ("frames", "unit", "code"), [(20, "sec", "time_as_channels"), (20, "unknown", "four_axes"), (4, "sec", "four_axes")]
)
def test_time_is_no_channel(tmp_path: Path, frames: int, unit: str, code: str) -> None:
    records = []
    for at in range(COUNT):
        random = np.random.default_rng(at)
        image = nib.Nifti1Image(random.normal(0, 50, (10, 9, 6, frames)).astype(np.int16), np.eye(4))
        image.header.set_xyzt_units("mm", unit)
        image.header.set_zooms((1, 1, 1, 2.0))
        nib.save(image, tmp_path / f"i{at}.nii.gz")
        mask = np.zeros((10, 9, 6), np.uint8)
        mask[2 : 4 + at % 4, 2:6, 1 : 3 + at % 3] = 1
        nib.save(nib.Nifti1Image(mask, np.eye(4)), tmp_path / f"m{at}.nii.gz")
        records.append(Record(f"i{at}.nii.gz", patient=f"p{at}", mask=f"m{at}.nii.gz"))
    finding_codes = codes(
        audit_index(Index(tuple(records[6:]), tuple(records[:6]), ("liver",), "segmentation"), tmp_path)
    )
    assert finding_codes & {"time_as_channels", "four_axes"} == {code}


# --- masks --------------------------------------------------------------------------------------------------------


def round_image(random: np.random.Generator, size: int = 64) -> np.ndarray:
    """A fundus-like picture: bright within a circle, black around it."""
    y, x = np.ogrid[:size, :size]
    disc = (x - size / 2) ** 2 + (y - size / 2) ** 2 < (0.45 * size) ** 2
    return np.where(disc, random.integers(90, 200, (size, size)), random.integers(0, 4, (size, size))).astype(np.uint8)


def masked(
    work: Path, draw: Callable[[int, np.ndarray, np.random.Generator], np.ndarray], suffix: str = "png", **values: int
) -> Index:
    """Round pictures with masks that `draw` makes of number, picture and random generator."""
    records = []
    for at in range(COUNT):
        random = np.random.default_rng(at)
        image = round_image(random)
        Image.fromarray(image).save(work / f"i{at}.png")
        Image.fromarray(draw(at, image, random).astype(np.uint8)).save(work / f"m{at}.{suffix}")
        records.append(Record(f"i{at}.png", patient=f"p{at}", mask=f"m{at}.{suffix}"))
    labels = values or {"lesion": 255}
    return Index(tuple(records[6:]), tuple(records[:6]), tuple(labels), "segmentation", labels)


def blob(at: int, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    top, left = random.integers(12, 36, 2)
    mask = np.zeros(image.shape)
    mask[top : top + 6 + at % 7, left : left + 8 + at % 5] = 255
    return mask


SUSPICIOUS_MASK_CODES = {
    "mask_lossy",
    "mask_noise",
    "mask_constant",
    "mask_field_of_view",
    "mask_visible_part",
    "mean_shape",
}


def test_masks_that_are_masks(tmp_path: Path) -> None:
    assert not codes(audit_index(masked(tmp_path, blob), tmp_path)) & SUSPICIOUS_MASK_CODES


@pytest.mark.parametrize("value", [1, 255])
def test_compression_noise_is_no_structure(tmp_path: Path, value: int) -> None:
    finding = only(audit_index(masked(tmp_path, blob, "jpg", lesion=value), tmp_path), "mask_lossy")
    assert finding.severity == "fix"
    assert "`above`" in finding.remedy
    assert "`above`" not in finding.message


def test_scattered_points_are_noise(tmp_path: Path) -> None:
    def dither(at: int, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return 255 * (random.random(image.shape) < 0.08)

    assert only(audit_index(masked(tmp_path, dither), tmp_path), "mask_noise").severity == "fix"


def test_one_mask_for_all(tmp_path: Path) -> None:
    def frame(at: int, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        mask = np.zeros(image.shape)
        mask[10:50, 12:52] = 255
        return mask

    audit = audit_index(masked(tmp_path, frame), tmp_path)
    assert only(audit, "mask_constant").severity == "fix"
    assert "same_mask" not in codes(audit)


def test_the_field_of_view(tmp_path: Path) -> None:
    def view(at: int, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        mask = 255 * (image > 50)
        mask[30:32, 20 : 22 + at % 4] = 0
        return mask

    finding = only(audit_index(masked(tmp_path, view), tmp_path), "mask_field_of_view")
    assert (finding.severity, "dark border" in finding.message) == ("fix", True)


def test_a_mean_shape_that_serves_for_all_is_said(tmp_path: Path) -> None:
    def organ(at: int, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        mask = np.zeros(image.shape)
        mask[16:48, 16 : 47 + at % 3] = 255
        return mask

    finding = only(audit_index(masked(tmp_path, organ), tmp_path), "mean_shape")
    assert finding.severity == "warn"
    assert "Dice 0.9" in finding.agent_message or "Dice 1.0" in finding.agent_message


# --- metrics ------------------------------------------------------------------------------------------------------


def test_a_metric_that_the_annotation_cannot_bear(tmp_path: Path) -> None:
    records = tuple(
        Record(noise(tmp_path, at), patient=f"p{at}", mask=None if at % 4 else f"m{at}.png") for at in range(8)
    )
    masks = Index(records[2:], records[:2], ("nodule",), "detection")
    boxes = Index(
        tuple(Record(f"i{at}.png", patient=f"p{at}", boxes=(BoxLabel("nodule", (1, 2, 5, 6)),)) for at in range(6)),
        tuple(Record(f"i{at}.png", patient=f"p{at}", boxes=()) for at in range(6, 8)),
        ("nodule",),
        "detection",
    )
    assert "compares boxes, and this index has masks" in find_metric_problem(masks, "map_50")
    assert "compares masks, and this index has boxes" in find_metric_problem(boxes, "dice")
    assert not find_metric_problem(masks, "lesion_f1")
    assert not find_metric_problem(boxes, "map_50")
    assert not find_metric_problem(boxes, "image_auroc")
