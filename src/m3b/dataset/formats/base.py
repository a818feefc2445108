"""What all file formats share: the image that is read, the facts of a header, limits, and the class `Format`."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from .description import MAX_DESCRIBED_BYTES, describe_pixels
from .errors import DataError
from .geometry import Geometry

MAX_DECODED_BYTES = 4 << 30
"""Bytes that decoding one image may hold at once: half of what the confined reader has, as scaling makes a copy."""
HEAD_BYTES = 4096
"""Bytes at the start of a file by which its format is recognised."""


@dataclass(frozen=True, slots=True)
class FormatNote:
    """A named fact about a file that a reader of the image must know, such as `slice_gap` with its count of slices."""

    code: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.code, *(f"{key}={value}" for key, value in self.values.items())])


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """`array` is (C, H, W) or (C, H, W, D) in the file's own dtype (float32 after a rescale).

    Attributes:
        spacing: mm per spatial axis; None if unknown.
        dims: 2 or 3.
        modality: "ct", "mr", "xray", "us" or "pet" if the file says so, "ct" if the values can be nothing else, else "".
        channels: of an image composed of named channels, the modality of each and whether it has 8-bit values.
        affine: 4 x 4, from (row, column, slice) to LPS mm; None if unknown.
        stored_range: lowest and highest value that the bits stored can hold, in the units of `array`.
        window: lowest and highest value of the display window of the file, in the units of `array`.
        unit: of the values, such as "HU"; "" if the file does not say.
        orientation: the EXIF orientation by which the picture was turned upright; 1 if it was not.
    """

    array: np.ndarray
    spacing: tuple[float, ...] | None
    dims: int
    modality: str = ""
    channels: tuple[tuple[str, bool], ...] = ()
    affine: np.ndarray | None = None
    stored_range: tuple[float, float] | None = None
    window: tuple[float, float] | None = None
    unit: str = ""
    orientation: int = 1
    notes: tuple[FormatNote, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The grid of the image."""
        return Geometry(tuple(self.array.shape[1:]), self.spacing, self.affine, self.orientation)


@dataclass(frozen=True, slots=True, eq=False)
class ImageInfo:
    """What a header says about an image, in the axes of `Format.read`.

    `channels` counts the stored ones: colour with three equal channels is read as grey. `frames` counts pages, frames or
    volumes over time, `items` the images that the file holds.
    """

    format: str
    shape: tuple[int, ...]
    channels: int
    dtype: str
    dims: int
    spacing: tuple[float, ...] | None = None
    affine: np.ndarray | None = None
    modality: str = ""
    bits_stored: int | None = None
    stored_range: tuple[float, float] | None = None
    window: tuple[float, float] | None = None
    photometric: str = ""
    frames: int = 1
    items: int = 1
    orientation: int = 1
    unit: str = ""
    lossy: bool = False
    notes: tuple[FormatNote, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The grid of the image."""
        return Geometry(self.shape, self.spacing, self.affine, self.orientation)


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """`array` holds label numbers, (H, W) or (H, W, D); 0 is background.

    Attributes:
        colours: label number -> (red, green, blue), of palettes and of masks painted in colours.
        names: label number -> name, if the file has names.
        layers: (L, H, W, D) if the file has several layers that may overlap; `array` then shows the last one on top.
    """

    array: np.ndarray
    spacing: tuple[float, ...] | None = None
    affine: np.ndarray | None = None
    colours: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    layers: np.ndarray | None = None
    notes: tuple[FormatNote, ...] = ()


class Format(ABC):
    """A file format. A new one is a subclass with `name`, `suffixes`, `magic`, `probe` and `read`, passed to `register_format`.

    `item` names one image of a file that holds several, by the part after `#` of a path: `cases.npz#images[3]`,
    `slide.tif#level=2`, `cine.mp4#frames=4`, `photos.zip#a/b.png`.
    """

    name: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """In lower case, with the dot."""
    magic: ClassVar[tuple[tuple[int, bytes], ...]] = ()
    """(offset, bytes) by which the content is recognised; any of them is enough."""
    is_folder: ClassVar[bool] = False
    """Whether an image of this format is a folder."""
    is_container: ClassVar[bool] = False
    """Whether a file usually holds many images, which are addressed as items."""

    def has_suffix(self, name: str) -> bool:
        """Return whether a file name ends like this format."""
        return bool(self.suffixes) and name.lower().endswith(self.suffixes)

    def has_magic(self, head: bytes) -> bool:
        """Return whether the first bytes of a file are those of this format."""
        return any(head[offset : offset + len(mark)] == mark for offset, mark in self.magic)

    def matches(self, head: bytes, name: str) -> bool:
        """Return whether a file may have this format, by its first `HEAD_BYTES` bytes and its name."""
        return self.has_magic(head) or self.has_suffix(name)

    @abstractmethod
    def probe(self, path: Path, item: str = "") -> ImageInfo:
        """Return what the header says; pixels are decoded only if the format needs it. Raises DataError."""

    @abstractmethod
    def read(self, path: Path, item: str = "") -> Image:
        """Return the image. Raises DataError."""

    def read_labels(self, path: Path, item: str = "") -> Mask:
        """Return the mask that the file holds. Raises DataError for fractions, negative numbers and several channels."""
        return labels_from_image(self.read(path, item), str(path))

    def write_labels(self, array: np.ndarray, reference: Path, stem: Path, item: str = "") -> Path | None:
        """Write a mask on the grid of the image `like`; return the file, or None if the format cannot hold masks.

        Args:
            array: (H, W) or (H, W, D), in the axes of `read`.
            stem: the file to write, without suffix.
        """
        return None

    def file_grid(self, path: Path, item: str = "") -> tuple[np.ndarray, tuple[int, ...]] | None:
        """Return the LPS affine and sizes of the file's own axes (i, j, k); None if the format has no geometry."""
        return None

    def items(self, path: Path, limit: int = 1000) -> tuple[str, ...]:
        """Return the names of the images in the file, in order; a file that is one image has the name ""."""
        return ("",)

    def overview_item(self, path: Path, item: str = "") -> str:
        """Return the item by which an image is read that is too large to be read whole: a slide; of others `item` itself."""
        return item

    def sidecars(self, path: Path) -> tuple[Path, ...]:
        """Return the other files that belong to this one, whether they exist or not."""
        return ()

    def describe(self, path: Path) -> str:
        """Return a short text about the file, without anything that names a person: its header, then its values."""
        info = self.probe(path)
        return "\n".join([describe_info(info), self.describe_content(path, info)])

    def describe_content(self, path: Path, info: ImageInfo) -> str:
        """Return the range of the values, and the values themselves if they are few; pixels are decoded for it."""
        need = int(np.prod(info.shape, dtype=np.int64)) * info.channels * np.dtype(info.dtype).itemsize
        if need > MAX_DESCRIBED_BYTES:
            return f"values not read: {need:,} bytes; look at a part of them with a script"
        return describe_pixels(self.read(path).array)


def describe_info(info: ImageInfo) -> str:
    """Return one line with the facts of a header."""
    kind, axes = ("volume", "rows, columns, slices") if info.dims == 3 else ("picture", "rows, columns")
    sizes, plural = " x ".join(map(str, info.shape)), "s" if info.channels > 1 else ""
    parts = [f"{info.format} {kind}, {sizes} ({axes})", f"{info.channels} channel{plural}, {info.dtype}"]
    if info.bits_stored:
        parts.append(f"{info.bits_stored} bits stored")
    if info.spacing:
        parts.append(f"spacing {' x '.join(f'{step:.4g}' for step in info.spacing)} mm")
    for label, value in (("modality", info.modality), ("photometric", info.photometric), ("unit", info.unit)):
        if value:
            parts.append(f"{label} {value}")
    if info.window:
        parts.append(f"window {info.window[0]:g} to {info.window[1]:g}")
    if info.frames > 1:
        parts.append(f"{info.frames} frames")
    if info.items > 1:
        parts.append(f"{info.items} images")
    if info.orientation != 1:
        parts.append(f"EXIF orientation {info.orientation}: turned upright when read")
    if info.lossy:
        parts.append("lossy compression")
    return ", ".join([*parts, *map(str, info.notes)])


# --- errors and limits --------------------------------------------------------------------------------------------


@contextmanager
def naming_file(path: object) -> Iterator[None]:
    """Turn whatever a decoder raises into a DataError that names the file; damaged files make decoders raise anything."""
    try:
        yield
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(f"{path}: does not fit into memory") from error
    except Exception as error:  # foreign decoders raise what they like on damaged files
        raise DataError(f"{path}: cannot be read: {describe_error(error, path)}") from error


def describe_error(error: Exception, path: object) -> str:
    """Return the text of a decoder's error without the file; with the error's type if the text alone says little."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = text.replace(f" {str(path)!r}", "").replace(f"File {path}", "it")
    is_bare = not text or isinstance(error, LookupError | AttributeError | TypeError | AssertionError)
    return f"{type(error).__name__}: {text}" if is_bare else text


def check_memory(path: object, shape: Sequence[int], itemsize: int, hint: str = "") -> None:
    """Refuse an image that would need more than `MAX_DECODED_BYTES` at once.

    Raises:
        DataError: has both numbers.
    """
    need = itemsize
    for size in shape:
        need *= int(size)
    if need > MAX_DECODED_BYTES:
        raise DataError(
            f"{path}: its {' x '.join(map(str, shape))} values need {need:,} bytes of memory, and {MAX_DECODED_BYTES:,} "
            f"may be used for one image{hint and '; ' + hint}"
        )


def load_library(path: object, module: str, package: str) -> ModuleType:
    """Import a library that a format needs.

    Raises:
        DataError: it is not installed; says what installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(f"{path}: needs {module}, which is not installed; run: pip install {package}") from error


# --- names and items ----------------------------------------------------------------------------------------------


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key by which `slice2` comes before `slice10`."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def parse_number(path: object, item: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Return key and number of an item such as `frames=4`; None of an empty one.

    Raises:
        DataError: another form; names the keys that can be used.
    """
    if not item:
        return None
    match = re.fullmatch(r"([a-z]+)=(\d{1,9})", item)
    if not match or match[1] not in keys:
        expected = ", ".join(f"#{key}=N" for key in keys) or "nothing"
        raise DataError(f"{path}#{item}: no such part of this file; what can follow its name: {expected}")
    return match[1], int(match[2])


def spread_frames(count: int, number: int) -> list[int]:
    """Return the places of `number` frames out of `count`: the middles of as many equal parts."""
    return [min(count - 1, (2 * place + 1) * count // (2 * number)) for place in range(number)]


def stack_frames(frames: Sequence[np.ndarray], modality: str = "") -> Image:
    """Return frames (C, H, W) as the slices of a volume, one frame as a picture; grey and colour together become colour."""
    if len(frames) == 1:
        return Image(np.ascontiguousarray(frames[0]), None, 2, modality)
    channels = max(frame.shape[0] for frame in frames)
    planes = [np.broadcast_to(frame, (channels, *frame.shape[1:])) for frame in frames]
    return Image(np.stack(planes, axis=-1), None, 3, modality)


# --- pixels -------------------------------------------------------------------------------------------------------


def merge_equal_channels(array: np.ndarray) -> np.ndarray:
    """Return (C, ...) as (1, ...) if it is colour with three equal channels."""
    if array.shape[0] == 3 and np.array_equal(array[0], array[1]) and np.array_equal(array[0], array[2]):
        return np.ascontiguousarray(array[:1])
    return array


def turn_upright(array: np.ndarray, orientation: int) -> np.ndarray:
    """Return (..., rows, columns) as stored, turned for display by an EXIF orientation (EXIF 2.32, tag 0x0112)."""
    turned = np.swapaxes(array, -1, -2) if orientation >= 5 else array
    if orientation in (3, 4, 7, 8):
        turned = turned[..., ::-1, :]
    if orientation in (2, 3, 6, 7):
        turned = turned[..., ::-1]
    return np.ascontiguousarray(turned)


def smallest_label_type(highest: int) -> Any:
    """Return the smallest unsigned type for labels up to this number."""
    return np.uint8 if highest < 1 << 8 else np.uint16 if highest < 1 << 16 else np.uint32


def whole_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """Return an array as whole numbers of the smallest fitting type. Raises DataError for fractions, NaN and negatives."""
    if array.dtype.kind == "f":
        rounded = np.round(array)
        if not np.isfinite(array).all() or float(np.abs(array - rounded).max(initial=0)) > 1e-3:
            raise DataError(f"{name}: holds fractions or NaN; a mask must hold whole numbers (label 0, 1, 2, ...)")
        array = rounded
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: holds {array.dtype} values; a mask must hold whole numbers (label 0, 1, 2, ...)")
    if array.size and float(array.min()) < 0:
        raise DataError(f"{name}: holds {float(array.min()):g}; labels of a mask must not be negative")
    if array.size and float(array.max()) > 0xFFFFFFFF:
        raise DataError(f"{name}: holds {float(array.max()):g}; labels of a mask are at most {0xFFFFFFFF}")
    return np.ascontiguousarray(array.astype(smallest_label_type(int(array.max(initial=0)))))


def labels_from_colours(array: np.ndarray) -> tuple[np.ndarray, dict[int, tuple[int, int, int]]]:
    """Return 8-bit colours (3, ...) as label numbers red * 65536 + green * 256 + blue, and the colour of each number.

    The number of a colour is the same in all files; black is 0.
    """
    packed = array[0].astype(np.uint32) << 16 | array[1].astype(np.uint32) << 8 | array[2]
    numbers = [int(number) for number in np.unique(packed)]
    return packed, {number: (number >> 16, number >> 8 & 255, number & 255) for number in numbers}


def labels_from_image(image: Image, name: str) -> Mask:
    """Return the mask of an image with one channel, or of one painted in 8-bit colours. Raises DataError."""
    if image.array.shape[0] == 3 and image.array.dtype == np.uint8:
        packed, colours = labels_from_colours(image.array)
        notes = (*image.notes, FormatNote("labels_from_colours", {"count": len(colours)}))
        return Mask(packed, image.spacing, image.affine, colours, notes=notes)
    if image.array.shape[0] != 1:
        raise DataError(f"{name}: a mask must have one channel, this has {image.array.shape[0]} (colours, a series?)")
    return Mask(whole_numbers(image.array[0], name), image.spacing, image.affine, notes=image.notes)


def add_notes(image: Image, *notes: FormatNote) -> Image:
    """Return the image with further notes."""
    return replace(image, notes=(*image.notes, *notes)) if notes else image
