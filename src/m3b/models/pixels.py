"""What is asked of the reader process where images are prompted: pixels of images and masks, and masks written.

Whole volumes cross as a file of plain values in a folder that the reader may write to; planes cross in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.records import Record, plain
from m3b.errors import DataError
from m3b.reader import Reader, Request
from m3b.reader.blob import Blob
from m3b.reader.outside import file_of, placed, reading
from m3b.untrusted import TemporaryFolder, Unsafe, read_bytes

_NAME = "pixels"
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class ToShow:
    """An image or a mask at an absolute path, and the folder for its values.

    Args:
        value: of a mask: what is asked for; None takes all that is not 0. Not for images.
    """

    path: str
    folder: Path
    mask: bool = False
    value: int | None = None


@dataclass(frozen=True)
class WrittenShape:
    """Of the values that were written."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class ToSave:
    """A mask whose values lie in the folder, and the image on whose grid it shall be written there."""

    folder: Path
    shape: tuple[int, ...]
    like: str


@dataclass(frozen=True)
class ToMark:
    """One record of an index of masks whose paths count from `base`, and its classes by value."""

    record: Record
    values: dict[str, int]
    base: Path


@dataclass(frozen=True)
class MaskPlane:
    """One class in one plane: which of `pictures`, which slice of a volume, and (H, W) bytes of 0 and 1."""

    name: str
    picture: int
    slice_index: int | None
    truth: Blob


@dataclass(frozen=True)
class MarkedCase:
    """The classes of a case: a volume gives of each the slice where it is largest.

    Args:
        shape: rows and columns of every picture.
        pictures: (H, W, 3) bytes each.
        sizes: class -> pixels in its plane; those with too few have no part.
    """

    shape: tuple[int, int] = (0, 0)
    pictures: list[Blob] = field(default_factory=list)
    parts: list[MaskPlane] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    fault: str = ""


SHOW = Request("m3b.models.pixels:show", ToShow, WrittenShape, 600.0)
SAVE = Request("m3b.models.pixels:save", ToSave, str)
MARK = Request("m3b.models.pixels:mark", ToMark, MarkedCase, 600.0)
MIN_PIXELS = 16
"""Smaller targets have no part: a click into one says it all, and their IoU is noise."""


def show(asked: ToShow) -> WrittenShape:
    """Inside the reader: (H, W[, D], 3) uint8 of an image as overlays show it, or (H, W[, D]) of a mask. Raises DataError."""
    from m3b.data.reading import read_image, read_mask

    from .overlays.planes import shown

    if asked.mask:
        labels = np.asarray(read_mask(asked.path).array)
        array = (labels > 0 if asked.value is None else labels == asked.value).astype(np.uint8)
    else:
        image = read_image(asked.path)
        array = shown(image.array, image.modality)
    np.ascontiguousarray(array).tofile(asked.folder / _NAME)
    return WrittenShape(array.shape)


def save(asked: ToSave) -> str:
    """Inside the reader: write the mask; the name of its file. Raises DataError."""
    from m3b.data.reading import write_mask

    mask = np.fromfile(asked.folder / _NAME, np.uint8).reshape(asked.shape)
    return Path(write_mask(mask, asked.like, asked.folder / "mask")).name


def mark(asked: ToMark) -> MarkedCase:
    """Inside the reader. Raises DataError."""
    from m3b.data.reading import read_image, read_masks

    from .overlays.planes import shown

    base, mask_reference = str(asked.base), asked.record.mask
    image = read_image(plain(asked.record.image), base)
    picture = shown(image.array, image.modality)
    mask_files: Any = (
        mask_reference if isinstance(mask_reference, str | Mapping) or mask_reference is None else list(mask_reference)
    )
    masks = np.asarray(read_masks(mask_files, asked.values, base, picture.shape[:-1], plain(asked.record.image)))
    if masks.shape[1:] != picture.shape[:-1]:
        return MarkedCase(fault="the mask is of another shape than the image")
    target_planes = MarkedCase((int(picture.shape[0]), int(picture.shape[1])))
    planes: dict[int | None, int] = {}
    for name, mask in zip(asked.values, masks, strict=True):
        index = int(mask.sum(axis=(0, 1)).argmax()) if mask.ndim == 3 else None
        plane_mask = mask if index is None else mask[:, :, index]
        target_planes.sizes[name] = int(plane_mask.sum())
        if target_planes.sizes[name] < MIN_PIXELS:
            continue
        if index not in planes:
            planes[index] = len(target_planes.pictures)
            target_planes.pictures.append((picture if index is None else picture[:, :, index]).tobytes())
        target_planes.parts.append(MaskPlane(name, planes[index], index, plane_mask.astype(np.uint8).tobytes()))
    return target_planes


class Opener:
    """Opens images and masks for prompting: by a reader, with a folder of its own between both.

    Args:
        folder: which the reader may write to; whatever else it shall open lies there, or is seen by the reader.
    """

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder = reader, folder

    def image(self, path: str) -> Bytes:
        """(H, W[, D], 3) uint8, grey values windowed as overlays show them. Raises DataError."""
        return self._values(ToShow(placed(path), self.folder))

    def mask(self, path: str, value: int | None = None) -> Bytes:
        """(H, W[, D]), 1 where a mask's file has this value, or any. Raises DataError."""
        return self._values(ToShow(placed(path), self.folder, mask=True, value=value))

    def write(self, mask: np.ndarray, like: str, folder: Path) -> Path:
        """Write a mask with the geometry of its image; the file, `mask.` and what suits the image. Raises DataError."""
        mask.astype(np.uint8).tofile(self.folder / _NAME)
        name = self.reader.ask(SAVE, ToSave(self.folder, mask.shape, placed(like)))
        if Path(name).name != name or not name.startswith("mask."):
            raise DataError(f"The mask of {like} was written as {name!r}, which is no name for it.")
        file = folder / name
        file.write_bytes(_read(self.folder, name, 2**34))
        return file

    def _values(self, asked: ToShow) -> Bytes:
        shape = self.reader.ask(SHOW, asked).shape
        size = math.prod(shape)
        content = _read(self.folder, _NAME, size)
        if len(content) != size or min(shape, default=0) < 1:
            raise DataError(f"{asked.path}: its pixels came back incomplete. Try again.")
        (self.folder / _NAME).unlink()
        return np.frombuffer(bytearray(content), np.uint8).reshape(shape)


def _read(folder: Path, name: str, most: int) -> bytes:
    try:
        return read_bytes(folder, name, most)
    except (Unsafe, FileNotFoundError) as error:
        raise DataError(f"{name}: what the reader wrote cannot be read: {error}.") from error


@contextmanager
def opener(path: str | None) -> Iterator[Opener]:
    """What opens one image, and masks that are made of it in the opener's folder.

    Args:
        path: of a file, folder or item of an archive; None where nothing but masks is opened.
    """
    with TemporaryFolder("pixels") as scratch:
        folder = scratch.resolve()
        mounts = [] if path is None else [file_of(placed(path))]
        with reading([*mounts, folder], write=[folder]) as reader:
            yield Opener(reader, folder)
