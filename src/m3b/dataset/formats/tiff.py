"""TIFF with tifffile: BigTIFF, tiles, any compression, OME-TIFF and ImageJ axes, pyramids by level, pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .base import (
    Format,
    FormatNote,
    Image,
    ImageInfo,
    Mask,
    check_memory,
    labels_from_image,
    load_library,
    merge_equal_channels,
    naming_file,
    parse_number,
    spread_frames,
    stack_frames,
    turn_upright,
)
from .errors import DataError
from .pictures import describe_picture, write_png_labels
from .slides import OVERVIEW_SIDE, Part, is_slide, list_levels, parse_part, read_part, slide_spacing

_MINISWHITE, _PALETTE, _SEPARATED = 0, 3, 5
_UNASSOCIATED = (1, 2)
"""Extra samples that are transparency."""
_MM_PER_UNIT = {"m": 1e3, "cm": 10.0, "mm": 1.0, "µm": 1e-3, "um": 1e-3, "micron": 1e-3, "microns": 1e-3, "nm": 1e-6,
                "\\u00b5m": 1e-3, "inch": 25.4}  # fmt: skip
_KEYS = ("level", "series", "page", "time", "frames", "frame")


class Tiff(Format):
    """TIFF. `#level=N` is a level of a pyramid, `#series=N` another image, `#page=N` a page, `#time=N` a point in time.

    `#overview=SIDE` is the whole first image, reduced to at most this side; `#part=ROW,COLUMN,HEIGHT,WIDTH,FACTOR` a part of it.
    """

    name = "tiff"
    suffixes = (".tif", ".tiff", ".btf", ".tf8", ".svs", ".ndpi", ".scn", ".lsm", ".stk")
    magic = ((0, b"II*\0"), (0, b"MM\0*"), (0, b"II+\0"), (0, b"MM\0+"))

    def overview_item(self, path: Path, item: str = "") -> str:
        if item:
            return item
        with self._open_tiff(path) as file:
            return f"overview={OVERVIEW_SIDE}" if is_slide(list_levels(file, file.series[0])) else ""

    @contextmanager
    def _open_tiff(self, path: Path) -> Iterator[Any]:
        tifffile = load_library(path, "tifffile", "tifffile imagecodecs")
        with naming_file(path), tifffile.TiffFile(path, _multifile=False) as file:  # OME-XML may name other files
            if not file.pages:
                raise DataError(f"{path}: a TIFF file without any page")
            _check_pages(path, file)
            yield file

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with self._open_tiff(path) as file:
            region = _find_part(path, file, item)
            part = None if region else parse_number(path, item, _KEYS)
            series = _chosen_series(path, file, part)
            page = series.keyframe
            layout = _layout(path, series, part)
            orientation = _orientation(page)
            sides = (layout["rows"], layout["columns"])
            sides = sides[::-1] if orientation >= 5 else sides
            depth = part[1] if part and part[0] == "frames" else layout["depth"]
            bits = int(page.bitspersample)
            spacing = _spacing(file, series)
            shape = (*sides, depth) if depth > 1 else sides
            if region:
                shape = (-(-region.height // region.factor), -(-region.width // region.factor))
                spacing = _reduced_spacing(spacing, region)
            palette = int(page.photometric) == _PALETTE
            return ImageInfo(
                self.name,
                shape,
                3 if palette else layout["channels"],
                "uint8" if palette or bits == 1 else str(np.dtype(series.dtype)),
                len(shape),
                spacing=spacing[: len(shape)] if spacing else None,
                bits_stored=bits,
                stored_range=_stored_range(page),
                photometric=getattr(page.photometric, "name", str(page.photometric)).lower(),
                frames=max(layout["depth"], layout["times"]),
                items=1 if is_slide(list_levels(file, file.series[0])) else len(file.series),
                orientation=orientation,
                lossy=int(page.compression) in (6, 7, 33003, 33005, 34712, 50001),
                notes=_notes(file, series),
            )

    def read(self, path: Path, item: str = "") -> Image:
        with self._open_tiff(path) as file:
            region = _find_part(path, file, item)
            part = None if region else parse_number(path, item, _KEYS)
            series = _chosen_series(path, file, part)
            page = series.keyframe
            array = _read_region(path, file, region) if region else _decode(path, file, series, part)
            if int(page.photometric) == _PALETTE and page.colormap is not None and array.shape[0] == 1:
                array = (page.colormap[:, array[0]] >> 8).astype(np.uint8)
            stored_range, orientation = _stored_range(page), _orientation(page)
            spacing = _reduced_spacing(_spacing(file, series), region)
            notes = _notes(file, series)
            array = _as_displayed(array, page)
        array = array if region else merge_equal_channels(array)  # a part may be white
        if array.shape[-1] == 1:
            array = array[..., 0]
            array = turn_upright(array, orientation)
            return Image(
                array,
                spacing[:2] if spacing else None,
                2,
                stored_range=stored_range,
                orientation=orientation,
                notes=notes,
            )
        if part and part[0] == "frames":
            return stack_frames([np.asarray(array[..., at]) for at in spread_frames(array.shape[-1], max(1, part[1]))])
        if orientation != 1:
            array = np.stack([turn_upright(array[..., at], orientation) for at in range(array.shape[-1])], axis=-1)
        return Image(
            np.ascontiguousarray(array), spacing, 3, stored_range=stored_range, orientation=orientation, notes=notes
        )

    def read_labels(self, path: Path, item: str = "") -> Mask:
        """Return label numbers: palette indices; else grey values, or the numbers of colours."""
        with self._open_tiff(path) as file:
            part = parse_number(path, item, _KEYS)
            series = _chosen_series(path, file, part)
            page = series.keyframe
            if int(page.photometric) == _PALETTE and page.colormap is not None:
                indices = _decode(path, file, series, part)[0]
                colours = {
                    int(index): tuple(int(value) >> 8 for value in page.colormap[:, int(index)])
                    for index in np.unique(indices)
                }
                labels = np.stack(
                    [turn_upright(indices[..., at], _orientation(page)) for at in range(indices.shape[-1])], -1
                )
                return Mask(labels[..., 0] if labels.shape[-1] == 1 else labels, colours=colours)  # type: ignore[arg-type]
        return labels_from_image(self.read(path, item), str(path))

    def write_labels(self, array: np.ndarray, reference: Path, stem: Path, item: str = "") -> Path | None:
        return write_png_labels(array, stem)

    def describe(self, path: Path) -> str:
        info = self.probe(path)
        if info.dims == 3 or (info.channels not in (1, 3) and info.photometric != "palette"):
            return super().describe(path)
        width, height = info.shape[::-1] if info.orientation < 5 else info.shape
        kind = "float" if info.dtype.startswith("float") else "palette" if info.photometric == "palette" else "grey"
        words = f"{info.bits_stored}-bit {'RGB' if info.channels == 3 and kind == 'grey' else kind}"
        words += " grey" if kind == "float" and info.channels == 1 else ""
        line = describe_picture("TIFF", width, height, words, info.orientation, 1)
        return "\n".join([", ".join([line, *map(str, info.notes)]), self.describe_content(path, info)])

    def items(self, path: Path, limit: int = 1000) -> tuple[str, ...]:
        with self._open_tiff(path) as file:
            count = 1 if is_slide(list_levels(file, file.series[0])) else len(file.series)
            return ("",) if count == 1 else tuple(f"series={number}" for number in range(min(count, limit)))


def _find_part(path: Path, file: Any, item: str) -> Part | None:
    """Return the part of the first image that an item names; None for other items."""
    page = file.series[0].keyframe
    return parse_part(path, item, (int(page.imagelength), int(page.imagewidth)))


def _read_region(path: Path, file: Any, region: Part) -> np.ndarray:
    """Return (C, rows, columns, 1) as stored. Raises DataError."""
    levels = list_levels(file, file.series[0])
    page = file.series[0].keyframe
    if not levels or _orientation(page) != 1 or int(page.photometric) == _PALETTE:
        raise DataError(
            f"{path}#{region.to_item()}: parts are read of 2D images that are stored upright, without a palette"
        )
    check_memory(path, (region.height // region.factor, region.width // region.factor, page.samplesperpixel), 4)
    return np.moveaxis(read_part(levels, region), -1, 0)[..., None]


def _reduced_spacing(spacing: tuple[float, ...] | None, region: Part | None) -> tuple[float, ...] | None:
    return tuple(step * region.factor for step in spacing[:2]) if spacing and region else spacing


def _chosen_series(path: Path, file: Any, part: tuple[str, int] | None) -> Any:
    """Return the series, or the level of one, that an item names; without one the first series at full size."""
    number = part[1] if part and part[0] == "series" else 0
    if number >= len(file.series):
        raise DataError(f"{path}#series={number}: the file has {len(file.series)} images, counted from 0")
    series = file.series[number]
    if part and part[0] == "level":
        if part[1] >= len(series.levels):
            raise DataError(f"{path}#level={part[1]}: the pyramid has {len(series.levels)} levels, counted from 0")
        return series.levels[part[1]]
    return series


def _layout(path: Path, series: Any, part: tuple[str, int] | None) -> dict[str, int]:
    """Return rows, columns, channels, depth and times of a series by its axes."""
    sizes: dict[str, int] = {"rows": 0, "columns": 0, "channels": 1, "depth": 1, "times": 1}
    names = {"Y": "rows", "X": "columns", "S": "channels", "C": "channels", "T": "times"}
    for axis, size in zip(series.axes, series.shape, strict=True):
        key = names.get(axis, "depth")
        sizes[key] = int(size) if key in ("rows", "columns") else sizes[key] * int(size)
    if not sizes["rows"] or not sizes["columns"]:
        raise DataError(f"{path}: has the axes {series.axes} with sizes {series.shape}, which are no picture")
    if part and part[0] in ("page", "frame"):
        return {**sizes, "depth": 1, "times": 1}
    if part and part[0] == "time":
        return {**sizes, "times": 1}
    if sizes["depth"] > 1 and sizes["times"] > 1:
        raise DataError(
            f"{path}: has {sizes['times']} points in time with {sizes['depth']} slices each; name one as {path}#time=0"
        )
    sizes["depth"] = max(sizes["depth"], sizes["times"])
    if "S" in series.axes and int(series.keyframe.photometric) not in (_MINISWHITE, 1):
        sizes["channels"] = 3
    elif "S" in series.axes and any(int(extra) in _UNASSOCIATED for extra in series.keyframe.extrasamples):
        sizes["channels"] -= 1
    return sizes


def _decode(path: Path, file: Any, series: Any, part: tuple[str, int] | None) -> np.ndarray:
    """Return (C, rows, columns, slices) as stored."""
    _layout(path, series, part)
    levels = len(getattr(series, "levels", ()))
    hint = f"name a smaller level of the pyramid, such as {path}#level={levels - 1}" if levels > 1 else ""
    axes, shape = series.axes, series.shape
    pages: Any = series
    if part and part[0] in ("page", "frame"):
        if part[1] >= len(series.pages):
            raise DataError(f"{path}#{part[0]}={part[1]}: has {len(series.pages)} pages, counted from 0")
        pages = series.pages[part[1]]
        axes, shape = pages.axes, pages.shape
    check_memory(path, shape, int(np.dtype(series.dtype).itemsize), hint)
    _check_complete(path, pages)
    array = np.asarray(pages.asarray())
    if part and part[0] == "time" and "T" in axes:
        if part[1] >= shape[axes.index("T")]:
            raise DataError(f"{path}#time={part[1]}: has {shape[axes.index('T')]} points in time, counted from 0")
        array = np.take(array, part[1], axes.index("T"))
        axes = axes.replace("T", "", 1)
    if array.dtype == bool:
        array = array.astype(np.uint8) * np.uint8(255)
    groups: dict[str, list[int]] = {"channels": [], "depth": []}
    for place, axis in enumerate(axes):
        if axis not in "YX":
            groups["channels" if axis in "SC" else "depth"].append(place)
    order = (*groups["channels"], axes.index("Y"), axes.index("X"), *groups["depth"])
    array = np.transpose(array, order)
    channels = int(np.prod([array.shape[place] for place in range(len(groups["channels"]))], dtype=np.int64))
    rows, columns = array.shape[len(groups["channels"])], array.shape[len(groups["channels"]) + 1]
    return array.reshape(channels, rows, columns, -1)


def _as_displayed(array: np.ndarray, page: Any) -> np.ndarray:
    """Return colours as RGB without transparency, and grey with dark meaning low."""
    photometric = int(page.photometric)
    if photometric == _MINISWHITE and array.dtype.kind == "u":
        top = (1 << int(page.bitspersample)) - 1 if page.bitspersample > 1 else 255
        return np.asarray(top - array).astype(array.dtype)
    if photometric == _SEPARATED and array.shape[0] == 4 and array.dtype == np.uint8:
        ink = array.astype(np.uint16)
        return ((255 - ink[:3]) * (255 - ink[3:]) // 255).astype(np.uint8)
    extra = [int(sample) for sample in page.extrasamples or ()]
    if (
        photometric in (_MINISWHITE, 1)
        and extra
        and all(sample in _UNASSOCIATED for sample in extra)
        and array.shape[0] > len(extra)
    ):
        return array[: -len(extra)]
    if photometric not in (_MINISWHITE, 1, _PALETTE) and array.shape[0] > 3 and page.samplesperpixel > 3:
        return array[:3]
    return array


def _check_pages(path: Path, file: Any) -> None:
    """Refuse a file whose last page refers to a further one beyond its end: tifffile would leave out the pages that are cut off."""
    file.filehandle.seek(file.pages.next_page_offset)
    following = file.filehandle.read(file.tiff.offsetsize)
    offset = int.from_bytes(following, "little" if file.tiff.byteorder == "<" else "big")
    if len(following) < file.tiff.offsetsize or offset >= file.filehandle.size:
        raise DataError(f"{path}: is cut off: pages beyond page {len(file.pages)} are missing; copy it again")


def _check_complete(path: Path, pages: Any) -> None:
    """Refuse a file whose tiles or strips lie beyond its end: tifffile would give zeros for some of them."""
    size = path.stat().st_size
    for page in getattr(pages, "pages", None) or [pages]:
        if page is None or not hasattr(page, "dataoffsets"):
            continue
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=False):
            if offset + count > size:
                raise DataError(
                    f"{path}: is cut off: pixels up to byte {offset + count:,}, and it has {size:,}; copy it again"
                )


def _orientation(page: Any) -> int:
    tag = page.tags.get(274)
    value = tag.value if tag is not None else 1
    return int(value) if value in range(1, 9) else 1


def _stored_range(page: Any) -> tuple[float, float] | None:
    """Return the range of the tags MaxSampleValue, or that of 8 bits; wider types show their bits by values alone."""
    bits = int(page.bitspersample)
    if int(page.photometric) == _PALETTE or bits in (1, 8):
        return (0.0, 255.0) if page.dtype is None or np.dtype(page.dtype).kind in "bu" else None
    tag = page.tags.get(281)
    value = tag.value if tag is not None else None
    highest = max(value) if isinstance(value, tuple) and value else value
    if np.dtype(page.dtype).kind != "u":
        return None
    if isinstance(highest, int) and 0 < highest < (1 << bits) and (highest + 1) & highest == 0:
        return 0.0, float(highest)
    return (0.0, float((1 << bits) - 1)) if bits not in (16, 32, 64) else None


def _spacing(file: Any, series: Any) -> tuple[float, ...] | None:
    """Return mm along rows, columns and slices from OME-XML, ImageJ or slides; resolutions of others are those of printers."""
    if file.is_ome and file.ome_metadata:
        return _ome_spacing(file.ome_metadata)
    if file.is_imagej and file.imagej_metadata:
        metadata = file.imagej_metadata
        factor = _MM_PER_UNIT.get(str(metadata.get("unit", "")).strip().lower())
        steps = []
        for name in ("YResolution", "XResolution"):
            tag = series.keyframe.tags.get(name)
            if factor is None or tag is None or not tag.value[0] or not tag.value[1]:
                return None
            steps.append(factor * tag.value[1] / tag.value[0])
        return (*steps, factor * float(metadata.get("spacing", 1.0))) if factor else None
    if series is file.series[0] and is_slide(list_levels(file, series)):
        return slide_spacing(file, series.keyframe)
    return None


def _ome_spacing(text: str) -> tuple[float, ...] | None:
    from xml.etree import ElementTree

    root = ElementTree.fromstring(text)  # nosec B314  # expat limits entities; the file is read in a confined process
    pixels = next((node for node in root.iter() if node.tag.rpartition("}")[2] == "Pixels"), None)
    if pixels is None:
        return None
    steps = []
    for axis in "YXZ":
        value = pixels.get(f"PhysicalSize{axis}")
        factor = _MM_PER_UNIT.get(pixels.get(f"PhysicalSize{axis}Unit", "µm"))
        if value is None and axis == "Z":
            break
        if value is None or factor is None or not float(value) > 0:
            return None
        steps.append(factor * float(value))
    return tuple(steps)


def _notes(file: Any, series: Any) -> tuple[FormatNote, ...]:
    notes = []
    levels = list_levels(file, series) if series is file.series[0] else []
    count = max(len(series.levels), len(levels))
    if count > 1:
        notes.append(FormatNote("pyramid", {"levels": count}))
    if is_slide(levels):
        sides = {"rows": levels[0].page.imagelength, "columns": levels[0].page.imagewidth}
        notes.append(FormatNote("slide", sides))
    elif len(file.series) > 1:
        notes.append(FormatNote("several_images", {"count": len(file.series)}))
    return tuple(notes)


FORMATS = (Tiff(),)
