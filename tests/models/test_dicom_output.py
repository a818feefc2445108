"""Answers as DICOM objects: read back with pydicom and highdicom, masks and places compared with the sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.uid import generate_uid
from typer.testing import CliRunner

from dicom_kit import ORIENTATIONS, read_pixels, write_instance, write_series
from m3b.cli.app import app
from m3b.dataset.reading import read_image, write_mask
from m3b.errors import UsageError
from m3b.models.dicom.output import check_sources, write_dicom
from m3b.models.predictions import DetectedBox, ModelInfo, Prediction

hd = pytest.importorskip("highdicom")

PROMISE = ModelInfo("segmentation", ("liver", "odd thing"), False, {"liver": 1, "odd thing": 5})


@pytest.mark.parametrize(("name", "as_list"), list(zip(ORIENTATIONS, (False, True, False, False), strict=True)))
def test_masks_lie_on_the_instances_that_they_are_of(name: str, as_list: bool, tmp_path: Path) -> None:
    place = write_series(tmp_path / "series", ORIENTATIONS[name])
    image: Any = tuple(str(file) for file in sorted(place.iterdir())) if as_list else str(place)
    voxels = read_image(list(image) if as_list else image).array[0]
    mask = np.where(voxels > 500, 5, np.where(voxels > 200, 1, 0)).astype(np.uint8)
    file = Path(write_mask(mask, list(image) if as_list else image, tmp_path / "mask"))
    answer = Prediction(image, mask=file, volumes_ml={"liver": 12.5, "odd thing": None})
    [seg, report] = write_dicom([answer], PROMISE, "Organs", "1a2b", tmp_path / "out")[0]
    read = hd.seg.segread(seg)
    assert read.number_of_segments == 2
    assert [item.segment_label for item in read.SegmentSequence] == ["liver", "odd thing"]
    assert (read.SegmentSequence[0].segmented_property_type.scheme_designator, read.PatientID) == ("SCT", "p7")
    pixels = read_pixels(place)
    planes = read.get_pixels_by_source_instance(list(pixels), assert_missing_frames_are_empty=True)
    for plane, (_, slice_pixels) in zip(planes, pixels.items(), strict=True):
        assert np.array_equal(plane[..., 0], (slice_pixels > 200) & (slice_pixels <= 500))
        assert np.array_equal(plane[..., 1], slice_pixels > 500)
    masked_slices = [at for at, slice_pixels in enumerate(pixels.values()) if (slice_pixels > 200).any()]
    assert len(masked_slices) == 4
    assert {
        str(item.ReferencedSOPInstanceUID) for item in read.ReferencedSeriesSequence[0].ReferencedInstanceSequence
    } == set(pixels)
    sources = {tuple(item.ImagePositionPatient) for item in map(dcmread, place.iterdir())}
    frames = {
        tuple(item.PlanePositionSequence[0].ImagePositionPatient) for item in read.PerFrameFunctionalGroupsSequence
    }
    assert frames < sources
    content = hd.sr.srread(report).content
    [group] = content.get_image_measurement_groups()
    [volume] = group.get_measurements()
    assert (volume.name.meaning, volume.value, volume.unit.value) == ("Volume", 12.5, "ml")
    assert (
        dcmread(seg).StudyInstanceUID
        == dcmread(report).StudyInstanceUID
        == dcmread(next(place.iterdir())).StudyInstanceUID
    )


def test_masks_that_overlap_are_segments_of_their_own(tmp_path: Path) -> None:
    place = write_series(tmp_path / "series", ORIENTATIONS["axial"])
    voxels = read_image(str(place)).array[0]
    files = {name: Path(write_mask((voxels > cut).astype(np.uint8), str(place), tmp_path / name))
             for name, cut in (("tumor", 200), ("core", 500))}  # fmt: skip
    [seg] = write_dicom([Prediction(str(place), masks=files)], ModelInfo("segmentation", ("tumor", "core"), True), "T", "1",
                        tmp_path / "out")[0]  # fmt: skip
    pixels = read_pixels(place)
    planes = hd.seg.segread(seg).get_pixels_by_source_instance(list(pixels), assert_missing_frames_are_empty=True)
    assert [int(planes[..., k].sum()) for k in (0, 1)] == [
        sum(int((p > cut).sum()) for p in pixels.values()) for cut in (200, 500)
    ]


def test_classes_are_a_report_on_the_series(tmp_path: Path) -> None:
    place = write_series(tmp_path / "series", ORIENTATIONS["axial"])
    answer = Prediction(str(place), {"clear": 0.25, "bleeding": 0.75}, ("bleeding",), out_of_distribution=True, why="noise",
                        prediction_set=("clear", "bleeding"), set_level=0.9, abstains=True)  # fmt: skip
    [report] = write_dicom([answer], ModelInfo("diagnosis", ("clear", "bleeding")), "Heads", "1", tmp_path / "out")[0]
    read = hd.sr.srread(report)
    assert read.SOPClassUID == "1.2.840.10008.5.1.4.1.1.88.33"
    assert read.ContentTemplateSequence[0].TemplateIdentifier == "1500"
    [group] = read.content.get_image_measurement_groups()
    assert {item.name.meaning: item.value for item in group.get_measurements()} == {
        "Probability of clear": 0.25, "Probability of bleeding": 0.75}  # fmt: skip
    evaluations = [(item.name.meaning, item.value.meaning) for item in group.get_qualitative_evaluations()]
    assert ("Decision of the model", "bleeding") in [(name, value.lower()) for name, value in evaluations]
    assert ("Unlike the training images", "Yes") in evaluations
    assert ("Model abstains", "Yes") in evaluations
    evidence = read.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence[0]
    assert {str(item.ReferencedSOPInstanceUID) for item in evidence.ReferencedSOPSequence} == set(read_pixels(place))


def test_a_number_and_boxes_of_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "one.dcm"
    write_instance(file, np.ones((20, 26)), 0, generate_uid(), ORIENTATIONS["axial"])
    answers = [
        Prediction(str(file), extra={"value": 131.4567891234, "interval": [112.0, 150.8], "interval_level": 0.9}),
        Prediction(str(file), boxes=(DetectedBox("nodule", (3, 4, 9, 12), 0.8),), anomaly_score=0.7),
        Prediction(str(file), error="it was torn"),
    ]
    reports = write_dicom(answers, ModelInfo("detection", ("nodule",)), "N", "1", tmp_path / "out")
    assert list(reports) == [0, 1]
    [group] = hd.sr.srread(reports[0][0]).content.get_image_measurement_groups()
    assert [round(measurement.value, 3) for measurement in group.get_measurements()] == [131.457, 112.0, 150.8]
    [region] = hd.sr.srread(reports[1][0]).content.get_planar_roi_measurement_groups()
    assert region.roi.value.tolist() == [[3, 4], [9, 4], [9, 12], [3, 12], [3, 4]]
    assert [measurement.value for measurement in region.get_measurements()] == [0.8]


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(UsageError, match=r"a\.png is no DICOM file"):
        check_sources([str(tmp_path / "a.png")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no DICOM file"):
        check_sources([str(tmp_path / "empty")])
    place = write_series(tmp_path / "series", ORIENTATIONS["axial"])
    write_instance(place / "other.dcm", np.ones((20, 26)), 9, generate_uid(), ORIENTATIONS["axial"])
    with pytest.raises(UsageError, match="several DICOM series"):
        check_sources([str(place)])
    write_instance(
        tmp_path / "cine.dcm", np.ones((40, 26)), 0, generate_uid(), ORIENTATIONS["axial"], NumberOfFrames=2, Rows=20
    )
    with pytest.raises(UsageError, match="several frames"):
        check_sources([str(tmp_path / "cine.dcm")])
    with pytest.raises(UsageError, match="one image a case"):
        check_sources([{"t1": str(place), "t2": str(place)}])


PREDICT = """
import argparse, json
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("-o")
given = parser.parse_args()
answers = [{"image": path, "probabilities": {"clear": 0.1, "bleeding": 0.9}} for path in json.loads(Path(given.list).read_text())]
Path(given.o).write_text(json.dumps(answers))
"""


def test_the_command(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "predict.py").write_text(PREDICT)
    (model / "config.json").write_text(json.dumps({"task": "diagnosis", "classes": ["clear", "bleeding"]}))
    place = write_series(tmp_path / "series", ORIENTATIONS["axial"])
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    call = lambda *words: CliRunner().invoke(app, ["predict", str(model), *map(str, words)])  # noqa: E731
    refused = call(tmp_path / "a.png", "-o", tmp_path / "out", "--dicom")
    assert isinstance(refused.exception, UsageError)
    assert not (tmp_path / "out/predictions.json").exists()
    assert isinstance(call(place, "--dicom").exception, UsageError), "no folder is named"
    done = call(place, "-o", tmp_path / "out", "--dicom")
    assert done.exit_code == 0, (done.output, done.exception)
    [answer] = json.loads((tmp_path / "out/predictions.json").read_text())
    assert answer["dicom"] == ["dicom/0001_sr.dcm"]
    assert hd.sr.srread(tmp_path / "out/dicom/0001_sr.dcm").Modality == "SR"
