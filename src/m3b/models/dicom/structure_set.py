"""Masks as a DICOM structure set: one polygon for each connected region and slice, in mm of the patient. Runs in the reader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from m3b.errors import DataError
from m3b.models.dicom.objects import start_object
from m3b.models.overlay import class_colour

if TYPE_CHECKING:
    from numpy.typing import NDArray

STRUCTURE_SET_SERIES_NUMBER = 902
RT_STRUCTURE_SET_CLASS = "1.2.840.10008.5.1.4.1.1.481.3"
STUDY_COMPONENT_CLASS = "1.2.840.10008.3.1.2.3.1"
"""Class of the referenced study, which structure sets name although it is retired (DICOM PS3.3 C.8.8.5)."""
Corner = tuple[int, int]
"""(column, row) of a corner between pixels; pixel k covers k to k + 1."""


def make_structure_set(planes: Mapping[str, Any], sources: Sequence[Any], model: str, version: str) -> Any:
    """Return a structure set with one region of interest for each class.

    Args:
        planes: class -> mask (N, rows, columns) on the pixels of each source.
        sources: headers in order, as `read_source_headers` gives them.

    Raises:
        DataError: an instance does not say where it lies in the patient.
    """
    from pydicom.dataset import Dataset

    for header in sources:
        if any(name not in header for name in ("FrameOfReferenceUID", "ImagePositionPatient", "PixelSpacing")):
            raise DataError(f"The instance {header.SOPInstanceUID} does not say where it lies in the patient.")
    first = sources[0]
    dataset = start_object(first, RT_STRUCTURE_SET_CLASS, "RTSTRUCT", STRUCTURE_SET_SERIES_NUMBER, model, version)
    dataset.StructureSetLabel, dataset.StructureSetName = "M3B", "Contours of a research model"
    dataset.StructureSetDate, dataset.StructureSetTime = dataset.InstanceCreationDate, dataset.InstanceCreationTime
    dataset.OperatorsName, dataset.ApprovalStatus = "", "UNAPPROVED"
    dataset.FrameOfReferenceUID, dataset.PositionReferenceIndicator = first.FrameOfReferenceUID, ""
    dataset.ReferencedFrameOfReferenceSequence = [_refer_to_series(sources)]
    dataset.StructureSetROISequence, dataset.ROIContourSequence = [], []
    dataset.RTROIObservationsSequence = []
    for number, (name, masks) in enumerate(planes.items(), start=1):
        region, contours, observation = Dataset(), Dataset(), Dataset()
        region.ROINumber, region.ReferencedFrameOfReferenceUID = number, first.FrameOfReferenceUID
        region.ROIName, region.ROIGenerationAlgorithm = name[:64], "AUTOMATIC"
        contours.ReferencedROINumber, contours.ROIDisplayColor = number, list(class_colour(number - 1))
        contours.ContourSequence = [
            _make_contour(polygon, header)
            for mask, header in zip(masks, sources, strict=True)
            for polygon in trace_polygons(mask)
        ]
        observation.ObservationNumber = observation.ReferencedROINumber = number
        observation.RTROIInterpretedType = observation.ROIInterpreter = ""
        dataset.StructureSetROISequence.append(region)
        dataset.ROIContourSequence.append(contours)
        dataset.RTROIObservationsSequence.append(observation)
    return dataset


def _refer_to_instance(header: Any) -> Any:
    from pydicom.dataset import Dataset

    reference = Dataset()
    reference.ReferencedSOPClassUID, reference.ReferencedSOPInstanceUID = header.SOPClassUID, header.SOPInstanceUID
    return reference


def _refer_to_series(sources: Sequence[Any]) -> Any:
    from pydicom.dataset import Dataset

    frame, study, series = Dataset(), Dataset(), Dataset()
    series.SeriesInstanceUID = sources[0].SeriesInstanceUID
    series.ContourImageSequence = [_refer_to_instance(header) for header in sources]
    study.ReferencedSOPClassUID, study.ReferencedSOPInstanceUID = STUDY_COMPONENT_CLASS, sources[0].StudyInstanceUID
    study.RTReferencedSeriesSequence = [series]
    frame.FrameOfReferenceUID, frame.RTReferencedStudySequence = sources[0].FrameOfReferenceUID, [study]
    return frame


def _make_contour(polygon: NDArray[Any], header: Any) -> Any:
    import numpy as np
    from pydicom.dataset import Dataset

    orientation, spacing = np.array(header.ImageOrientationPatient, float), np.array(header.PixelSpacing, float)
    columns, rows = (polygon - 0.5).T  # positions are those of pixel centres
    points = (
        np.array(header.ImagePositionPatient, float)
        + columns[:, None] * orientation[:3] * spacing[1]
        + rows[:, None] * orientation[3:] * spacing[0]
    )
    contour = Dataset()
    contour.ContourImageSequence = [_refer_to_instance(header)]
    contour.ContourGeometricType, contour.NumberOfContourPoints = "CLOSED_PLANAR", len(points)
    contour.ContourData = [f"{value:.4f}" for value in points.ravel()]
    return contour


def trace_polygons(mask: Any) -> list[NDArray[Any]]:
    """Return one polygon (n, 2) of (column, row) for each region of a (rows, columns) mask.

    Polygons run along the edges of pixels, so that the pixels whose centres they enclose are exactly the mask. A hole is
    connected with the outer edge by a channel of no width, as DICOM asks for (PS3.3 C.8.8.6.3, "keyhole").
    """
    import numpy as np
    from scipy import ndimage

    labels, _ = ndimage.label(np.asarray(mask, bool))
    polygons = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
        polygon = _merge_rings(_trace_rings(labels[rows, columns] == number))
        polygons.append(_drop_straight_corners(np.array(polygon)) + np.array([columns.start, rows.start]))
    return polygons


def _trace_rings(region: NDArray[Any]) -> list[list[Corner]]:
    """Return the closed rings of pixel edges around a region and its holes, with the region on their right."""
    import numpy as np

    padded = np.pad(region, 1)
    next_corners: dict[Corner, list[Corner]] = defaultdict(list)
    # the neighbour across an edge, and its ends from the upper left corner of the pixel
    for (d_row, d_column), start, end in (
        ((-1, 0), (0, 0), (1, 0)), ((0, 1), (1, 0), (1, 1)), ((1, 0), (1, 1), (0, 1)), ((0, -1), (0, 1), (0, 0)),
    ):  # fmt: skip
        neighbour = padded[1 + d_row : 1 + d_row + region.shape[0], 1 + d_column : 1 + d_column + region.shape[1]]
        for row, column in np.argwhere(region & ~neighbour).tolist():
            next_corners[column + start[0], row + start[1]].append((column + end[0], row + end[1]))
    rings = []
    while next_corners:
        corner = first = next(iter(next_corners))
        ring: list[Corner] = []
        while not ring or corner != first:
            ring.append(corner)
            ends = next_corners[corner]
            following = ends.pop()
            if not ends:
                del next_corners[corner]
            corner = following
        rings.append(ring)
    return rings


def _merge_rings(rings: list[list[Corner]]) -> list[Corner]:
    """Return one polygon of all rings of a region: each hole is reached from the ring to its left and left the same way."""
    polygon, *holes = sorted(rings, key=min)
    for hole in holes:
        start = hole.index(min(hole))
        column, row = hole[start]
        places = set(polygon)
        while (column, row) not in places:
            column -= 1
        place = polygon.index((column, row))
        polygon = [*polygon[: place + 1], *hole[start:], *hole[: start + 1], *polygon[place:]]
    return polygon


def _drop_straight_corners(polygon: NDArray[Any]) -> NDArray[Any]:
    """Return a polygon without the corners at which it goes straight on."""
    import numpy as np

    before = np.sign(polygon - np.roll(polygon, 1, axis=0))
    after = np.sign(np.roll(polygon, -1, axis=0) - polygon)
    corners: NDArray[Any] = polygon[(before != after).any(axis=1)]
    return corners
