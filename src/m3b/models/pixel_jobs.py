"""Worker jobs for prompting: read pixels of images and masks, and write masks.

Whole volumes are passed as a file of raw values in a folder that the reader may write to; planes are passed in the
result itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.records import Record, plain
from m3b.errors import DataError
from m3b.isolation.reader import Reader, WorkerJob
from m3b.isolation.reader.base64_bytes import Blob
from m3b.isolation.reader.inprocess import file_of_reader_path, open_reader, to_reader_path
from m3b.isolation.untrusted import TemporaryFolder, UnsafePathError, read_bytes

_PIXELS_FILE = "pixels"
ByteArray = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class PixelsRequest:
    """An image or a mask at an absolute path, and the folder for its values.

    Args:
        label_value: for a mask, the label to select; None selects everything that is not 0. Not for images.
    """

    path: str
    folder: Path
    is_mask: bool = False
    label_value: int | None = None


@dataclass(frozen=True)
class ArrayShape:
    """Shape of the values that were written."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class SaveMaskRequest:
    """A mask whose values lie in the folder, and the image whose grid it gets when it is written there."""

    folder: Path
    shape: tuple[int, ...]
    reference_image: str


@dataclass(frozen=True)
class TargetPlanesRequest:
    """One record of an index of masks, with paths relative to `base`, and its classes by value."""

    record: Record
    values: dict[str, int]
    base: Path


@dataclass(frozen=True)
class MaskPlane:
    """One class in one plane: index in `pictures`, slice of a volume, and (H, W) bytes of 0 and 1."""

    name: str
    picture_index: int
    slice_index: int | None
    mask: Blob


@dataclass(frozen=True)
class TargetPlanes:
    """The classes of a case; in a volume, each class is shown in the slice where it is largest.

    Args:
        shape: rows and columns of every picture.
        pictures: (H, W, 3) bytes each.
        ignored: (H, W) bytes of 0 and 1 for each picture: pixels that nobody labelled; empty if the record names none.
        sizes: class -> pixels in its plane; classes with too few pixels have no plane.
    """

    shape: tuple[int, int] = (0, 0)
    pictures: list[Blob] = field(default_factory=list)
    ignored: list[Blob] = field(default_factory=list)
    planes: list[MaskPlane] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    error: str = ""


EXPORT_PIXELS_JOB = WorkerJob("m3b.models.pixel_jobs:export_pixels", PixelsRequest, ArrayShape, 600.0)
SAVE_MASK_JOB = WorkerJob("m3b.models.pixel_jobs:save_mask", SaveMaskRequest, str)
TARGET_PLANES_JOB = WorkerJob("m3b.models.pixel_jobs:extract_target_planes", TargetPlanesRequest, TargetPlanes, 600.0)
MIN_TARGET_PIXELS = 16
"""Smaller targets are not used: one click describes them entirely, and their IoU is noise."""


def export_pixels(request: PixelsRequest) -> ArrayShape:
    """Worker job: write an image as (H, W[, D], 3) uint8 in overlay style, or a mask (H, W[, D]). Raises DataError."""
    from m3b.dataset.reading import read_image, read_mask
    from m3b.models.overlay import to_display_rgb

    if request.is_mask:
        labels = np.asarray(read_mask(request.path).array)
        array = (labels > 0 if request.label_value is None else labels == request.label_value).astype(np.uint8)
    else:
        image = read_image(request.path)
        array = to_display_rgb(image.array, image.modality)
    np.ascontiguousarray(array).tofile(request.folder / _PIXELS_FILE)
    return ArrayShape(array.shape)


def save_mask(request: SaveMaskRequest) -> str:
    """Worker job: write the mask and return the name of its file. Raises DataError."""
    from m3b.dataset.reading import write_mask

    mask = np.fromfile(request.folder / _PIXELS_FILE, np.uint8).reshape(request.shape)
    return Path(write_mask(mask, request.reference_image, request.folder / "mask")).name


def extract_target_planes(request: TargetPlanesRequest) -> TargetPlanes:
    """Worker job: return the classes of a record as planes. Raises DataError."""
    from m3b.dataset.reading import read_image
    from m3b.models.overlay import read_true_masks, to_display_rgb

    base = str(request.base)
    image = read_image(plain(request.record.image), base)
    picture = to_display_rgb(image.array, image.modality)
    masks, ignored = read_true_masks(request.record, request.values, base, picture.shape[:-1])
    if masks.shape[1:] != picture.shape[:-1]:
        return TargetPlanes(error="the mask is of another shape than the image")
    target_planes = TargetPlanes((int(picture.shape[0]), int(picture.shape[1])))
    planes: dict[int | None, int] = {}
    for name, mask in zip(request.values, masks, strict=True):
        index = int(mask.sum(axis=(0, 1)).argmax()) if mask.ndim == 3 else None
        plane_mask = mask if index is None else mask[:, :, index]
        target_planes.sizes[name] = int(plane_mask.sum())
        if target_planes.sizes[name] < MIN_TARGET_PIXELS:
            continue
        if index not in planes:
            planes[index] = len(target_planes.pictures)
            plane = slice(None) if index is None else (slice(None), slice(None), index)
            target_planes.pictures.append(picture[plane].tobytes())
            target_planes.ignored.extend(mask[plane].astype(np.uint8).tobytes() for mask in ignored)
        target_planes.planes.append(MaskPlane(name, planes[index], index, plane_mask.astype(np.uint8).tobytes()))
    return target_planes


class ConfinedImageIO:
    """Reads and writes images and masks for prompting by a reader, through a folder that both share.

    Args:
        folder: writable for the reader; other files to open must lie there or be visible to the reader.
    """

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder = reader, folder

    def read_image(self, path: str) -> ByteArray:
        """Return (H, W[, D], 3) uint8, grey values windowed as in overlays. Raises DataError."""
        return self._request_pixels(PixelsRequest(to_reader_path(path), self.folder))

    def read_mask(self, path: str, label_value: int | None = None) -> ByteArray:
        """Return (H, W[, D]), 1 where the mask has this value (any value but 0 if None). Raises DataError."""
        return self._request_pixels(
            PixelsRequest(to_reader_path(path), self.folder, is_mask=True, label_value=label_value)
        )

    def write_mask(self, mask: np.ndarray, reference_image: str, folder: Path) -> Path:
        """Write a mask with the geometry of its image; return its file `mask.SUFFIX`. Raises DataError."""
        mask.astype(np.uint8).tofile(self.folder / _PIXELS_FILE)
        name = self.reader.run_job(
            SAVE_MASK_JOB, SaveMaskRequest(self.folder, mask.shape, to_reader_path(reference_image))
        )
        if Path(name).name != name or not name.startswith("mask."):
            raise DataError(f"The mask of {reference_image} was written as {name!r}, which is no name for it.")
        file = folder / name
        file.write_bytes(_read_result(self.folder, name, 2**34))
        return file

    def _request_pixels(self, request: PixelsRequest) -> ByteArray:
        shape = self.reader.run_job(EXPORT_PIXELS_JOB, request).shape
        size = math.prod(shape)
        content = _read_result(self.folder, _PIXELS_FILE, size)
        if len(content) != size or min(shape, default=0) < 1:
            raise DataError(f"{request.path}: its pixels came back incomplete. Try again.")
        (self.folder / _PIXELS_FILE).unlink()
        return np.frombuffer(bytearray(content), np.uint8).reshape(shape)


def _read_result(folder: Path, name: str, max_bytes: int) -> bytes:
    try:
        return read_bytes(folder, name, max_bytes)
    except (UnsafePathError, FileNotFoundError) as error:
        raise DataError(f"{name}: what the reader wrote cannot be read: {error}.") from error


@contextmanager
def open_image_io(path: str | None) -> Iterator[ConfinedImageIO]:
    """Open a reader for one image, and for masks that are made of it in the shared folder.

    Args:
        path: a file, folder or archive item; None if only masks are opened.
    """
    with TemporaryFolder("pixels") as scratch:
        folder = scratch.resolve()
        mounts = [] if path is None else [file_of_reader_path(to_reader_path(path))]
        with open_reader([*mounts, folder], writable=[folder]) as reader:
            yield ConfinedImageIO(reader, folder)
