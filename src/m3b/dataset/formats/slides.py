"""Whole-slide images in TIFF: levels that are SubIFDs or pages, and parts of an image at reduced size, read segment by segment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DataError

MIN_SLIDE_SIDE = 2048
"""Longest side, in pixels, from which a tiled or pyramidal colour image is a slide."""
OVERVIEW_SIDE = 1024
"""Maximum side of an overview."""
BAND_BYTES = 16 << 20
"""Bytes that are decoded at once, unless a row of segments has more."""
MAX_MICROSCOPE_STEP = 0.01
"""Maximum mm of a pixel of a microscope; stated resolutions that are coarser are those of printers."""
MM_PER_RESOLUTION_UNIT = {2: 25.4, 3: 10.0, 4: 1.0, 5: 1e-3}
RGB_PHOTOMETRICS = (2, 6)


@dataclass(frozen=True)
class Level:
    """One resolution of a slide: a page whose sides are `factor` times shorter than those of the full size."""

    factor: int
    page: Any


@dataclass(frozen=True)
class Part:
    """A part of an image: corner and sides in pixels of the full size, and the factor by which the sides are reduced."""

    row: int
    column: int
    height: int
    width: int
    factor: int

    def to_item(self) -> str:
        """Return the item after the # of a path."""
        return f"part={self.row},{self.column},{self.height},{self.width},{self.factor}"


def parse_part(path: object, item: str, shape: tuple[int, int]) -> Part | None:
    """Return the part that an item names (`part=ROW,COLUMN,HEIGHT,WIDTH,FACTOR` or `overview=SIDE`); None for other items.

    Args:
        shape: rows and columns of the full size.

    Raises:
        DataError: the part is not within the image, or its factor is no power of 2.
    """
    if match := re.fullmatch(r"overview=([1-9]\d{0,5})", item):
        return Part(0, 0, *shape, overview_factor(shape, int(match[1])))
    if not (match := re.fullmatch(r"part=(\d{1,9}),(\d{1,9}),(\d{1,9}),(\d{1,9}),(\d{1,9})", item)):
        return None
    part = Part(*(int(number) for number in match.groups()))
    is_inside = part.row < shape[0] and part.column < shape[1] and part.height and part.width
    if not is_inside or not part.factor or part.factor & (part.factor - 1):
        raise DataError(f"{path}#{item}: no part of {shape[0]} x {shape[1]} pixels with a factor that is a power of 2")
    return part


def overview_factor(shape: tuple[int, ...], side: int = OVERVIEW_SIDE) -> int:
    """Return the lowest power of 2 by which no side is longer than `side`."""
    return 1 << max(0, (-(-max(shape) // side) - 1).bit_length())


def list_levels(file: Any, series: Any) -> list[Level]:
    """Return the levels of an image with segments that can be read one by one, from the full size down; [] if it has none.

    Levels are those of the series, or reduced or tiled pages of the same proportions, as converters and scanners write them.
    """
    base = series.keyframe
    if series.ndim - ("S" in series.axes) != 2 or len(series.pages) != 1 or int(base.planarconfig or 1) != 1:
        return []
    own_levels = [level.keyframe for level in series.levels]
    pages = (
        own_levels if len(own_levels) > 1 else [base, *(other.keyframe for other in file.series if other is not series)]
    )
    levels = []
    for page in pages:
        factor = round(base.imagelength / page.imagelength)
        sides = zip((base.imagelength, base.imagewidth), (page.imagelength, page.imagewidth), strict=True)
        is_level = page is base or (factor > 1 and (page.is_reduced or page.is_tiled))
        has_same_pixels = page.samplesperpixel == base.samplesperpixel and page.dtype == base.dtype
        if is_level and has_same_pixels and all(abs(whole - factor * side) <= factor for whole, side in sides):
            levels.append(Level(factor, page))
    return sorted({level.factor: level for level in levels}.values(), key=lambda level: level.factor)


def is_slide(levels: list[Level]) -> bool:
    """Return whether an image is a slide: 8-bit colour, tiled or with several levels, and large."""
    if not levels:
        return False
    base = levels[0].page
    is_colour = int(base.photometric) in RGB_PHOTOMETRICS and base.samplesperpixel >= 3 and base.dtype == np.uint8
    is_large = max(base.imagelength, base.imagewidth) >= MIN_SLIDE_SIDE
    return is_colour and is_large and (bool(base.is_tiled) or len(levels) > 1)


def slide_spacing(file: Any, page: Any) -> tuple[float, float] | None:
    """Return mm along rows and columns as slide scanners state them: Aperio's MPP, or a resolution that is a microscope's."""
    if file.is_svs and (match := re.search(r"\|\s*MPP\s*=\s*([\d.]+)", page.description)):
        step = float(match[1]) * 1e-3
        return (step, step) if 0 < step <= MAX_MICROSCOPE_STEP else None
    unit = page.tags.get("ResolutionUnit")
    tags = [page.tags.get(name) for name in ("YResolution", "XResolution")]
    factor = MM_PER_RESOLUTION_UNIT.get(int(unit.value) if unit is not None else 2)
    if factor is None or any(tag is None or not all(tag.value) for tag in tags):
        return None
    rows, columns = (factor * tag.value[1] / tag.value[0] for tag in tags if tag is not None)
    return (rows, columns) if max(rows, columns) <= MAX_MICROSCOPE_STEP else None


def read_part(levels: list[Level], part: Part) -> np.ndarray:
    """Return (rows, columns, samples) of a part, reduced by block means; beyond the image its border is continued.

    The smallest level is read that is no coarser than the part, and no more of it at once than `BAND_BYTES` or a row of segments.
    """
    level = max((item for item in levels if part.factor % item.factor == 0), key=lambda item: item.factor)
    step = part.factor // level.factor
    rows, columns = (-(-side // part.factor) for side in (part.height, part.width))
    top, left = part.row // level.factor, part.column // level.factor
    row_bytes = step * columns * step * level.page.samplesperpixel * np.dtype(level.page.dtype).itemsize
    band = max(1, BAND_BYTES // row_bytes, -(-_segment_shape(level.page)[0] // step))
    bands = []
    for start in range(0, rows, band):
        count = min(band, rows - start)
        window = _read_window(level.page, top + start * step, left, count * step, columns * step)
        means = window.reshape(count, step, columns, step, -1).mean(axis=(1, 3), dtype=np.float32)
        bands.append(np.round(means).astype(window.dtype) if window.dtype.kind in "ui" else means.astype(window.dtype))
    return np.concatenate(bands)


def _segment_shape(page: Any) -> tuple[int, int]:
    """Return rows and columns of a tile or strip."""
    if page.is_tiled:
        return int(page.tilelength), int(page.tilewidth)
    return int(min(page.rowsperstrip or page.imagelength, page.imagelength)), int(page.imagewidth)


def _read_window(page: Any, top: int, left: int, height: int, width: int) -> np.ndarray:
    """Return (height, width, samples) of a page; beyond its border the last row and column are repeated."""
    bottom, right = min(top + height, page.imagelength), min(left + width, page.imagewidth)
    top, left = min(top, bottom - 1), min(left, right - 1)
    rows, columns = bottom - top, right - left
    window = np.zeros((height, width, page.samplesperpixel), page.dtype)
    for segment, row, column in _decode_segments(page, top, left, bottom, right):
        start, stop = max(row, top), min(row + segment.shape[0], bottom)
        first, last = max(column, left), min(column + segment.shape[1], right)
        window[start - top : stop - top, first - left : last - left] = segment[
            start - row : stop - row, first - column : last - column
        ]
    window[:rows, columns:] = window[:rows, columns - 1 : columns]
    window[rows:] = window[rows - 1 : rows]
    return window


def _decode_segments(page: Any, top: int, left: int, bottom: int, right: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the segments that a window meets as (rows, columns, samples), with the place of their corner."""
    segment_rows, segment_columns = _segment_shape(page)
    across = -(-page.imagewidth // segment_columns)
    handle, decode = page.parent.filehandle, page.decode
    shared = {"jpegtables": page.jpegtables, "jpegheader": page.jpegheader}
    for row in range(top // segment_rows, -(-bottom // segment_rows)):
        for column in range(left // segment_columns, -(-right // segment_columns)):
            index = row * across + column
            offset, count = page.dataoffsets[index], page.databytecounts[index]
            if offset + count > handle.size:
                raise DataError(
                    f"is cut off: pixels up to byte {offset + count:,}, and it has {handle.size:,}; copy it again"
                )
            if not count:
                continue  # a segment that was not stored, which stays 0
            handle.seek(offset)
            segment, _, shape = decode(handle.read(count), index, **shared)
            yield segment[0, : shape[1], : shape[2]], row * segment_rows, column * segment_columns
