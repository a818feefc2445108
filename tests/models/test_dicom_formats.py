"""Structure sets and pages as DICOM objects: contours drawn again and compared with the masks, a whole call with each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.uid import generate_uid
from typer.testing import CliRunner

from dicom_kit import ORIENTATIONS, make_threshold_model, read_pixels, write_instance, write_series
from m3b.cli.app import app
from m3b.dataset.annotations.geometry import VolumeGrid, fill_polygon
from m3b.dataset.annotations.volumes import RtStruct
from m3b.dataset.reading import geometry, read_image, write_mask
from m3b.errors import DataError, UsageError
from m3b.models.dicom.output import write_dicom
from m3b.models.dicom.structure_set import trace_polygons
from m3b.models.predictions import ModelInfo, Prediction

hd = pytest.importorskip("highdicom")
Mask = NDArray[np.bool_]
ORGANS = ModelInfo("segmentation", ("liver", "odd thing"), False, {"liver": 1, "odd thing": 5})


def make_ring(size: int) -> Mask:
    mask = np.zeros((size, size), bool)
    mask[2:-2, 2:-2] = True
    mask[4:6, 4:6] = mask[size - 5, 3] = mask[size - 6, 4] = False
    mask[size // 2, size // 2] = False
    return mask


RANDOM = np.random.default_rng(5)
MASKS = [
    make_ring(12), np.ones((3, 4), bool), np.zeros((5, 5), bool), np.eye(6, dtype=bool), ~np.eye(6, dtype=bool),
    *(RANDOM.random((17, 23)) < share for share in (0.1, 0.3, 0.5, 0.6, 0.7, 0.9) for _ in range(20)),
]  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
def test_polygons_enclose_exactly_the_pixels_of_a_mask(mask: Mask) -> None:
    from scipy import ndimage

    polygons = trace_polygons(mask)
    assert len(polygons) == ndimage.label(mask)[1]
    filled = np.zeros_like(mask)
    for polygon in polygons:
        filled ^= fill_polygon([polygon.astype(float)], mask.shape[1], mask.shape[0])
    assert np.array_equal(filled, mask)


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_contours_drawn_again_are_the_masks(name: str, tmp_path: Path) -> None:
    image = str(write_series(tmp_path / "series", ORIENTATIONS[name]))
    voxels = read_image(image).array[0]
    labels = np.where(voxels > 500, 5, np.where(voxels > 200, 1, 0)).astype(np.uint8)
    hole = tuple(np.argwhere(labels == 1)[len(np.argwhere(labels == 1)) // 2])
    labels[hole] = 0
    prediction = Prediction(image, mask=Path(write_mask(labels, image, tmp_path / "mask")))
    [file] = write_dicom([prediction], ORGANS, "Organs", "1a2b", tmp_path / "out", ["rtstruct"])[0]
    assert file.name == "0001_rtstruct.dcm"
    grid = VolumeGrid(labels.shape, geometry(image).affine)
    annotations = RtStruct().load([file.name], file.parent)
    [annotated] = annotations.images
    masks = annotations.masks(annotated, grid)
    assert annotated.series == str(dcmread(next(Path(image).iterdir())).SeriesInstanceUID)
    for label, number in (("liver", 1), ("odd thing", 5)):
        assert (labels == number).sum() > 10
        assert np.array_equal(masks[label], labels == number)
    header = dcmread(file)
    assert (header.PatientID, header.Modality, header.ApprovalStatus) == ("p7", "RTSTRUCT", "UNAPPROVED")
    referenced = header.ReferencedFrameOfReferenceSequence[0].RTReferencedStudySequence[0].RTReferencedSeriesSequence[0]
    assert {str(item.ReferencedSOPInstanceUID) for item in referenced.ContourImageSequence} == set(
        read_pixels(Path(image))
    )


def test_a_page_has_a_picture_and_belongs_to_the_patient(tmp_path: Path) -> None:
    image = str(write_series(tmp_path / "series", ORIENTATIONS["axial"]))
    prediction = Prediction(image, {"clear": 0.25, "bleeding": 0.75}, ("bleeding",), volumes_ml={"liver": 12.5})
    model_info = ModelInfo("diagnosis", ("clear", "bleeding"))
    [file] = write_dicom([prediction], model_info, "Heads", "1", tmp_path / "out", ["pdf"])[0]
    header, source = dcmread(file), dcmread(next(Path(image).iterdir()))
    assert (header.StudyInstanceUID, header.PatientID) == (source.StudyInstanceUID, "p7")
    assert header.MIMETypeOfEncapsulatedDocument == "application/pdf"
    pdf = header.EncapsulatedDocument[: header.EncapsulatedDocumentLength]
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert pdf.count(b"/Type /Page\n") == 1


def test_contours_need_a_place_in_the_patient(tmp_path: Path) -> None:
    file = tmp_path / "xray.dcm"
    write_instance(file, np.ones((20, 26)), 0, generate_uid(), ORIENTATIONS["axial"])
    header = dcmread(file)
    del header.ImagePositionPatient
    header.save_as(file)
    mask = Path(write_mask(np.ones((20, 26), np.uint8), str(file), tmp_path / "mask"))
    with pytest.raises(DataError, match="does not say where it lies"):
        write_dicom([Prediction(str(file), mask=mask)], ORGANS, "Organs", "1", tmp_path / "out", ["rtstruct"])


def test_the_command_writes_each_format_that_is_named(tmp_path: Path) -> None:
    model = make_threshold_model(tmp_path / "model")
    image = write_series(tmp_path / "series", ORIENTATIONS["axial"])

    def call(*words: Any) -> Any:
        return CliRunner().invoke(app, ["predict", str(model), str(image), "-o", str(tmp_path / "out"), *words])

    assert isinstance(call("--dicom-format", "nifti").exception, UsageError)
    words = [word for name in ("seg", "rtstruct", "pdf", "sr") for word in ("--dicom-format", name)]
    done = call(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    [entry] = json.loads((tmp_path / "out/predictions.json").read_text())
    assert entry["dicom"] == [f"dicom/0001_{name}.dcm" for name in ("seg", "rtstruct", "sr", "pdf")]
    assert [dcmread(tmp_path / "out" / name).Modality for name in entry["dicom"]] == ["SEG", "RTSTRUCT", "SR", "DOC"]


def test_a_classifier_has_no_contours(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "predict.py").write_text("")
    (model / "config.json").write_text(json.dumps({"task": "diagnosis", "classes": ["a", "b"]}))
    image = write_series(tmp_path / "series", ORIENTATIONS["axial"])
    words = ["predict", str(model), str(image), "-o", str(tmp_path / "out"), "--dicom-format", "rtstruct"]
    assert isinstance(CliRunner().invoke(app, words).exception, UsageError)
    assert not (tmp_path / "out").exists()
