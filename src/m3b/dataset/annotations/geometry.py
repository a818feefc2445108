"""Regions in pixels of an image: boxes, polygons, ellipses, bitmaps and run lengths; their bounds, and the pixels that they hold.

Coordinates are edges of pixels: pixel k covers k to k + 1. A pixel belongs to a region if its centre lies inside (even-odd rule
over all rings of a polygon, so that inner rings are holes). Boxes are (x0, y0, x1, y1), half open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from m3b.errors import DataError

Box = tuple[float, ...]
"""(x0, y0, x1, y1), of volumes (x0, y0, z0, x1, y1, z1)."""

MAX_PIXELS = 2**31
"""Pixels of a mask that is drawn; larger images are refused before memory is asked for."""
SLACK = 0.02
"""Share of a side by which a box may reach beyond its image, besides one pixel."""
MIN_REACH = 0.5
"""Share of the sides of larger originals that boxes must reach beyond to be taken as drawn on these."""
ELLIPSE_CORNERS = 180
"""Corners of the polygon that stands for an ellipse; its area is 0.02 % smaller."""


class ImageSize(NamedTuple):
    """The size of an upright image in pixels, and the EXIF orientation by which its file was turned to get it."""

    width: int
    height: int
    orientation: int = 1

    @property
    def stored(self) -> tuple[int, int]:
        """(width, height) of the pixels as the file stores them."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


@dataclass(frozen=True, eq=False)
class VolumeGrid:
    """The grid of a volume.

    Args:
        shape: of the array (rows, columns, slices).
        affine: 4 x 4, from indices (row, column, slice) to mm in LPS; voxel centres lie at whole indices.
        series: SeriesInstanceUID of a DICOM series, if it is known.
    """

    shape: tuple[int, int, int]
    affine: Any
    series: str = ""


class Region(Protocol):
    """A region of an image."""

    def bounds(self) -> Box:
        """Return the enclosing box."""
        ...

    def fill(self, width: int, height: int) -> Any:
        """Return (height, width) bool: the pixels inside."""
        ...

    def scaled(self, x_factor: float, y_factor: float) -> Region:
        """Return the region with its coordinates multiplied."""
        ...


def check_pixels(width: int, height: int, depth: int = 1) -> None:
    """Raise if a mask of this size should not be drawn.

    Raises:
        DataError: code `image_too_large` or `invalid_size`.
    """
    if min(width, height, depth) <= 0:
        raise DataError(f"An image of {width} x {height} pixels has no area.", code="invalid_size")
    if width * height * depth > MAX_PIXELS:
        message = f"A mask of {width * height * depth:,} pixels is larger than the maximum of {MAX_PIXELS:,}."
        raise DataError(message, code="image_too_large")


@dataclass(frozen=True, eq=False)
class Polygon:
    """Rings of points, each (n, 2) of x, y; inner rings are holes."""

    rings: tuple[Any, ...]

    @classmethod
    def from_points(cls, *rings: Sequence[Sequence[float]]) -> Polygon:
        """Return the polygon of lists of points.

        Raises:
            ValueError: a ring has fewer than three points, or a coordinate is not a finite number.
        """
        import numpy as np

        arrays = tuple(np.asarray([(float(x), float(y)) for x, y in ring], dtype=float) for ring in rings)
        if not arrays or any(len(array) < 3 for array in arrays):
            raise ValueError("a polygon has fewer than three points")
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("a coordinate of a polygon is not a finite number")
        return cls(arrays)

    def bounds(self) -> Box:
        """Return the enclosing box."""
        import numpy as np

        points = np.concatenate(self.rings)
        (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
        return float(x0), float(y0), float(x1), float(y1)

    def fill(self, width: int, height: int) -> Any:
        """Return (height, width) bool: the pixels whose centres lie inside."""
        return fill_polygon(self.rings, width, height)

    def scaled(self, x_factor: float, y_factor: float) -> Polygon:
        """Return the polygon with its coordinates multiplied."""
        return Polygon(tuple(ring * (x_factor, y_factor) for ring in self.rings))


def fill_polygon(rings: Sequence[Any], width: int, height: int) -> Any:
    """Return (height, width) bool: pixels whose centres lie inside by the even-odd rule.

    Each edge toggles, in every row that it crosses, the first pixel to the right of the crossing; the parity along the row says
    which pixels are inside.
    """
    import numpy as np

    check_pixels(width, height)
    mask = np.zeros((height, width), bool)
    starts = np.concatenate(rings)
    ends = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    low_y = np.minimum(starts[:, 1], ends[:, 1])
    high_y = np.maximum(starts[:, 1], ends[:, 1])
    first_row = np.clip(np.ceil(low_y - 0.5), 0, height).astype(np.int64)
    end_row = np.clip(np.ceil(high_y - 0.5), 0, height).astype(np.int64)
    top, bottom = int(first_row.min()), int(end_row.max())
    if bottom <= top:
        return mask
    crossing = end_row > first_row
    x_bounds = np.concatenate([starts[:, 0], ends[:, 0]])
    first_column = int(np.clip(math.floor(x_bounds.min()), 0, width))
    right = int(np.clip(math.ceil(x_bounds.max()) + 1, 0, width))
    parity = np.zeros((bottom - top, right - first_column + 1), np.uint8)
    for edge in np.nonzero(crossing)[0]:
        (x0, y0), (x1, y1) = starts[edge], ends[edge]
        rows = np.arange(first_row[edge], end_row[edge])
        x_crossings = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
        columns = np.clip(np.ceil(x_crossings - 0.5), first_column, right).astype(np.int64)
        parity[rows - top, columns - first_column] ^= 1
    parity_mask = np.bitwise_xor.accumulate(parity, axis=1)[:, :-1]
    mask[top:bottom, first_column:right] = parity_mask.astype(bool)
    return mask


def rectangle(x0: float, y0: float, x1: float, y1: float, degrees: float = 0.0) -> Polygon:
    """Return a rectangle that is turned about its middle, clockwise."""
    corners = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    return Polygon.from_points(_turned(corners, ((x0 + x1) / 2, (y0 + y1) / 2), degrees))


def ellipse(cx: float, cy: float, rx: float, ry: float, degrees: float = 0.0) -> Polygon:
    """Return the polygon that stands for an ellipse, turned clockwise about its middle.

    Raises:
        ValueError: a radius is not positive.
    """
    if not (rx > 0 and ry > 0):
        raise ValueError(f"an ellipse has the radii {rx} and {ry}")
    angles = [2 * math.pi * corner / ELLIPSE_CORNERS for corner in range(ELLIPSE_CORNERS)]
    points = [(cx + rx * math.cos(angle), cy + ry * math.sin(angle)) for angle in angles]
    return Polygon.from_points(_turned(points, (cx, cy), degrees))


def _turned(
    points: Sequence[tuple[float, float]], centre: tuple[float, float], degrees: float
) -> list[tuple[float, float]]:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if not degrees:
        return list(points)
    return [
        (
            centre[0] + (x - centre[0]) * cosine - (y - centre[1]) * sine,
            centre[1] + (x - centre[0]) * sine + (y - centre[1]) * cosine,
        )
        for x, y in points
    ]


@dataclass(frozen=True, eq=False)
class Union:
    """Several regions that are one object."""

    regions: tuple[Region, ...]

    def bounds(self) -> Box:
        """Return the enclosing box."""
        return enclose([region.bounds() for region in self.regions])

    def fill(self, width: int, height: int) -> Any:
        """Return (height, width) bool: pixels inside any of them."""
        mask = self.regions[0].fill(width, height)
        for region in self.regions[1:]:
            mask |= region.fill(width, height)
        return mask

    def scaled(self, x_factor: float, y_factor: float) -> Union:
        """Return all of them with their coordinates multiplied."""
        return Union(tuple(region.scaled(x_factor, y_factor) for region in self.regions))


@dataclass(frozen=True, eq=False)
class Bitmap:
    """Pixels of a part of the image.

    Args:
        first_column, first_row: of the part.
        width, height: of the part.
        decode: gives (height, width) bool; called when the mask is needed.
        is_whole: whether the part is the whole image, which must then have this size.
    """

    first_column: int
    first_row: int
    width: int
    height: int
    decode: Callable[[], Any]
    is_whole: bool = False

    def bounds(self) -> Box:
        """Return the box of the marked pixels; that of the part if none is."""
        import numpy as np

        pixels = self._pixels()
        rows, columns = np.nonzero(pixels.any(axis=1))[0], np.nonzero(pixels.any(axis=0))[0]
        if not len(rows):
            return float(self.first_column), float(self.first_row), float(self.first_column), float(self.first_row)
        return (
            float(self.first_column + columns[0]),
            float(self.first_row + rows[0]),
            float(self.first_column + columns[-1] + 1),
            float(self.first_row + rows[-1] + 1),
        )

    def fill(self, width: int, height: int) -> Any:
        """Return (height, width) bool.

        Raises:
            DataError: code `size_differs`: it covers a whole image of another size.
        """
        import numpy as np

        if self.is_whole and (self.width, self.height) != (width, height):
            message = f"A mask of {self.width} x {self.height} pixels was drawn on an image of {width} x {height}."
            raise DataError(message, code="size_differs")
        check_pixels(width, height)
        mask = np.zeros((height, width), bool)
        pixels = self._pixels()
        top, first_column = max(self.first_row, 0), max(self.first_column, 0)
        bottom, right = min(self.first_row + self.height, height), min(self.first_column + self.width, width)
        if bottom > top and right > first_column:
            mask[top:bottom, first_column:right] = pixels[
                top - self.first_row : bottom - self.first_row,
                first_column - self.first_column : right - self.first_column,
            ]
        return mask

    def scaled(self, x_factor: float, y_factor: float) -> Bitmap:
        """Return itself: pixels are not scaled."""
        return self

    def _pixels(self) -> Any:
        check_pixels(self.width, self.height)
        pixels = self.decode()
        if pixels.shape != (self.height, self.width):
            shape = f"{pixels.shape[1]} x {pixels.shape[0]}" if pixels.ndim == 2 else str(pixels.shape)
            raise DataError(
                f"A mask of {shape} pixels is declared as {self.width} x {self.height}.", code="damaged_mask"
            )
        return pixels


def enclose(boxes: Sequence[Box]) -> Box:
    """Return the box around boxes of equal numbers of axes."""
    half = len(boxes[0]) // 2
    low = [min(box[axis] for box in boxes) for axis in range(half)]
    high = [max(box[axis] for box in boxes) for axis in range(half, 2 * half)]
    return (*low, *high)


def overlap(first: Box, second: Box) -> float:
    """Return the intersection over union of two flat boxes."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (first, second))
    return width * height / (areas - width * height)


def decode_runs(lengths: Any, size: int) -> Any:
    """Return (size,) bool of lengths of runs that alternate between outside and inside, outside first.

    Raises:
        DataError: code `damaged_mask`: they are negative, or do not add up to the size.
    """
    import numpy as np

    try:
        array = np.asarray(lengths, dtype=np.int64)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"Run lengths are no whole numbers: {error}.", code="damaged_mask") from error
    if array.ndim != 1 or (array < 0).any() or (array > size).any() or int(array.sum()) != size:
        raise DataError(f"Run lengths do not add up to the {size:,} pixels of their mask.", code="damaged_mask")
    return np.repeat(np.arange(len(array)) % 2 == 1, array)


def turn_point(x: float, y: float, size: ImageSize) -> tuple[float, float]:
    """Return a point of the stored pixels on the upright image, as EXIF turns it."""
    width, height = size.stored
    turns = {
        1: (x, y),
        2: (width - x, y),
        3: (width - x, height - y),
        4: (x, height - y),
        5: (y, x),
        6: (height - y, x),
        7: (height - y, width - x),
        8: (y, width - x),
    }
    return turns.get(size.orientation, (x, y))


def turn_box(box: Box, size: ImageSize) -> Box:
    """Return a box of the stored pixels on the upright image."""
    first, second = turn_point(box[0], box[1], size), turn_point(box[2], box[3], size)
    return min(first[0], second[0]), min(first[1], second[1]), max(first[0], second[0]), max(first[1], second[1])


def turn_mask(mask: Any, orientation: int) -> Any:
    """Return a mask (rows, columns) of the stored pixels on the upright image."""
    import numpy as np

    if orientation >= 5:
        mask = mask.T
    if orientation in (2, 3, 6, 7):
        mask = mask[:, ::-1]
    if orientation in (3, 4, 7, 8):
        mask = mask[::-1]
    return np.ascontiguousarray(mask)
