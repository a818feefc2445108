"""Masks from DICOM RTSTRUCT: the contours of named regions, drawn on the grid of the series that they were drawn on.

A contour is a closed planar polygon of (x, y, z) points in patient coordinates, mm (DICOM PS3.3 C.8.8.6). Regions of
several polygons in one slice are combined by exclusive or, so that holes stay open.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from m3b.data.reading import shared
from m3b.errors import DataError


def half_open(points: list[tuple[float, float]], size: tuple[int, int]) -> Any:
    """(rows, columns) bool: pixels whose centre lies in a polygon of (x, y) pixel edges; even-odd where it crosses itself."""
    import numpy as np

    rows, columns = np.mgrid[: size[0], : size[1]] + 0.5
    inside = np.zeros(size, bool)
    for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
        if y0 != y1:
            crossing = ((y0 <= rows) != (y1 <= rows)) & (columns < (x1 - x0) * (rows - y0) / (y1 - y0) + x0)
            inside ^= crossing
    return inside


def referenced_series(file: Path) -> set[str]:
    """SeriesInstanceUIDs of the images on which the regions (RTSTRUCT) or segments (SEG) were drawn."""
    import pydicom

    header = pydicom.dcmread(file, force=True)
    found = {str(one.SeriesInstanceUID) for one in header.get("ReferencedSeriesSequence", ())}
    for frame in header.get("ReferencedFrameOfReferenceSequence", ()):
        for study in frame.get("RTReferencedStudySequence", ()):
            found |= {str(one.SeriesInstanceUID) for one in study.get("RTReferencedSeriesSequence", ())}
    return found


def series_of(series: Path | Sequence[Path]) -> str:
    """SeriesInstanceUID of the first DICOM file of a folder or list; empty where there is none."""
    import pydicom
    from pydicom.errors import InvalidDicomError

    for file in sorted(series.iterdir()) if isinstance(series, Path) else series:
        try:
            header = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"])
        except (OSError, InvalidDicomError):
            continue
        return str(header.get("SeriesInstanceUID", ""))
    return ""


def draw_contours(
    file: Path, series: Path | Sequence[Path], names: dict[str, tuple[str, ...]], classes: dict[str, int]
) -> Any:
    """Label numbers, (H, W, D) in the axes of `read_image(series)`.

    Args:
        series: a folder, or the files of its slices.
        names: class -> names of regions; a class without any is looked for by its own name.

    Raises:
        DataError: the series has no geometry, or none of the regions is in the file.
    """
    import numpy as np
    import pydicom

    own = shared().series_affine(series)
    if own is None:
        raise DataError("its series says nothing of its geometry")
    affine, shape = own
    header = pydicom.dcmread(file, force=True)
    numbers = {str(one.ROIName).strip().casefold(): int(one.ROINumber) for one in header.StructureSetROISequence}
    drawn = {int(one.ReferencedROINumber): one.get("ContourSequence", ()) for one in header.ROIContourSequence}
    volume = np.zeros(shape, np.uint16)
    inverse = np.linalg.inv(affine)
    seen = False
    for name, value in classes.items():
        for text in names.get(name) or (name,):
            number = numbers.get(text.strip().casefold())
            for contour in drawn.get(number, ()) if number is not None else ():
                seen = True
                _draw(volume, contour, inverse, value)
    if not seen:
        raise DataError(f"it has none of the regions; it has {', '.join(sorted(numbers))[:200]}")
    turned: Any = shared().geometry.reorient(volume[None], affine)[0]
    return np.ascontiguousarray(turned[0])


def _draw(volume: Any, contour: Any, inverse: Any, value: int) -> None:
    """One polygon, filled in its slice; a second one inside it cuts a hole."""
    import numpy as np
    from PIL import Image, ImageDraw

    if str(contour.get("ContourGeometricType", "CLOSED_PLANAR")) != "CLOSED_PLANAR":
        return
    points = np.array(contour.ContourData, float).reshape(-1, 3)
    voxels = (inverse @ np.c_[points, np.ones(len(points))].T)[:3]
    level = round(float(np.median(voxels[2])))
    if not 0 <= level < volume.shape[2] or len(points) < 3:
        return
    rows, columns, _ = volume.shape
    plane = Image.new("1", (columns, rows))
    ImageDraw.Draw(plane).polygon([(float(c), float(r)) for r, c in zip(voxels[0], voxels[1], strict=True)], fill=1)
    filled = np.array(plane)
    there = volume[:, :, level] == value
    volume[:, :, level] = np.where(filled ^ there, value, np.where(there & filled, 0, volume[:, :, level]))
