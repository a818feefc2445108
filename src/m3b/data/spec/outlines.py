"""Masks from outlines and segments: LabelMe shapes, COCO polygons and run lengths, DICOM SEG.

Each gives class -> boolean array in the axes of `read_image`, so that classes may overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from m3b.data.reading import shared
from m3b.data.spec.contours import half_open
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_data_json

MAX_BYTES = 512 * 2**20
BETWEEN = 0.2
"""Share of the distance of two slices by which a frame may lie off one of them."""
Names = Mapping[str, Sequence[str]]


def wanted_names(classes: Mapping[str, int], names: Names) -> dict[str, str]:
    """Name in the file, case and spaces folded -> class."""
    return {text.strip().casefold(): own for own in classes for text in (names.get(own) or (own,))}


def _document(file: Path) -> Any:
    state = file.stat()
    if state.st_size > MAX_BYTES:
        raise DataError("it is larger than 512 MiB")
    return _parsed(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _parsed(file: Path, changed: int, size: int) -> Any:
    """The document of one state of a file: a COCO file is asked for every one of its images."""
    try:
        return parse_data_json(file.read_bytes())
    except ValueError as error:
        raise DataError(f"it is no JSON: {error}") from error


def labelme(
    file: Path, shape: tuple[int, ...], classes: Mapping[str, int], names: Names, stored: tuple[int, ...] = ()
) -> dict[str, Any]:
    """The polygons, rectangles and circles of one LabelMe file.

    Args:
        stored: rows and columns of the image before EXIF turns it, on which outlines may be drawn as well.

    Raises:
        DataError: no such file, a shape that bounds no area, or an image of another size.
    """
    raw, wanted = _document(file), wanted_names(classes, names)
    try:
        size = (int(raw.get("imageHeight") or shape[0]), int(raw.get("imageWidth") or shape[1]))
        if size not in (tuple(shape[:2]), stored[:2]):
            raise DataError(f"it was drawn on {size[0]}x{size[1]}, its image is {shape[0]}x{shape[1]}")
        found: dict[str, Any] = {}
        for one in raw["shapes"]:
            own = wanted.get(str(one["label"]).strip().casefold())
            if own is not None:
                area = _area([(float(x), float(y)) for x, y in one["points"]], str(one.get("shape_type")), size)
                found[own] = area | found[own] if own in found else area
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"it cannot be read as LabelMe: {type(error).__name__}: {error}") from error
    return found


def _area(points: list[tuple[float, float]], kind: str, size: tuple[int, int]) -> Any:
    """LabelMe's coordinates are edges of pixels: a rectangle from 2 to 5 holds pixels 2 to 4."""
    import numpy as np

    if kind == "polygon" and len(points) >= 3:
        return half_open(points, size)
    if kind == "rectangle" and len(points) == 2:
        (x0, y0), (x1, y1) = points
        return half_open([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], size)
    if kind == "circle" and len(points) == 2:
        (x, y), (u, v) = points
        rows, columns = np.mgrid[: size[0], : size[1]] + 0.5
        return (columns - x) ** 2 + (rows - y) ** 2 <= (u - x) ** 2 + (v - y) ** 2
    raise DataError(f"a shape of the kind {kind!r} with {len(points)} points bounds no area")


def coco(
    file: Path,
    image: str,
    shape: tuple[int, ...],
    classes: Mapping[str, int],
    names: Names,
    stored: tuple[int, ...] = (),
) -> dict[str, Any] | None:
    """The polygons and run lengths of one image of a COCO file; None where the file does not list the image.

    Args:
        image: its path; COCO's `file_name` is the path or its end.
        stored: as of `labelme`.
    """
    raw, wanted = _document(file), wanted_names(classes, names)
    try:
        labels = {one["id"]: str(one["name"]).strip().casefold() for one in raw["categories"]}
        own = [one for one in raw["images"] if f"/{image}".endswith(f"/{str(one['file_name']).lstrip('./')}")]
        if not own:
            return None
        listed = max(own, key=lambda one: len(str(one["file_name"])))
        size = (int(listed["height"]), int(listed["width"]))
        if size not in (tuple(shape[:2]), stored[:2]):
            raise DataError(f"it was drawn on {size[0]}x{size[1]}, its image is {shape[0]}x{shape[1]}")
        found: dict[str, Any] = {}
        for one in raw["annotations"]:
            name = wanted.get(labels.get(one["category_id"], ""))
            if one["image_id"] != listed["id"] or name is None or not one.get("segmentation"):
                continue
            area = _coded(one["segmentation"], size)
            found[name] = area | found[name] if name in found else area
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"it cannot be read as COCO: {type(error).__name__}: {error}") from error
    return found


def _coded(segmentation: Any, size: tuple[int, int]) -> Any:
    """Polygons as lists of x, y, x, y, ... of pixel edges, which are united; or run lengths, plain or as text."""
    import numpy as np

    if isinstance(segmentation, list):
        areas = [half_open(list(zip(one[::2], one[1::2], strict=True)), size) for one in segmentation]
        return np.any(areas, axis=0)
    counts = segmentation["counts"]
    lengths = _lengths(counts) if isinstance(counts, str) else [int(one) for one in counts]
    if tuple(int(n) for n in segmentation["size"]) != size or sum(lengths) != size[0] * size[1] or min(lengths) < 0:
        raise ValueError("run lengths that do not fill the image")
    values = np.arange(len(lengths)) % 2 == 1  # column after column, beginning with what is not marked
    return np.repeat(values, lengths).reshape(size[::-1]).T


def _lengths(text: str) -> list[int]:
    """COCO's text: groups of five bits from the lowest, the sixth says that more follow; from the fourth run on the
    difference to the run two before."""
    lengths: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value = shift = 0
    return lengths


def dicom_seg(file: Path, series: Path | Sequence[Path], classes: Mapping[str, int], names: Names) -> dict[str, Any]:
    """The segments of a DICOM SEG object on its series, a folder or the files of its slices.

    Raises:
        DataError: the series has no geometry, a frame lies between its slices or on another grid, or no segment is wanted.
    """
    import numpy as np
    import pydicom

    own = shared().series_affine(series)
    if own is None:
        raise DataError("its series says nothing of its geometry")
    affine, shape = own
    header = pydicom.dcmread(file, force=True)
    wanted = wanted_names(classes, names)
    segments = {int(one.SegmentNumber): str(one.SegmentLabel).strip().casefold() for one in header.SegmentSequence}
    frames = np.atleast_3d(header.pixel_array) if int(header.NumberOfFrames) > 1 else header.pixel_array[None]
    top = float(header.get("MaximumFractionalValue") or 1)
    found: dict[str, Any] = {}
    for pixels, facts in zip(frames, header.PerFrameFunctionalGroupsSequence, strict=True):
        name = wanted.get(segments[int(facts.SegmentIdentificationSequence[0].ReferencedSegmentNumber)])
        if name is None:
            continue
        level = _slice_of(facts, header.SharedFunctionalGroupsSequence[0], pixels.shape, affine, shape)
        volume = found.setdefault(name, np.zeros(shape, bool))
        volume[:, :, level] |= pixels >= max(1.0, top / 2)
    if not found:
        raise DataError(f"it has none of the segments; it has {', '.join(sorted(segments.values()))[:200]}")
    turn = shared().geometry.reorient
    return {name: np.ascontiguousarray(turn(volume[None], affine)[0][0]) for name, volume in found.items()}


def _slice_of(facts: Any, common: Any, size: tuple[int, ...], affine: Any, shape: tuple[int, ...]) -> int:
    """The slice of the series that a frame lies on, by its four corners."""
    import numpy as np

    def functional(name: str) -> Any:
        return facts.get(name) or common.get(name)

    place = np.array([float(v) for v in functional("PlanePositionSequence")[0].ImagePositionPatient])
    cosines = np.array([float(v) for v in functional("PlaneOrientationSequence")[0].ImageOrientationPatient])
    rows, columns = (float(v) for v in functional("PixelMeasuresSequence")[0].PixelSpacing)
    if tuple(size) != tuple(shape[:2]):
        raise DataError(f"its frames are {size[0]}x{size[1]}, the slices of its series {shape[0]}x{shape[1]}")
    inverse, levels = np.linalg.inv(affine), []
    for r, c in ((0, 0), (size[0] - 1, 0), (0, size[1] - 1), (size[0] - 1, size[1] - 1)):
        there = inverse @ [*(place + r * rows * cosines[3:] + c * columns * cosines[:3]), 1.0]
        if abs(there[0] - r) > 0.5 or abs(there[1] - c) > 0.5:
            raise DataError("its frames lie beside the slices of its series")
        levels.append(float(there[2]))
    level = round(levels[0])
    if max(abs(one - level) for one in levels) > BETWEEN or not 0 <= level < shape[2]:
        raise DataError("its frames lie between or outside the slices of its series")
    return level
