"""Decisions about folders that hold the slices of a series and its annotation under names of the same form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from proposals_kit import decide_folder, write_dicom

from m3b.dataset.formats import read_image
from m3b.dataset.manifest.execute import Executed, execute
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.survey.survey import survey
from m3b.dataset.survey.walk import walk

PATIENTS, SLICES, SIDE = 8, 4, 8
PLACES = {"liver": slice(1, 4), "spleen": slice(5, 7)}
"""Rows and columns of the square of each class, on every slice."""
REQUEST = "Segment liver and spleen on CT"


def _item(**fields: object) -> Any:
    from pydicom.dataset import Dataset

    item = Dataset()
    for name, value in fields.items():
        setattr(item, name, value)
    return item


def _write_object(path: Path, storage_class: str, series: str, **fields: object) -> None:
    """Write a DICOM object that is made from a series."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = storage_class, ExplicitVRLittleEndian
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[series, storage_class])
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = storage_class, meta.MediaStorageSOPInstanceUID
    data.SeriesInstanceUID, data.PatientID = (
        generate_uid(entropy_srcs=[series, storage_class, "series"]),
        path.parent.name,
    )
    for name, value in fields.items():
        setattr(data, name, value)
    data.save_as(path, enforce_file_format=True)


def _write_segmentation(path: Path, series: str) -> None:
    """Write a DICOM SEG with a frame a class and slice: more frames than the series has slices."""
    from pydicom.uid import SegmentationStorage

    frames = [(number, place, level) for number, place in enumerate(PLACES.values(), 1) for level in range(SLICES)]
    pixels = np.zeros((len(frames), SIDE, SIDE), bool)
    for frame, (_, place, _) in zip(pixels, frames, strict=True):
        frame[place, place] = True
    shared = _item(
        PlaneOrientationSequence=[_item(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])],
        PixelMeasuresSequence=[_item(PixelSpacing=[1.0, 1.0])],
    )
    per_frame = [
        _item(
            PlanePositionSequence=[_item(ImagePositionPatient=[0.0, 0.0, 2.0 * level])],
            SegmentIdentificationSequence=[_item(ReferencedSegmentNumber=number)],
        )
        for number, _, level in frames
    ]
    _write_object(
        path, SegmentationStorage, series, Modality="SEG", SegmentationType="BINARY", Rows=SIDE, Columns=SIDE,
        SamplesPerPixel=1, PhotometricInterpretation="MONOCHROME2", PixelRepresentation=0, BitsAllocated=1, BitsStored=1,
        HighBit=0, NumberOfFrames=len(frames), ReferencedSeriesSequence=[_item(SeriesInstanceUID=series)],
        SegmentSequence=[_item(SegmentNumber=number, SegmentLabel=name) for number, name in enumerate(PLACES, 1)],
        SharedFunctionalGroupsSequence=[shared], PerFrameFunctionalGroupsSequence=per_frame,
        PixelData=np.packbits(pixels.ravel(), bitorder="little").tobytes(),
    )  # fmt: skip


def _write_structure_set(path: Path, series: str) -> None:
    """Write a RTSTRUCT with a square contour a class and slice."""
    from pydicom.uid import RTStructureSetStorage

    contours = [
        _item(
            ReferencedROINumber=number,
            ContourSequence=[
                _item(ContourGeometricType="CLOSED_PLANAR", ContourData=_draw_square(place, level))
                for level in range(SLICES)
            ],
        )
        for number, place in enumerate(PLACES.values(), 1)
    ]
    study = _item(RTReferencedSeriesSequence=[_item(SeriesInstanceUID=series)])
    _write_object(
        path, RTStructureSetStorage, series, Modality="RTSTRUCT",
        StructureSetROISequence=[_item(ROINumber=number, ROIName=name) for number, name in enumerate(PLACES, 1)],
        ROIContourSequence=contours,
        ReferencedFrameOfReferenceSequence=[_item(RTReferencedStudySequence=[study])],
    )  # fmt: skip


def _draw_square(place: slice, level: int) -> list[float]:
    low, high = place.start - 0.5, place.stop - 0.5
    return [value for x, y in ((low, low), (high, low), (high, high), (low, high)) for value in (x, y, 2.0 * level)]


WRITERS = {"dicom_seg": _write_segmentation, "rtstruct": _write_structure_set}


def _write_exports(folder: Path, format: str, *, is_shuffled: bool = False, are_named: bool = False) -> None:
    """Write a folder a patient with the slices of a series and the annotation of it; the last file, or any of them."""
    from pydicom.uid import generate_uid

    rng = np.random.default_rng(4)
    words = ("anna", "berta", "clara", "dora", "emil", "fritz", "gustav", "heinrich")
    for patient in range(PATIENTS):
        series = generate_uid(entropy_srcs=[f"{format} {patient}"])
        place = folder / (words[patient] if are_named else f"p{patient:03d}")
        numbers = rng.permutation(SLICES + 1) if is_shuffled else np.arange(SLICES + 1)
        for level, number in enumerate(numbers[:SLICES]):
            pixels = rng.integers(0, 2000, (SIDE, SIDE), np.uint16)
            tags = {
                "SeriesInstanceUID": series,
                "SOPInstanceUID": generate_uid(entropy_srcs=[series, str(level)]),
                "PatientID": place.name,
                "Rows": SIDE,
                "Columns": SIDE,
                "PixelData": pixels.tobytes(),
                "ImagePositionPatient": [0, 0, 2 * level],
                "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
                "PixelSpacing": [1, 1],
                "InstanceNumber": level + 1,
            }
            write_dicom(place / f"{number:04d}.dcm", 10 * patient + level, tags)
        WRITERS[format](place / f"{numbers[SLICES]:04d}.dcm", series)


def _execute(data: Path, work: Path, manifest: Manifest) -> Executed:
    return execute(manifest, walk(data), name="set", work=work)


@pytest.mark.parametrize("is_shuffled", [False, True], ids=["running", "shuffled"])
@pytest.mark.parametrize("format", WRITERS)
def test_annotations_among_slices_are_those_of_their_series(tmp_path: Path, format: str, is_shuffled: bool) -> None:
    data = tmp_path / "data"
    _write_exports(data, format, is_shuffled=is_shuffled)
    outcome = decide_folder(data, REQUEST)
    assert outcome.kind == "proposed"
    manifest = outcome.proposals[0].manifest
    assert (manifest.images.unit, outcome.proposals[0].cases) == ("folder", PATIENTS)
    assert manifest.masks is not None
    assert (manifest.masks.format, list(manifest.masks.classes)) == (format, list(PLACES))
    assert not manifest.only, "all images are of one modality"

    executed = _execute(data, tmp_path / "work", manifest)
    uses = dict(executed.resolved.uses.drop_nulls("use").group_by("use").len().iter_rows())
    assert uses == {"image": PATIENTS * SLICES, "annotation": PATIENTS}
    records = [*executed.train, *executed.test]
    assert sorted(str(record.image).rsplit("/", 1)[-1] for record in records) == [
        f"p{at:03d}" for at in range(PATIENTS)
    ]
    voxels = [np.asarray(nib.load(tmp_path / "work" / str(record.mask)).dataobj) for record in records]
    sizes = [SLICES * (place.stop - place.start) ** 2 for place in PLACES.values()]
    assert {array.shape for array in voxels} == {(SIDE, SIDE, SLICES)}
    assert all(np.bincount(array.ravel())[1:].tolist() == sizes for array in voxels)


def test_annotations_among_slices_in_folders_that_are_named_by_words(tmp_path: Path) -> None:
    _write_exports(tmp_path, "dicom_seg", is_shuffled=True, are_named=True)
    outcome = decide_folder(tmp_path, REQUEST)
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", PATIENTS)


@pytest.mark.parametrize("format", WRITERS)
def test_a_survey_tells_annotations_from_the_images_of_their_group(tmp_path: Path, format: str) -> None:
    _write_exports(tmp_path, format, is_shuffled=True)
    facts = survey(tmp_path)
    [group] = facts.groups
    assert (group.count, group.annotations) == (PATIENTS * (SLICES + 1), PATIENTS)
    assert group.content is not None
    assert (group.content.modality, group.content.dims, group.content.failed) == (("CT",), 2, 0)
    [annotations] = facts.annotations
    assert (annotations.images_group, annotations.images_found, annotations.images) == (group.id, PATIENTS, PATIENTS)
    assert annotations.names_series


def test_a_manifest_without_modalities_takes_annotations_by_their_content(tmp_path: Path) -> None:
    data = tmp_path / "data"
    _write_exports(data, "dicom_seg", is_shuffled=True)
    pattern = "p{patient}/{number}.dcm"
    manifest = Manifest.model_validate(
        {
            "task": "segmentation",
            "images": {"files": pattern, "case": "{folder}", "several": "slices", "unit": "folder"},
            "masks": {"format": "dicom_seg", "files": pattern, "classes": {name: [name] for name in PLACES}},
            "patient": "{patient}",
        }
    )
    executed = _execute(data, tmp_path / "work", manifest)
    assert len(executed.train) + len(executed.test) == PATIENTS
    assert len(executed.resolved.annotated["masks"].files) == PATIENTS


@pytest.mark.parametrize("format", WRITERS)
def test_a_folder_of_slices_is_the_series_however_many_frames_its_annotation_has(tmp_path: Path, format: str) -> None:
    _write_exports(tmp_path, format)
    assert read_image(str(tmp_path / "p000")).array.shape == (1, SIDE, SIDE, SLICES)
