"""Structure sets (pydicom), DICOM segmentations (highdicom) and seg.nrrd (SimpleITK, and by hand) on volumes in several axes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import highdicom as hd
import numpy as np
import pydicom
import pytest
import SimpleITK as sitk
from annotation_kit import codes, detect_only, iou
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.sr.codedict import codes as terms
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from m3b.dataset.annotations import VolumeGrid, get_annotation_format
from m3b.errors import DataError

SHAPE = (40, 32, 10)
AXES = {
    "axial": ([1, 0, 0, 0, 1, 0], [0, 0, 1]),
    "sagittal": ([0, 1, 0, 0, 0, -1], [-1, 0, 0]),
    "coronal": ([1, 0, 0, 0, 0, -1], [0, 1, 0]),
    "oblique": ([0.8, 0.6, 0, -0.6, 0.8, 0], [0, 0, 1]),
}
CHANGED_FILES = 25
SPACING = (0.7, 0.9, 2.5)
"""mm between rows, columns and slices."""


def affine_of(axes: str) -> np.ndarray:
    cosines, normal = AXES[axes]
    affine = np.eye(4)
    affine[:3, 0] = np.array(cosines[3:]) * SPACING[0]
    affine[:3, 1] = np.array(cosines[:3]) * SPACING[1]
    affine[:3, 2] = np.array(normal) * SPACING[2]
    affine[:3, 3] = (-20.0, 15.5, 100.25)
    return affine


def turned(array: np.ndarray, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same volume with its axes in another order, two of them reversed."""
    order = (2, 0, 1)
    array, new = np.transpose(array, order), affine.copy()
    new[:3, :3] = affine[:3, list(order)]
    for axis in (0, 2):
        array = np.flip(array, axis)
        new[:3, 3] += new[:3, axis] * (array.shape[axis] - 1)
        new[:3, axis] *= -1
    return array, new


def grids(mask: np.ndarray, axes: str) -> list[tuple[VolumeGrid, np.ndarray]]:
    """Return grids of the same volume, with the mask on each."""
    affine = affine_of(axes)
    turned_mask, other_affine = turned(mask, affine)
    return [(VolumeGrid(SHAPE, affine), mask), (VolumeGrid(turned_mask.shape, other_affine), turned_mask)]  # type: ignore[arg-type]


def series(axes: str) -> list[FileDataset]:
    affine, uid, frame, study = affine_of(axes), generate_uid(), generate_uid(), generate_uid()
    headers = []
    for number in range(SHAPE[2]):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        header = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
        header.SOPClassUID, header.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
        header.StudyInstanceUID, header.SeriesInstanceUID, header.FrameOfReferenceUID = study, uid, frame
        header.Modality, header.PatientID, header.PatientName = "CT", "p1", "p1"
        header.PatientBirthDate = header.PatientSex = header.StudyDate = header.StudyTime = header.AccessionNumber = ""
        header.StudyID, header.SeriesNumber, header.InstanceNumber = "1", 1, number + 1
        header.Rows, header.Columns = SHAPE[:2]
        header.PixelSpacing, header.SliceThickness = [SPACING[0], SPACING[1]], SPACING[2]
        header.ImageOrientationPatient = list(AXES[axes][0])
        header.ImagePositionPatient = [float(value) for value in affine[:3, 3] + number * affine[:3, 2]]
        header.SamplesPerPixel, header.PhotometricInterpretation = 1, "MONOCHROME2"
        header.BitsAllocated = header.BitsStored = 16
        header.HighBit, header.PixelRepresentation = 15, 0
        header.PixelData = np.zeros(SHAPE[:2], np.uint16).tobytes()
        headers.append(header)
    return headers


def draw_first(name: str, path: str, root: Path) -> None:
    annotations = get_annotation_format(name).load([path], root)
    annotations.masks(annotations.images[0], VolumeGrid(SHAPE, affine_of("axial")))


def blob(centre: tuple[float, float, float], radius: float) -> np.ndarray:
    places = np.stack(np.mgrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]], axis=-1)
    return np.asarray(((places - centre) ** 2 / (1, 1, 0.1)).sum(axis=-1) <= radius**2)


# --- DICOM SEG --------------------------------------------------------------------------------------------------------


def segmentation(headers: list[FileDataset], masks: dict[str, np.ndarray], kind: str) -> Any:
    segments = [
        hd.seg.SegmentDescription(
            number, label, terms.SCT.Organ, terms.SCT.Liver, hd.seg.SegmentAlgorithmTypeValues.MANUAL
        )
        for number, label in enumerate(masks, 1)
    ]
    pixels = np.stack([np.moveaxis(mask, 2, 0) for mask in masks.values()], axis=-1)
    array: Any = pixels.astype(np.float32) * 0.75 + 0.2 if kind == "FRACTIONAL" else pixels.astype(np.uint8)
    return hd.seg.Segmentation(
        headers, array, kind, segments, generate_uid(), 5, generate_uid(), 1, "m", "model", "1", "serial"
    )


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["BINARY", "FRACTIONAL", "LABELMAP"])
def test_segmentations_lie_where_highdicom_puts_them(tmp_path: Path, axes: str, kind: str) -> None:
    masks = {"liver": blob((12, 10, 3), 7), "lesion": blob((25, 20, 7), 4)}
    headers = series(axes)
    segmentation(headers, masks, kind).save_as(tmp_path / "seg.dcm")
    source = detect_only(tmp_path)
    assert source.format == "dicom_seg"
    assert source.classes == {"liver": 1, "lesion": 1}
    (image,) = source.annotations.find_series(headers[0].SeriesInstanceUID)  # type: ignore[attr-defined]
    for label, mask in masks.items():
        for grid, expected in grids(mask, axes):
            assert (source.annotations.masks(image, grid)[label] == expected).all()
    assert source.annotations.find_series("9.9", headers[0].FrameOfReferenceUID) == [image]  # type: ignore[attr-defined]


def test_a_segmentation_of_other_slices_is_refused(tmp_path: Path) -> None:
    segmentation(series("axial"), {"liver": blob((12, 10, 3), 7)}, "BINARY").save_as(tmp_path / "seg.dcm")
    annotations = detect_only(tmp_path).annotations
    shifted = affine_of("axial")
    shifted[2, 3] += SPACING[2] / 2
    for grid, code in ((VolumeGrid(SHAPE, shifted), "other_grid"), ((32, 40), "needs_grid")):
        with pytest.raises(DataError) as raised:
            annotations.masks(annotations.images[0], grid)  # type: ignore[arg-type]
        assert raised.value.code == code


def test_damaged_segmentations(tmp_path: Path) -> None:
    header = segmentation(series("axial"), {"liver": blob((12, 10, 3), 7)}, "BINARY")
    header.Rows = 60_000
    header.Columns = 60_000
    header.save_as(tmp_path / "large.dcm")
    header.Rows, header.Columns = SHAPE[:2]
    header.PixelData = header.PixelData[:10]
    header.save_as(tmp_path / "cut.dcm")
    (tmp_path / "text.dcm").write_bytes(b"no dicom")
    codes_of_files = {}
    for path in ("large.dcm", "cut.dcm", "text.dcm"):
        with pytest.raises(DataError) as raised:
            draw_first("dicom_seg", path, tmp_path)
        codes_of_files[path] = raised.value.code
    assert codes_of_files == {"large.dcm": "image_too_large", "cut.dcm": "damaged", "text.dcm": "not_this_format"}


# --- RTSTRUCT ---------------------------------------------------------------------------------------------------------


def structure_set(headers: list[FileDataset], regions: dict[str, list[np.ndarray]]) -> FileDataset:
    """Write a structure set of contours in mm; `UNMARKED` has none."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.481.3", generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    header = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    header.SOPClassUID, header.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    header.Modality = "RTSTRUCT"

    def item(**values: Any) -> Dataset:
        dataset = Dataset()
        for name, value in values.items():
            setattr(dataset, name, Sequence(value) if name.endswith("Sequence") else value)
        return dataset

    referenced = item(SeriesInstanceUID=headers[0].SeriesInstanceUID)
    study = item(RTReferencedSeriesSequence=[referenced])
    frame = item(FrameOfReferenceUID=headers[0].FrameOfReferenceUID, RTReferencedStudySequence=[study])
    header.ReferencedFrameOfReferenceSequence = Sequence([frame])
    header.StructureSetROISequence = Sequence(
        [item(ROINumber=number, ROIName=name) for number, name in enumerate(regions, 5)]
    )
    header.ROIContourSequence = Sequence(
        [
            item(
                ReferencedROINumber=number,
                ContourSequence=[
                    item(
                        ContourGeometricType="CLOSED_PLANAR",
                        NumberOfContourPoints=len(points),
                        ContourData=[f"{value:.6f}" for value in points.ravel()],
                    )
                    for points in contours
                ],
            )
            for number, contours in enumerate(regions.values(), 5)
        ]
    )
    return header


def circle(affine: np.ndarray, centre: tuple[float, float], radius: float, level: float) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    rows, columns = centre[0] + radius * np.sin(angles), centre[1] + radius * np.cos(angles)
    return np.stack([rows, columns, np.full_like(rows, level), np.ones_like(rows)], axis=1) @ affine[:3].T


@pytest.mark.parametrize("axes", AXES)
def test_contours_are_filled_on_the_slices_of_their_series(tmp_path: Path, axes: str) -> None:
    affine, headers = affine_of(axes), series(axes)
    rings = {level: [(18.25, 14.5, 9.0), (18.25, 14.5, 4.0)] for level in (2, 3, 4)}
    contours = [circle(affine, (r, c), radius, level) for level, circles in rings.items() for r, c, radius in circles]
    structure_set(headers, {"GTV": contours, "Cord": [circle(affine, (30, 8), 3, 9)], "Empty": []}).save_as(
        tmp_path / "rs.dcm"
    )
    source = detect_only(tmp_path)
    assert source.format == "rtstruct"
    assert source.classes == {"GTV": 1, "Cord": 1, "Empty": 0}
    assert codes(source.annotations) == {"region_without_contours": 1}
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    distance = np.hypot(rows - 18.25, columns - 14.5)
    expected = np.zeros(SHAPE, bool)
    expected[:, :, 2:5] = ((distance <= 9) & (distance > 4))[:, :, None]
    (image,) = source.annotations.find_series(headers[0].SeriesInstanceUID)  # type: ignore[attr-defined]
    for grid, mask in grids(expected, axes):
        masks = source.annotations.masks(image, grid)
        assert set(masks) == {"GTV", "Cord"}
        assert iou(masks["GTV"], mask) > 0.98
    boxes = dict(source.annotations.boxes(image, VolumeGrid(SHAPE, affine)))
    assert boxes["GTV"] == (6, 10, 2, 24, 28, 5)


def test_contours_of_another_series_are_refused(tmp_path: Path) -> None:
    affine, headers = affine_of("axial"), series("axial")
    contours = [circle(affine, (18, 14), 9, level + 0.5) for level in (2, 3, 4)]
    structure_set(headers, {"GTV": contours}).save_as(tmp_path / "rs.dcm")
    annotations = detect_only(tmp_path).annotations
    with pytest.raises(DataError) as raised:
        annotations.masks(annotations.images[0], VolumeGrid(SHAPE, affine))
    assert raised.value.code == "other_grid"


def test_damaged_contours_are_noted(tmp_path: Path) -> None:
    headers = series("axial")
    good = circle(affine_of("axial"), (18, 14), 9, 2)
    header = structure_set(headers, {"GTV": [good, good, good]})
    contours = header.ROIContourSequence[0].ContourSequence
    contours[0].ContourData = contours[0].ContourData[:-1]
    contours[1].ContourGeometricType = "POINT"
    header.ROIContourSequence[0].ReferencedROINumber = 5
    header.save_as(tmp_path / "rs.dcm")
    annotations = detect_only(tmp_path).annotations
    assert codes(annotations) == {"damaged_mark": 1, "line_without_area": 1}
    with pytest.raises(DataError) as raised:
        get_annotation_format("rtstruct").load([write_slice(tmp_path, headers)], tmp_path)
    assert raised.value.code == "not_this_format"


def write_slice(root: Path, headers: list[FileDataset]) -> str:
    pydicom.dcmwrite(root / "slice.dcm", headers[0])
    return "slice.dcm"


# --- seg.nrrd ---------------------------------------------------------------------------------------------------------


def header_text(sizes: str, axes: int, affine: np.ndarray, fields: dict[str, Any]) -> str:
    """Return a NRRD header by hand, with vectors of columns, rows and slices."""
    vectors = " ".join(f"({','.join(str(value) for value in affine[:3, axis])})" for axis in (1, 0, 2))
    lists = axes == 4
    lines = [
        "NRRD0004", "type: unsigned char", f"dimension: {axes}", "space: left-posterior-superior", f"sizes: {sizes}",
        f"space directions: {'none ' if lists else ''}{vectors}", f"kinds: {'list ' if lists else ''}domain domain domain",
        "encoding: gzip", f"space origin: ({','.join(str(value) for value in affine[:3, 3])})",
        *(f"{name}:={value}" for name, value in fields.items()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n\n"


@pytest.mark.parametrize("axes", AXES)
def test_overlapping_layers_of_a_cropped_extent(tmp_path: Path, axes: str) -> None:
    masks = {"liver": blob((12, 10, 3), 7), "lesion": blob((14, 12, 3), 4), "cyst": blob((14, 20, 5), 3)}
    crop = (slice(2, 30), slice(1, 28), slice(0, 8))
    layers = np.stack([masks["liver"] * 1 + masks["cyst"] * 2 * ~masks["liver"], masks["lesion"] * 1])[
        (slice(None), *crop)
    ]
    affine = affine_of(axes)
    cropped = affine.copy()
    cropped[:3, 3] = affine[:3] @ (2, 1, 0, 1)
    fields = {"Segmentation_ReferenceImageExtentOffset": "1 2 0"}
    for number, (name, layer, value) in enumerate((("liver", 0, 1), ("lesion", 1, 1), ("cyst", 0, 2))):
        facts = {"ID": number, "Name": name, "Layer": layer, "LabelValue": value, "Extent": "0 9 0 9 0 7"}
        fields |= {f"Segment{number}_{key}": str(text) for key, text in facts.items()}
    data = np.transpose(layers.astype(np.uint8), (3, 1, 2, 0))  # slices, rows, columns, layers: the last runs fastest
    sizes = f"2 {data.shape[2]} {data.shape[1]} {data.shape[0]}"
    content = header_text(sizes, 4, cropped, fields).encode() + gzip.compress(data.tobytes())
    (tmp_path / "case1.seg.nrrd").write_bytes(content)
    source = detect_only(tmp_path)
    assert source.format == "seg_nrrd"
    assert source.classes == {"liver": 1, "lesion": 1, "cyst": 1}
    masks["cyst"] &= ~masks["liver"]
    for label, mask in masks.items():
        for grid, expected in grids(mask, axes):
            assert (source.annotations.masks("images/case1.nii.gz", grid)[label] == expected).all()


def test_one_layer_written_by_simpleitk(tmp_path: Path) -> None:
    labels = (blob((12, 10, 3), 7) * 3).astype(np.uint8)
    image = sitk.GetImageFromArray(np.transpose(labels, (2, 0, 1)))
    image.SetSpacing((SPACING[1], SPACING[0], SPACING[2]))
    image.SetMetaData("Segment0_ID", "Segment_1")
    image.SetMetaData("Segment0_Name", "liver")
    image.SetMetaData("Segment0_LabelValue", "3")
    sitk.WriteImage(image, str(tmp_path / "a.seg.nrrd"))
    source = detect_only(tmp_path)
    affine = np.diag([1.0, 1.0, SPACING[2], 1.0])
    affine[:2, :2] = [[0, SPACING[1]], [SPACING[0], 0]]
    mask = source.annotations.masks("a.nrrd", VolumeGrid(SHAPE, affine))["liver"]
    assert (mask == (labels == 3)).all()
    with pytest.raises(DataError) as raised:
        source.annotations.masks("a.nrrd", VolumeGrid(SHAPE, np.diag([1.0, 1.0, 1.0, 1.0])))
    assert raised.value.code == "other_grid"


def test_damaged_segment_files(tmp_path: Path) -> None:
    affine = affine_of("axial")
    fields = {"Segment0_ID": "s", "Segment0_Name": "liver", "Segment0_Layer": 4}
    cut = header_text("32 40 10", 3, affine, {**fields, "Segment0_Layer": 0}).encode() + b"\x1f\x8b"
    layer = header_text("32 40 10", 3, affine, fields).encode() + gzip.compress(bytes(32 * 40 * 10))
    large = header_text("90000 90000 90000", 3, affine, fields).encode()
    without_segments = header_text("32 40 10", 3, affine, {}).encode() + gzip.compress(bytes(32 * 40 * 10))
    expected = {
        "cut": "damaged",
        "layer": "damaged",
        "large": "image_too_large",
        "plain": "not_this_format",
        "text": "damaged",
    }
    for name, content in {
        "cut": cut,
        "layer": layer,
        "large": large,
        "plain": without_segments,
        "text": b"NRRD0004\nhello",
    }.items():
        (tmp_path / f"{name}.seg.nrrd").write_bytes(content)
        with pytest.raises(DataError) as raised:
            draw_first("seg_nrrd", f"{name}.seg.nrrd", tmp_path)
        assert raised.value.code == expected[name], name


@pytest.mark.parametrize("name", ["rtstruct", "dicom_seg", "seg_nrrd"])
def test_changed_bytes_end_with_a_set_or_a_code(tmp_path: Path, name: str) -> None:
    headers, affine, mask = series("axial"), affine_of("axial"), blob((12, 10, 3), 7)
    path = tmp_path / "a.seg.nrrd"
    if name == "rtstruct":
        structure_set(headers, {"GTV": [circle(affine, (18, 14), 9, 2)]}).save_as(path)
    elif name == "dicom_seg":
        segmentation(headers, {"liver": mask}, "BINARY").save_as(path)
    else:
        fields = {"Segment0_ID": "s", "Segment0_Name": "liver"}
        path.write_bytes(header_text("32 40 10", 3, affine, fields).encode() + gzip.compress(mask.tobytes()))
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(CHANGED_FILES):
        changed = bytearray(content)
        for place in rng.integers(0, len(content), 6):
            changed[place] = rng.integers(0, 256)
        path.write_bytes(changed)
        try:
            draw_first(name, path.name, tmp_path)
        except DataError as error:
            if not error.code:
                raise
