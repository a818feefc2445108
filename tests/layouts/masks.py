"""Writers of masks in each form of the axis `mask_form`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.sequence import Sequence as DicomSequence
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from layouts.carriers import SPACING, THICKNESS, Header, read_dicom, write_image, write_sloped
from layouts.shapes import Shape

Array = NDArray[Any]
VOID = 255
COLOURS = ((220, 40, 40), (40, 200, 60), (50, 80, 230), (230, 220, 40), (200, 60, 210))
"""Colour of each class in colour masks and palettes."""
SLOPE = 0.99998474
RTSTRUCT_CLASS = "1.2.840.10008.5.1.4.1.1.481.3"


def write_palette(file: Path, labels: Array) -> None:
    """Write indices with a palette, and a border of void around each object."""
    indices = labels.copy()
    region = np.pad(labels > 0, 1)
    near = np.zeros(labels.shape, bool)
    for rows, columns in ((0, 1), (2, 1), (1, 0), (1, 2)):
        near |= region[rows : rows + labels.shape[0], columns : columns + labels.shape[1]]
    indices[near & (labels == 0)] = VOID
    picture = Image.fromarray(indices).convert("P")
    palette = [0, 0, 0, *[level for colour in COLOURS for level in colour]]
    palette += [0] * (3 * VOID - len(palette)) + [224, 224, 192]
    picture = Image.frombytes("P", (labels.shape[1], labels.shape[0]), np.ascontiguousarray(indices).tobytes())
    picture.putpalette(palette)
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.save(file)


def to_colours(labels: Array) -> Array:
    table = np.array([(0, 0, 0), *COLOURS], np.uint8)
    return table[labels]


def to_half_size(labels: Array) -> Array:
    return np.ascontiguousarray(labels[::2, ::2])


def write_slope(file: Path, labels: Array) -> None:
    """Write ids with a slope that makes them not quite whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_sloped(file, labels, slope=SLOPE, intercept=0.0)


def write_seg_nrrd(file: Path, labels: Array, names: Sequence[str]) -> None:
    """Write the layout of 3D Slicer's segmentations, one layer."""
    file.parent.mkdir(parents=True, exist_ok=True)
    image = SimpleITK.GetImageFromArray(labels)
    image.SetSpacing((*SPACING, THICKNESS))
    rows, columns = labels.shape[1:]
    image.SetMetaData("Segmentation_MasterRepresentation", "Binary labelmap")
    image.SetMetaData("Segmentation_ContainedRepresentationNames", "Binary labelmap|")
    for number, name in enumerate(names):
        values = {
            "ID": f"Segment_{number + 1}", "Name": name, "LabelValue": str(number + 1), "Layer": "0",
            "Color": " ".join(f"{level / 255:.3f}" for level in COLOURS[number]),
            "Extent": f"0 {columns - 1} 0 {rows - 1} 0 {labels.shape[0] - 1}",
        }  # fmt: skip
        for key, value in values.items():
            image.SetMetaData(f"Segment{number}_{key}", value)
    SimpleITK.WriteImage(image, str(file), True)


def write_dicom_seg(file: Path, slices: Sequence[Path], labels: Array, names: Sequence[str]) -> None:
    """Write a DICOM segmentation of a series with highdicom."""
    import highdicom
    from pydicom.sr.codedict import codes

    algorithm = highdicom.seg.SegmentAlgorithmTypeValues.MANUAL
    descriptions = [
        highdicom.seg.SegmentDescription(
            segment_number=number,
            segment_label=name,
            segmented_property_category=codes.SCT.Tissue,
            segmented_property_type=codes.SCT.Tissue,
            algorithm_type=algorithm,
        )
        for number, name in enumerate(names, 1)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    highdicom.seg.Segmentation(
        source_images=[read_dicom(path) for path in slices],
        pixel_array=labels,
        segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=descriptions,
        series_instance_uid=generate_uid(entropy_srcs=[file.as_posix(), "series"]),
        series_number=100,
        sop_instance_uid=generate_uid(entropy_srcs=[file.as_posix(), "seg"]),
        instance_number=1,
        manufacturer="Example",
        manufacturer_model_name="Example",
        software_versions="1",
        device_serial_number="1",
    ).save_as(file)


def write_rtstruct(file: Path, slices: Sequence[Path], shapes: Sequence[Shape], names: Sequence[str]) -> None:
    """Write contours of blocks, which lie on pixel edges, as a radiotherapy structure set."""
    headers = [read_dicom(path) for path in slices]
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = RTSTRUCT_CLASS
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[file.as_posix(), "rtstruct"])
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    structures = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    first = headers[0]
    structures.SOPClassUID, structures.SOPInstanceUID = RTSTRUCT_CLASS, meta.MediaStorageSOPInstanceUID
    structures.SpecificCharacterSet = "ISO_IR 192"
    structures.Modality = "RTSTRUCT"
    structures.StudyInstanceUID = first.StudyInstanceUID
    structures.SeriesInstanceUID = generate_uid(entropy_srcs=[file.as_posix(), "series"])
    structures.PatientID, structures.PatientName = first.PatientID, first.PatientName
    structures.StructureSetLabel = "contours"
    series = Dataset()
    series.SeriesInstanceUID = first.SeriesInstanceUID
    series.ContourImageSequence = DicomSequence([_refer(header) for header in headers])
    study = Dataset()
    study.ReferencedSOPClassUID, study.ReferencedSOPInstanceUID = "1.2.840.10008.3.1.2.3.1", first.StudyInstanceUID
    study.RTReferencedSeriesSequence = DicomSequence([series])
    frame = Dataset()
    frame.FrameOfReferenceUID = first.FrameOfReferenceUID
    frame.RTReferencedStudySequence = DicomSequence([study])
    structures.ReferencedFrameOfReferenceSequence = DicomSequence([frame])
    regions, contours = [], []
    for number, name in enumerate(names, 1):
        region = Dataset()
        region.ROINumber, region.ROIName, region.ROIGenerationAlgorithm = number, name, "MANUAL"
        region.ReferencedFrameOfReferenceUID = first.FrameOfReferenceUID
        regions.append(region)
        contour = Dataset()
        contour.ReferencedROINumber = number
        contour.ROIDisplayColor = list(COLOURS[number - 1])
        contour.ContourSequence = DicomSequence(
            [
                _make_contour(shape, headers[position], position)
                for shape in shapes
                if shape.class_index == number - 1
                for position in range(shape.low[0], shape.high[0])
            ]
        )
        contours.append(contour)
    structures.StructureSetROISequence = DicomSequence(regions)
    structures.ROIContourSequence = DicomSequence(contours)
    file.parent.mkdir(parents=True, exist_ok=True)
    structures.save_as(file, enforce_file_format=True)


def _refer(header: Dataset) -> Dataset:
    reference = Dataset()
    reference.ReferencedSOPClassUID, reference.ReferencedSOPInstanceUID = header.SOPClassUID, header.SOPInstanceUID
    return reference


def _make_contour(shape: Shape, header: Dataset, position: int) -> Dataset:
    contour = Dataset()
    contour.ContourImageSequence = DicomSequence([_refer(header)])
    contour.ContourGeometricType = "CLOSED_PLANAR"
    points = [
        (round((x - 0.5) * SPACING[1], 4), round((y - 0.5) * SPACING[0], 4), position * THICKNESS)
        for x, y in shape.outline()
    ]
    contour.NumberOfContourPoints = len(points)
    contour.ContourData = [value for point in points for value in point]
    return contour


def to_run_lengths(mask: Array) -> str:
    """Return start and length of each run, counted from 1 down the columns."""
    pixels = np.concatenate([[0], mask.T.flatten().astype(np.uint8), [0]])
    changes = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    changes[1::2] -= changes[::2]
    return " ".join(map(str, changes))


def write_mask(base: Path, labels: Array, carrier: str) -> list[Path]:
    """Write ids or 0/255 in a carrier of images."""
    return write_image(base, labels, carrier, Header())
