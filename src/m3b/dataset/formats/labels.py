"""Masks in the axes of their image, masks written on its grid, and boxes in both coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .base import Mask, smallest_label_type, turn_upright
from .catalog import get_format
from .channels import first_channel, is_same_grid
from .errors import DataError
from .folders import slices_grid
from .geometry import Geometry, reorient_grid
from .nifti import save_volume_labels, write_volume_labels
from .registry import ImagePath, probe_image, read_labels, split_item

MaskPath = str | Sequence[str] | Mapping[str, str] | None


def grid_of(path: ImagePath, base: str | Path = ".") -> Geometry:
    """Return the grid of an image as it is read, by its header. Raises DataError."""
    return probe_image(path, base).geometry


def read_numbered_labels(path: str | Sequence[str], base: str | Path = ".") -> Mask:
    """Return the mask that a path names. Raises DataError as `read_labels`, and for colours, which stand for no label numbers."""
    mask = read_labels(path, base)
    if any(note.code == "labels_from_colours" for note in mask.notes):
        raise DataError(f"{path}: a mask must have one channel, this has 3: {len(mask.colours)} colours")
    return mask


def read_class_masks(
    mask_path: MaskPath,
    classes: Mapping[str, int],
    base: str | Path = ".",
    shape: tuple[int, ...] | None = None,
    image: ImagePath | None = None,
) -> np.ndarray:
    """Return (K, H, W[, D]) bool, one channel for each class in the order of `classes` (name -> number in the file).

    Args:
        mask_path: a mask with label numbers, an object class -> file in which anything but 0 is the class, or None if
            nothing is marked.
        shape: of the image, needed if `mask_path` is None.
        image: whose masks they are; those drawn on a picture before EXIF turned it are turned alike.

    Raises:
        DataError: a mask cannot be read, or the masks of a case have different shapes.
    """
    grid = grid_of(image, base) if image is not None else Geometry((), None, None)
    if isinstance(mask_path, Mapping):
        masks = {
            name: turn_like_image(read_labels(path, base), grid) for name, path in mask_path.items() if name in classes
        }
        marked = {name: mask.array != 0 for name, mask in masks.items()}
        sizes = {mask.shape for mask in marked.values()} | ({shape} if shape else set())
        if len(sizes) != 1:
            raise DataError(f"{dict(mask_path)}: masks of one case must have one shape, found {sorted(sizes)}")
        size = sizes.pop()
        return np.stack([marked.get(name, np.zeros(size, bool)) for name in classes])
    if mask_path is None:
        if shape is None:
            raise DataError("a case without a mask needs the shape of its image")
        return np.zeros((len(classes), *shape), bool)
    array = turn_like_image(read_labels(mask_path, base), grid).array
    return np.stack([array == value for value in classes.values()])


def turn_like_image(mask: Mask, grid: Geometry) -> Mask:
    """Return a mask that was drawn on a picture as it is stored, turned for display as its image was.

    Its size shows it: that of the stored pixels, and not that of the picture on display. Of a square picture, or one that
    EXIF turns upside down, the size shows nothing, and the mask is taken to lie on the picture on display.
    """
    if grid.orientation < 5 or mask.array.shape == grid.shape or mask.array.shape != grid.shape[::-1]:
        return mask
    return Mask(
        turn_upright(mask.array, grid.orientation),
        mask.spacing,
        mask.affine,
        mask.colours,
        mask.names,
        notes=mask.notes,
    )


def align_labels(mask: Mask, grid: Geometry, name: str = "mask") -> np.ndarray:
    """Return the mask on the grid of an image, by nearest neighbour if the two differ. Raises DataError if they cannot meet.

    Masks of the same shape are taken as they are if either side has no affine, or if the grids lie within half a voxel.
    """
    mask = turn_like_image(mask, grid)
    if mask.affine is None or grid.affine is None:
        if mask.array.shape == grid.shape:
            return mask.array
        raise DataError(f"{name}: shape {mask.array.shape}, its image {grid.shape}, and nothing says how they lie")
    if is_same_grid(grid, Geometry(mask.array.shape, mask.spacing, mask.affine)):
        return mask.array
    from scipy import ndimage

    across = np.linalg.inv(mask.affine) @ grid.affine
    volume = mask.array if mask.array.ndim == 3 else mask.array[..., None]
    shape = (*grid.shape, 1)[:3]
    moved = ndimage.affine_transform(volume, across[:3, :3], across[:3, 3], shape, order=0, mode="constant", cval=0)
    if volume.any() and not moved.any():
        raise DataError(f"{name}: what it marks lies outside its image; is it the mask of another case?")
    return np.asarray(moved.reshape(grid.shape))


def write_labels(array: np.ndarray, reference: ImagePath, stem: str | Path, base: str | Path = ".") -> Path:
    """Write a mask so that its voxels lie where those of the image `like` lie; `read_labels` gives the same array back.

    Args:
        array: (H, W) or (H, W, D) whole numbers, in the axes of `read_image(like)`.
        stem: the file to write, without suffix: `.nii.gz` for NIfTI, DICOM series and stacks of pictures, the image's own
            for NRRD and MHA, `.png` for pictures, `.npy` in the file's own axes for arrays.

    Raises:
        DataError: the shape does not fit.
    """
    reference = first_channel(reference) if isinstance(reference, Mapping) else reference
    array = array.astype(smallest_label_type(int(array.max(initial=0))))
    if isinstance(reference, str):
        file, item = split_item(str(Path(base) / reference))
        mask_file = get_format(file).write_labels(array, file, Path(stem), item)
        if mask_file is not None:
            return mask_file
    if array.ndim == 2 and array.dtype != np.uint32:
        from PIL import Image as Pillow

        target = Path(f"{stem}.png")
        Pillow.fromarray(array).save(target)
        return target
    if grid := file_grid(reference, base):
        return write_volume_labels(array, Path(stem), grid)
    placed = grid_of(reference, base).affine  # of the axes of `read_image`; frames of one file have no others
    return save_volume_labels(array, Path(stem), np.eye(4)[[1, 0, 2, 3]] if placed is None else placed)


def file_grid(path: ImagePath, base: str | Path = ".") -> tuple[np.ndarray, tuple[int, ...]] | None:
    """Return LPS affine and sizes of the own axes (i, j, k) of a file, folder or list; None if they have no geometry."""
    if isinstance(path, Mapping):
        path = first_channel(path)
    if isinstance(path, str):
        file, item = split_item(str(Path(base) / path))
        return get_format(file).file_grid(file, item)
    files = [Path(base, name) for name in path]
    return slices_grid(files[0].parent, files) if files else None


def box_to_array(box: Sequence[float], path: ImagePath, base: str | Path = ".") -> tuple[float, ...]:
    """Return a box in file coordinates (x0, y0, [z0,] x1, y1[, z1]) as (r0, c0[, s0], r1, c1[, s1]) of the array that is read."""
    if len(box) == 4:
        return (box[1], box[0], box[3], box[2])
    return _map_box(box, _file_to_array(path, base))


def box_to_file(box: Sequence[float], path: ImagePath, base: str | Path = ".") -> tuple[float, ...]:
    """Undo `box_to_array`."""
    if len(box) == 4:
        return (box[1], box[0], box[3], box[2])
    across = _file_to_array(path, base)
    return _map_box(box, None if across is None else np.linalg.inv(across))


def _file_to_array(path: ImagePath, base: str | Path) -> np.ndarray | None:
    """Return the map from voxel (i, j, k) of the file to (row, column, slice); None if the file has no axes of its own."""
    grid = file_grid(path, base) if isinstance(path, str | Mapping) else None
    if grid is None:
        return None
    return np.asarray(np.linalg.inv(reorient_grid(*grid)[0]) @ grid[0])


def _map_box(box: Sequence[float], across: np.ndarray | None) -> tuple[float, ...]:
    if across is None:
        return tuple(float(box[place]) for place in (1, 0, 2, 4, 3, 5))
    # edges lie half a voxel before the centres that indices count
    ends = [np.array([*corner, 1.0]) - [0.5, 0.5, 0.5, 0] for corner in (box[:3], box[3:])]
    moved = np.stack([(across @ end)[:3] + 0.5 for end in ends])
    return tuple(round(float(value), 6) for value in (*moved.min(axis=0), *moved.max(axis=0)))
