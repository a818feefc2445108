"""Opening medical images and masks, with the very code that the templates train and predict with.

`resources/templates/shared/images.py` and `masks.py` are loaded by their paths, so that a file which m3b's checks can
open is one that the delivered model can open too, and the other way round.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

from m3b.errors import DataError
from m3b.isolation.untrusted import announce_opening
from m3b.resources import get_resources_folder

MODULE = "m3b_template_images"
MASKS = "m3b_template_masks"
Path = str | Sequence[str] | Mapping[str, str]


@lru_cache(maxsize=1)
def shared() -> ModuleType:
    """The templates' `images` module."""
    return _load("images", MODULE)


def shared_channels() -> ModuleType:
    """The templates' `channels` module; its errors are those of `shared()`."""
    found: ModuleType = shared().neighbour("channels")
    return found


@lru_cache(maxsize=1)
def shared_masks() -> ModuleType:
    """The templates' `masks` module; its errors are those of `shared()`."""
    shared()  # it takes the images module that was loaded beside it
    return _load("masks", MASKS)


def _load(stem: str, name: str) -> ModuleType:
    file = get_resources_folder() / "templates" / "shared" / f"{stem}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DataError(f"m3b's own file {file} is missing; install m3b again.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _read(reader: Callable[[], Any], path: object, base: str = ".") -> Any:
    for name in _files(path):
        announce_opening(base, name)
    try:
        return reader()
    except shared().ImageError as error:
        raise DataError(str(error)) from error
    except MemoryError as error:
        raise DataError(f"{path}: does not fit into memory") from error


def _files(path: object) -> Iterable[str]:
    if isinstance(path, str):
        return (path,)
    named = path.values() if isinstance(path, Mapping) else path
    return [one for one in named if isinstance(one, str)] if isinstance(named, Iterable) else ()


def read_image(path: Path, base: str = ".") -> Any:
    """One image or volume.

    Returns:
        An object with `array` (channel first, `(C, H, W)` or `(C, H, W, D)`), `spacing` (mm, or None) and `dims`.

    Raises:
        DataError: it cannot be opened; the message names the file and why.
    """
    return _read(lambda: shared().read_image(path, base), path, base)


def read_mask(path: Path, base: str = ".") -> Any:
    """One mask with label ids, in the axes of `read_image`.

    Returns:
        An object with `array` (whole numbers, `(H, W)` or `(H, W, D)`), `spacing` and `affine` (or None).

    Raises:
        DataError: it cannot be opened or holds fractions; the message names the file and why.
    """
    return _read(lambda: shared_masks().read_mask(path, base), path, base)


def read_masks(
    mask_path: Path | Mapping[str, str] | None,
    classes: Mapping[str, int],
    base: str = ".",
    shape: tuple[int, ...] | None = None,
    image: Path | None = None,
) -> Any:
    """All masks of a case, `(K, H, W[, D])` bool in the order of `classes` (name to value in the file).

    Args:
        shape: of the image, needed where `mask_path` is None.
        image: whose masks they are; those drawn on a picture before EXIF turned it are turned alike.

    Raises:
        DataError: as `read_mask`, or masks of different shapes.
    """
    return _read(lambda: shared_masks().read_masks(mask_path, classes, base, shape, image), mask_path, base)


def write_mask(array: Any, like: Path, stem: object, base: str = ".") -> str:
    """Write a mask whose voxels lie where those of the image `like` lie; the file's name, its ending chosen by the image.

    Args:
        array: (H, W[, D]) whole numbers, in the axes of `read_image`.
        stem: the file without its ending.

    Raises:
        DataError: the image cannot be opened, or is of another shape.
    """
    return str(_read(lambda: shared_masks().write_mask(array, like, stem, base), like))


def geometry(path: Path, base: str = ".") -> Any:
    """The grid of an image as `read_image` gives it: `shape`, `spacing` and `affine` to LPS mm, None where unknown.

    Raises:
        DataError: it cannot be opened.
    """
    return _read(lambda: shared_masks().grid_of(path, base), path, base)


def boxes_to_array(box: Sequence[float], path: Path, base: str = ".") -> tuple[float, ...]:
    """A box of an index record as `(r0, c0[, s0], r1, c1[, s1])` of the array that `read_image` gives.

    Raises:
        DataError: the image cannot be opened.
    """
    found: tuple[float, ...] = _read(lambda: shared_masks().boxes_to_array(box, path, base), path, base)
    return found


def align_mask(mask_path: Path, image: Path, base: str = ".") -> Any:
    """A mask's label numbers on the grid of its image, by nearest neighbour where the two grids differ.

    Raises:
        DataError: either cannot be opened, or the mask does not lie on the image.
    """

    def aligned() -> Any:
        masks = shared_masks()
        return masks.align(masks.read_mask(mask_path, base), masks.grid_of(image, base), str(mask_path))

    return _read(aligned, mask_path, base)


def upright(mask: Any, image: Path, base: str = ".") -> Any:
    """A mask of `read_mask` that was drawn on a picture as it is stored, turned for display as `read_image` turns it."""
    turned = shared().orientation_of(image, base) >= 5
    return shared_masks().upright(mask, geometry(image, base)) if turned else mask


def stored_shape(image: Path, base: str = ".") -> tuple[int, ...]:
    """Rows and columns of a picture as its file stores them, before EXIF turns it; of other images the shape as read.

    Raises:
        DataError: it cannot be opened.
    """

    def shape() -> tuple[int, ...]:
        read = tuple(shared().probe(image, base))
        return (*read[1::-1], *read[2:]) if shared().orientation_of(image, base) >= 5 else read

    stored: tuple[int, ...] = _read(shape, image, base)
    return stored


def corners_apart(mask: Any, grid: Any) -> float | None:
    """mm between the corners of a mask and of an image of the same shape; None where either knows no place."""
    if mask.affine is None or grid.affine is None:
        return None
    return float(shared().geometry.apart(mask.affine, grid.affine, tuple(grid.shape)))


def box_extent(image: Path, base: str = ".") -> tuple[float, ...]:
    """The image's size along the axes in which its boxes are given: (columns, rows) or the file's own three axes.

    Raises:
        DataError: the image cannot be opened.
    """

    def extent() -> tuple[float, ...]:
        masks = shared_masks()
        shape = masks.grid_of(image, base).shape
        corners = masks.boxes_to_file((*(0,) * len(shape), *shape), image, base)
        return tuple(float(v) for v in corners[len(shape) :])

    found: tuple[float, ...] = _read(extent, image, base)
    return found
