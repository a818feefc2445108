"""Annotations of volumes, drawn on the grid of their image: DICOM structure sets and segmentations, and seg.nrrd of 3D Slicer."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import (
    UNNAMED,
    AnnotatedImage,
    AnnotationFormat,
    AnnotationSet,
    Mark,
    NoteBook,
    VolumeAnnotationSet,
)
from m3b.dataset.annotations.documents import HEAD_BYTES, load_each, parsing, read_document
from m3b.dataset.annotations.geometry import MAX_PIXELS, VolumeGrid, check_pixels, fill_polygon
from m3b.dataset.annotations.names import split_suffix
from m3b.errors import DataError
from m3b.isolation.untrusted import announce_opening

MAX_DICOM_BYTES = 2 * 2**30
DICOM_SUFFIXES = (".dcm", ".dicom", ".ima", "")
RTSTRUCT_CLASS = b"1.2.840.10008.5.1.4.1.1.481.3"
SEGMENTATION_CLASSES = (b"1.2.840.10008.5.1.4.1.1.66.4", b"1.2.840.10008.5.1.4.1.1.66.7")
META_BYTES = 1024
"""The class of an object stands in the file's meta information, at its start."""
MAX_OFF_GRID = 0.25
"""Voxels by which a place may lie off the middle of a voxel: headers round, and half a voxel would be another slice."""


@dataclass
class _VolumeSet(VolumeAnnotationSet):
    """A set whose masks are drawn by a function an image."""

    painters: dict[AnnotatedImage, Callable[[VolumeGrid], dict[str, Any]]] = field(default_factory=dict)

    def _volume_masks(self, image: AnnotatedImage, grid: VolumeGrid) -> dict[str, Any]:
        check_pixels(*grid.shape)
        with parsing(image.source, self.format):
            return self.painters[image](grid)


def _read_dicom(root: Path, path: str, *, pixels: bool) -> Any:
    import pydicom

    content = read_document(root, path, MAX_DICOM_BYTES)
    with parsing(path, "DICOM"):
        return pydicom.dcmread(io.BytesIO(content), force=True, stop_before_pixels=not pixels)


def _check_finite(path: str, *arrays: Any) -> None:
    import numpy as np

    if not all(np.isfinite(array).all() for array in arrays):
        raise DataError(f"{path}: a coordinate is not a finite number.", code="damaged")


# --- RTSTRUCT ---------------------------------------------------------------------------------------------------------


class RtStruct(AnnotationFormat):
    """DICOM structure sets: closed planar contours in mm of the patient (DICOM PS3.3 C.8.8.6).

    Contours of one region in one slice are combined by the even-odd rule, so that inner ones are holes.
    """

    name = "rtstruct"
    suffixes = DICOM_SUFFIXES

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the object's class is that of structure sets."""
        return RTSTRUCT_CLASS in head[:META_BYTES].split(b"1.2.840.10008.5.1.4.1.1.481.30")[0]

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the regions of structure sets; each is one image, the series that it refers to."""
        notes = NoteBook()
        annotations = _VolumeSet(self.name, shapes={"outline"})

        def add(path: str) -> None:
            header = _read_dicom(root, path, pixels=False)
            _add_structure_set(annotations, path, header, notes)

        load_each(paths, self.name, add, notes)
        annotations.notes = notes.notes()
        return annotations


def _add_structure_set(annotations: _VolumeSet, path: str, header: Any, notes: NoteBook) -> None:
    import numpy as np

    if str(header.get("Modality", "")) != "RTSTRUCT" or "StructureSetROISequence" not in header:
        raise DataError(f"{path} is no structure set.", code="not_this_format")
    names = {
        int(roi.ROINumber): str(roi.get("ROIName", "")).strip() or UNNAMED for roi in header.StructureSetROISequence
    }
    contours: dict[str, list[Any]] = {name: [] for name in names.values()}
    for roi in header.get("ROIContourSequence", ()):
        name = names.get(int(roi.ReferencedROINumber))
        if name is None:
            notes.add("unknown_category_id", f"{path}: ROI {roi.ReferencedROINumber}")
            continue
        for contour in roi.get("ContourSequence", ()):
            points = np.array(contour.get("ContourData") or (), float)
            if str(contour.get("ContourGeometricType", "CLOSED_PLANAR")) != "CLOSED_PLANAR" or len(points) < 9:
                notes.add("line_without_area", f"{path}: {name}")
            elif len(points) % 3 or not np.isfinite(points).all():
                notes.add("damaged_mark", f"{path}: {name}")
            else:
                contours[name].append(points.reshape(-1, 3))
    series, frame = _get_references(header)
    image = AnnotatedImage(series or path, path, (series,) if series else (), series=series, frame=frame)
    annotations.images.append(image)
    annotations.marks[image] = [Mark(name) for name, polygons in contours.items() if polygons]
    for name, polygons in contours.items():
        if not polygons:
            notes.add("region_without_contours", f"{path}: {name}")
    annotations.class_names = tuple(dict.fromkeys((*annotations.class_names, *contours)))
    annotations.painters[image] = lambda grid: draw_contours(contours, grid, path)


def _get_references(header: Any) -> tuple[str, str]:
    """Return the UIDs of the series and of the frame of reference on which regions or segments were drawn."""
    series = [str(item.get("SeriesInstanceUID", "")) for item in header.get("ReferencedSeriesSequence", ())]
    frames = [str(header.get("FrameOfReferenceUID", ""))]
    for reference in header.get("ReferencedFrameOfReferenceSequence", ()):
        frames.append(str(reference.get("FrameOfReferenceUID", "")))
        for study in reference.get("RTReferencedStudySequence", ()):
            series += [str(item.get("SeriesInstanceUID", "")) for item in study.get("RTReferencedSeriesSequence", ())]
    return next(filter(None, series), ""), next(filter(None, frames), "")


def draw_contours(contours: Mapping[str, Sequence[Any]], grid: VolumeGrid, path: str) -> dict[str, Any]:
    """Return class -> mask on the grid of closed planar contours, each (n, 3) in mm in LPS; classes without contours have none.

    Raises:
        DataError: code `other_grid`: most contours lie between the slices of the volume, or outside of it.
    """
    import numpy as np

    inverse = np.linalg.inv(np.asarray(grid.affine, float))
    masks: dict[str, Any] = {}
    misplaced = total = 0
    for name, polygons in contours.items():
        planes: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for points in polygons:
            indices = points @ inverse[:3, :3].T + inverse[:3, 3]
            axis = int(np.argmin(np.ptp(indices, axis=0)))
            place = float(np.median(indices[:, axis]))
            level = round(place)
            total += 1
            if not 0 <= level < grid.shape[axis] or abs(place - level) > MAX_OFF_GRID:
                misplaced += 1
            if 0 <= level < grid.shape[axis]:
                planes[axis, level].append(np.delete(indices, axis, axis=1)[:, ::-1] + 0.5)
        if polygons:
            masks[name] = np.zeros(grid.shape, bool)
        for (axis, level), rings in planes.items():
            height, width = (side for place, side in enumerate(grid.shape) if place != axis)
            plane: list[Any] = [slice(None)] * 3
            plane[axis] = level
            masks[name][tuple(plane)] |= fill_polygon(rings, width, height)
    if misplaced > total / 2:
        message = f"{path}: {misplaced} of {total} contours lie between the slices of the volume or outside of it. "
        raise DataError(message + "Use the series on which they were drawn.", code="other_grid")
    return masks


# --- DICOM SEG --------------------------------------------------------------------------------------------------------


class DicomSeg(AnnotationFormat):
    """DICOM segmentations: binary, fractional (half of the maximum or more is inside) and label maps (DICOM PS3.3 A.51, A.99).

    Frames are placed by their position, so that frames may be missing and in any order.
    """

    name = "dicom_seg"
    suffixes = DICOM_SUFFIXES

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the object's class is that of segmentations."""
        return any(re.search(re.escape(uid) + rb"(?![\d.])", head[:META_BYTES]) for uid in SEGMENTATION_CLASSES)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the segments of objects; each is one image, the series that it refers to. Pixels are read when masks are."""
        notes = NoteBook()
        annotations = _VolumeSet(self.name, shapes={"mask"})

        def add(path: str) -> None:
            header = _read_dicom(root, path, pixels=False)
            if str(header.get("Modality", "")) != "SEG" or "SegmentSequence" not in header:
                raise DataError(f"{path} is no segmentation.", code="not_this_format")
            labels = _get_segments(header)
            series, frame = _get_references(header)
            image = AnnotatedImage(series or path, path, (series,) if series else (), series=series, frame=frame)
            annotations.images.append(image)
            annotations.marks[image] = [Mark(label) for label in dict.fromkeys(labels.values())]
            annotations.class_names = tuple(dict.fromkeys((*annotations.class_names, *labels.values())))
            annotations.painters[image] = lambda grid, path=path: _draw_segments(root, path, grid)  # type: ignore[misc]

        load_each(paths, self.name, add, notes)
        annotations.notes = notes.notes()
        return annotations


def _get_segments(header: Any) -> dict[int, str]:
    """Return number -> label; the background of label maps is none."""
    is_label_map = str(header.get("SegmentationType", "")) == "LABELMAP"
    background = int(header.get("PixelPaddingValue") or 0) if is_label_map else -1
    return {
        int(segment.SegmentNumber): str(segment.get("SegmentLabel", "")).strip() or UNNAMED
        for segment in header.SegmentSequence
        if int(segment.SegmentNumber) != background
    }


def _draw_segments(root: Path, path: str, grid: VolumeGrid) -> dict[str, Any]:
    import numpy as np

    header = _read_dicom(root, path, pixels=True)
    frames_count = int(header.get("NumberOfFrames") or 1)
    rows, columns = int(header.get("Rows") or 0), int(header.get("Columns") or 0)
    check_pixels(columns, rows, frames_count)
    frames = np.asarray(header.pixel_array).reshape(frames_count, rows, columns)
    labels = _get_segments(header)
    kind = str(header.get("SegmentationType", "BINARY"))
    threshold = max(float(header.get("MaximumFractionalValue") or 1) / 2, 1.0) if kind == "FRACTIONAL" else 1.0
    masks: dict[str, Any] = {}
    shared = header.get("SharedFunctionalGroupsSequence", ({},))[0]
    for pixels, facts in zip(frames, header.PerFrameFunctionalGroupsSequence, strict=True):
        affine = _get_frame_affine(facts, shared, path)
        if kind == "LABELMAP":
            layers = {
                labels.get(int(value), ""): pixels == value for value in np.unique(pixels) if int(value) in labels
            }
        else:
            number = _get_functional(facts, shared, "SegmentIdentificationSequence")
            if number is None:
                raise ValueError("a frame names no segment")
            layers = {labels[int(number.ReferencedSegmentNumber)]: pixels >= threshold}
        for label, mask in layers.items():
            volume = masks.setdefault(label, np.zeros(grid.shape, bool))
            place_voxels(volume, np.argwhere(mask), affine, grid, path)
    return masks


def _get_functional(facts: Any, shared: Any, name: str) -> Any:
    sequence = facts.get(name) or shared.get(name)
    return sequence[0] if sequence else None


def _get_frame_affine(facts: Any, shared: Any, path: str) -> Any:
    """Return the 4 x 3 affine from (row, column) of a frame to mm, with the position last.

    Raises:
        DataError: code `no_geometry`.
    """
    import numpy as np

    position, orientation, measures = (
        _get_functional(facts, shared, name)
        for name in ("PlanePositionSequence", "PlaneOrientationSequence", "PixelMeasuresSequence")
    )
    if position is None or orientation is None or measures is None:
        raise DataError(f"{path}: a frame does not say where it lies in the patient.", code="no_geometry")
    cosines = np.array([float(value) for value in orientation.ImageOrientationPatient])
    row_spacing, column_spacing = (float(value) for value in measures.PixelSpacing)
    origin = np.array([float(value) for value in position.ImagePositionPatient])
    affine = np.stack([cosines[3:] * row_spacing, cosines[:3] * column_spacing, origin], axis=1)
    _check_finite(path, affine)
    return affine


def place_voxels(volume: Any, places: Any, affine: Any, grid: VolumeGrid, path: str) -> None:
    """Mark voxels of another array on a volume of the same lattice; voxels outside of the volume are left out.

    Args:
        volume: bool, of the grid's shape; changed.
        places: (n, k) indices of the other array.
        affine: (3, k + 1) from these indices to mm in LPS.

    Raises:
        DataError: code `other_grid`: they do not lie on the middles of the grid's voxels.
    """
    import numpy as np

    if not len(places):
        return
    inverse = np.linalg.inv(np.asarray(grid.affine, float))
    to_grid = inverse[:3, :3] @ affine[:3]
    to_grid[:, -1] += inverse[:3, 3]
    indices = places @ to_grid[:, :-1].T + to_grid[:, -1]
    nearest = np.rint(indices)
    distance = float(np.abs(indices - nearest).max())
    if distance > MAX_OFF_GRID:
        message = f"{path}: its voxels lie up to {distance:.2f} voxels off the grid of the volume. "
        raise DataError(message + "Use the volume on which it was drawn.", code="other_grid")
    is_inside = ((nearest >= 0) & (nearest < grid.shape)).all(axis=1)
    volume[tuple(nearest[is_inside].astype(np.int64).T)] = True


# --- seg.nrrd ---------------------------------------------------------------------------------------------------------


class SegNrrd(AnnotationFormat):
    """3D Slicer's segmentations (https://slicer.readthedocs.io, seg.nrrd): layers of label values, often cropped to what is marked."""

    name = "seg_nrrd"
    suffixes = (".nrrd",)
    per_image = True

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether a NRRD header names segments."""
        cut = len(head) >= HEAD_BYTES and path.name.casefold().endswith(".seg.nrrd")
        return head.startswith(b"NRRD") and (b"Segment0_" in head or cut)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the segments of files; voxels are read when masks are."""
        notes = NoteBook()
        annotations = _VolumeSet(self.name, shapes={"mask"})

        def add(path: str) -> None:
            segments = _read_segments(root, path)
            stem = split_suffix(PurePosixPath(path).name)[0]
            image = AnnotatedImage(stem, path, (str(PurePosixPath(path).parent / stem), stem))
            annotations.images.append(image)
            names = tuple(dict.fromkeys(name for name, _, _ in segments))
            annotations.marks[image] = [Mark(name) for name in names]
            annotations.class_names = tuple(dict.fromkeys((*annotations.class_names, *names)))
            annotations.painters[image] = lambda grid, path=path: _draw_layers(root, path, grid)  # type: ignore[misc]

        load_each(paths, self.name, add, notes)
        annotations.notes = notes.notes()
        return annotations


def _open_nrrd(root: Path, path: str) -> Any:
    import SimpleITK as sitk

    announce_opening(str(root), path)
    if (root / path).is_symlink():
        raise DataError(f"{path} is a link.", code="unreadable")
    reader = sitk.ImageFileReader()
    reader.SetImageIO("NrrdImageIO")
    reader.SetFileName(str(root / path))
    try:
        reader.ReadImageInformation()
    except RuntimeError as error:
        raise DataError(f"{path} is no NRRD file: {str(error).splitlines()[-1]}.", code="damaged") from error
    voxels = reader.GetNumberOfComponents()
    for side in reader.GetSize():
        voxels *= side
    if voxels > MAX_PIXELS:
        raise DataError(
            f"{path} has {voxels:,} voxels, more than the maximum of {MAX_PIXELS:,}.", code="image_too_large"
        )
    return reader


def _read_segments(root: Path, path: str) -> list[tuple[str, int, int]]:
    """Return name, layer and label value of each segment."""
    reader = _open_nrrd(root, path)
    keys = set(reader.GetMetaDataKeys())
    segments = []
    number = 0
    while f"Segment{number}_ID" in keys or f"Segment{number}_Name" in keys:
        prefix = f"Segment{number}_"

        def get(field_name: str, default: str, prefix: str = prefix) -> str:
            return str(reader.GetMetaData(prefix + field_name)).strip() if prefix + field_name in keys else default

        name = get("Name", "") or get("ID", "") or UNNAMED
        segments.append((name, int(get("Layer", "0")), int(get("LabelValue", str(number + 1)))))
        number += 1
    if not segments:
        raise DataError(f"{path} names no segments.", code="not_this_format")
    return segments


def _draw_layers(root: Path, path: str, grid: VolumeGrid) -> dict[str, Any]:
    import numpy as np
    import SimpleITK as sitk

    segments = _read_segments(root, path)
    try:
        image = _open_nrrd(root, path).Execute()
    except RuntimeError as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[-1]}.", code="damaged") from error
    array = sitk.GetArrayFromImage(image)
    size = image.GetDimension()
    if size == 4:  # layers along the last axis of the image, if they were not taken for components
        array, size = np.moveaxis(array, 0, -1), 3
    if size != 3:
        raise DataError(f"{path} has {size} axes; a segmentation of a volume has three.", code="damaged")
    if array.ndim == 3:
        array = array[..., None]
    direction = np.array(image.GetDirection()).reshape(image.GetDimension(), -1)[:3, :3]
    affine = np.concatenate(
        [direction * np.array(image.GetSpacing()[:3]), np.array(image.GetOrigin()[:3])[:, None]], axis=1
    )
    _check_finite(path, affine)
    masks: dict[str, Any] = {}
    for name, layer, value in segments:
        if not 0 <= layer < array.shape[3]:
            raise DataError(
                f"{path}: segment {name!r} lies in layer {layer}; there are {array.shape[3]}.", code="damaged"
            )
        volume = masks.setdefault(name, np.zeros(grid.shape, bool))
        place_voxels(volume, np.argwhere(array[..., layer] == value)[:, ::-1], affine, grid, path)
    return masks
