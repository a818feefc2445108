"""Opening the images and masks of an index with `m3b.dataset.formats`, in the confined reader."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from m3b.dataset.formats import (
    Geometry,
    Image,
    Mask,
    align_labels,
    box_to_array,
    box_to_file,
    find_format,
    get_format,
    grid_of,
    overview_path,
    probe_image,
    read_class_masks,
    read_numbered_labels,
    turn_like_image,
    write_labels,
)
from m3b.dataset.formats import read_image as read_any_image
from m3b.dataset.formats.arrays import ArrayFormat
from m3b.dataset.formats.geometry import corner_distance
from m3b.errors import DataError
from m3b.isolation.untrusted import announce_opening

Path = str | Sequence[str] | Mapping[str, str]


def open_arrays(path: FilePath) -> Mapping[str, Any]:
    """The arrays of a container by name, opened and not read. Raises DataError."""
    return _array_format(path).arrays(path)


def read_values(path: FilePath) -> Mapping[str, Any]:
    """The texts and single values of a container by name, which are no image. Raises DataError."""
    return _array_format(path).values(path)


def read_array(path: FilePath, item: str = "") -> Any:
    """An array of a container, or one item of it (`images[3]`). Raises DataError."""
    return _array_format(path).read_array(path, item)


def _array_format(path: FilePath) -> ArrayFormat:
    file_format = get_format(path)
    if not isinstance(file_format, ArrayFormat):
        raise DataError(f"{path}: a file of the format {file_format.name} holds no arrays")
    return file_format


def split_reference(path: str, base: str | FilePath) -> tuple[str, str]:
    """Return file and item of `file#item`, both as they are written; a path without an item has the item ""."""
    place = path.find("#")
    if place < 0 or os.path.lexists(os.path.join(base, path)):
        return path, ""
    while place >= 0:
        if place and os.path.lexists(os.path.join(base, path[:place])):
            return path[:place], path[place + 1 :]
        place = path.find("#", place + 1)
    file, _, item = path.partition("#")  # of a missing file its name tells
    return (file, item) if find_format(b"", file) is not None else (path, "")


def probe_shape(path: Path, base: str = ".") -> tuple[int, ...]:
    """The size of an image, (H, W) or (H, W, D). Raises DataError."""
    _announce(path, base)
    return tuple(probe_image(path, base).shape)


def probe_orientation(path: str, base: str = ".") -> int:
    """How an image is turned for display, 1 to 8 as EXIF counts. Raises DataError."""
    _announce(path, base)
    return probe_image(path, base).orientation


def _announce(path: object, base: str) -> None:
    """Tell the reader which files are opened next, so that it knows the one that ends it."""
    if isinstance(path, str):
        names: Iterable[Any] = (path,)
    else:
        names = path.values() if isinstance(path, Mapping) else path if isinstance(path, Iterable) else ()
    for name in names:
        if isinstance(name, str):
            announce_opening(base, name)


def read_image(path: Path, base: str = ".") -> Image:
    """Return one image or volume: `array` is channel first, `(C, H, W)` or `(C, H, W, D)`.

    Raises:
        DataError: it cannot be opened; the message names the file and why.
    """
    _announce(path, base)
    return read_any_image(path, base)


def read_overview(path: Path, base: str = ".") -> Image:
    """Return a slide at reduced size, and any other image as `read_image` does. Raises DataError."""
    _announce(path, base)
    return read_any_image(overview_path(path, base), base)


def read_mask(path: Path, base: str = ".") -> Mask:
    """Return one mask with label ids, in the axes of `read_image`.

    Raises:
        DataError: it cannot be opened, holds fractions, or is painted in colours, which stand for no label ids.
    """
    _announce(path, base)
    if isinstance(path, Mapping):
        raise DataError(f"{dict(path)}: one mask is needed, not an object of several")
    return read_numbered_labels(path, base)


def read_masks(
    mask_path: Path | Mapping[str, str] | None,
    classes: Mapping[str, int],
    base: str = ".",
    shape: tuple[int, ...] | None = None,
    image: Path | None = None,
) -> Any:
    """Return all masks of a case, `(K, H, W[, D])` bool in the order of `classes` (name to value in the file).

    Args:
        shape: of the image, needed if `mask_path` is None.
        image: whose masks they are; those drawn on a picture before EXIF turned it are turned alike.

    Raises:
        DataError: as `read_mask`, or masks of different shapes.
    """
    _announce(mask_path, base)
    return read_class_masks(mask_path, classes, base, shape, image)


def write_mask(array: Any, reference: Path, stem: object, base: str = ".") -> str:
    """Write a mask whose voxels lie where those of the image `reference` lie; return the file, whose suffix the image decides.

    Args:
        array: (H, W[, D]) whole numbers, in the axes of `read_image`.
        stem: the file without its suffix.

    Raises:
        DataError: the image cannot be opened, or is of another shape.
    """
    _announce(reference, base)
    return str(write_labels(array, reference, str(stem), base))


def geometry(path: Path, base: str = ".") -> Geometry:
    """Return the grid of an image as `read_image` gives it: `shape`, `spacing` and `affine` to LPS mm, None if unknown.

    Raises:
        DataError: it cannot be opened.
    """
    _announce(path, base)
    return grid_of(path, base)


def boxes_to_array(box: Sequence[float], path: Path, base: str = ".") -> tuple[float, ...]:
    """Return a box of an index record as `(r0, c0[, s0], r1, c1[, s1])` of the array that `read_image` gives.

    Raises:
        DataError: the image cannot be opened.
    """
    _announce(path, base)
    return box_to_array(box, path, base)


def align_mask(mask_path: Path, image: Path, base: str = ".") -> Any:
    """Return a mask's label numbers on the grid of its image, by nearest neighbour if the two grids differ.

    Raises:
        DataError: either cannot be opened, or the mask does not lie on the image.
    """
    return align_labels(read_mask(mask_path, base), geometry(image, base), str(mask_path))


def upright(mask: Any, image: Path, base: str = ".") -> Any:
    """Return a mask that was drawn on a picture as it is stored, turned for display as `read_image` turns it."""
    return turn_like_image(mask, geometry(image, base))


def stored_shape(image: Path, base: str = ".") -> tuple[int, ...]:
    """Return rows and columns of a picture as its file stores them, before EXIF turns it; of others the shape as read.

    Raises:
        DataError: it cannot be opened.
    """
    grid = geometry(image, base)
    return (*grid.shape[1::-1], *grid.shape[2:]) if grid.orientation >= 5 else grid.shape


def corners_apart(mask: Any, grid: Any) -> float | None:
    """Return the mm between the corners of a mask and of an image of the same shape; None if either knows no place."""
    if mask.affine is None or grid.affine is None:
        return None
    return corner_distance(mask.affine, grid.affine, tuple(grid.shape))


def box_extent(image: Path, base: str = ".") -> tuple[float, ...]:
    """Return the size of an image along the axes of its boxes: (columns, rows) or the file's own three axes.

    Raises:
        DataError: the image cannot be opened.
    """
    shape = geometry(image, base).shape
    corners = box_to_file((*(0,) * len(shape), *shape), image, base)
    return tuple(float(value) for value in corners[len(shape) :])
