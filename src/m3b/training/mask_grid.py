"""Masks of an index record, resampled to the grid of their image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from m3b.dataset.formats import (
    DataError,
    Geometry,
    Image,
    ImagePath,
    Mask,
    align_labels,
    corner_distance,
    grid_of,
    read_numbered_labels,
)
from m3b.training.ignored_voxels import mark_ignored

_PRINTED_NOTES: set[str] = set()


def load_masks(record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = ".") -> np.ndarray:
    """Return (K, H, W[, D]) bool on the image's own grid, False in ignored voxels. Raises DataError with the file and the remedy."""
    masks = np.zeros((len(plan["classes"]), *image.array.shape[1:]), bool)
    for k, mask in iterate_masks(record, plan, image, base):
        masks[k] = mask
    return masks


def iterate_masks(
    record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = "."
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (class index, boolean mask), one class at a time; see `load_masks`."""
    classes, mask_path = list(plan["classes"]), record.get("mask_path")
    if not isinstance(mask_path, Mapping):
        ids = load_label_ids(record, plan, image, base)
        yield from ((k, ids == k + 1) for k in range(len(classes)))
        return
    unknown = sorted(set(mask_path) - set(classes))
    if unknown:
        raise DataError(f"mask of {record['image_path']}: class {unknown[0]!r} is not in label_dict {classes}")
    ignored = load_ignored(record, image, base)
    for name, file in mask_path.items():
        if file:
            mask = _read_on_grid(file, record, image, base) != 0
            yield classes.index(name), mask if ignored is None else mask & ~ignored


def load_ignored(record: Mapping[str, Any], image: Image, base: str = ".") -> np.ndarray | None:
    """Return (H, W[, D]) bool on the image's own grid: the voxels that nobody labelled; None if the record names none.

    Raises:
        DataError: as `load_masks`, or no voxel is labelled.
    """
    path = record.get("ignore_path")
    if not path:
        return None
    ignored: np.ndarray = _read_on_grid(path, record, image, base) != 0
    if ignored.all():
        raise DataError(f"{record['image_path']}: every voxel is ignored by {path}: nobody labelled anything in it")
    return ignored


def load_merged_ids(
    record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = "."
) -> tuple[np.ndarray, int]:
    """Return class numbers for a record with one mask file per class, and the number of voxels marked more than once.

    A voxel that several classes mark gets the class with the fewest voxels in this case.
    """
    ids = np.zeros(image.array.shape[1:], np.uint8)
    sizes = np.zeros(len(plan["classes"]) + 1, np.int64)
    shared_voxels = 0
    for k, mask in iterate_masks(record, plan, image, base):
        previous = ids[mask]
        sizes[k + 1] = len(previous)
        shared_voxels += int(np.count_nonzero(previous))
        ids[mask] = np.where((previous > 0) & (sizes[previous] < len(previous)), previous, k + 1)
    return ids, shared_voxels


def load_label_ids(record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = ".") -> np.ndarray:
    """Return (H, W[, D]) uint8 on the image's own grid: 0, 1 + index in plan["classes"], or IGNORE.

    Raises DataError, as `load_masks`.
    """
    classes, mask_path = list(plan["classes"]), record.get("mask_path")
    shape = tuple(image.array.shape[1:])
    if mask_path is None:
        return np.zeros(shape, np.uint8)
    values = plan.get("labels")
    if isinstance(mask_path, Mapping) and not values:
        ids, shared_voxels = load_merged_ids(record, plan, image, base)
        if shared_voxels:
            _print_once(
                "shared",
                f"classes share voxels (first: {record['image_path']}, {shared_voxels}): the smaller keeps them",
            )
        return mark_ignored(ids, load_ignored(record, image, base))
    if not values or isinstance(mask_path, Mapping):
        raise DataError(f"{mask_path}: one file with label numbers, where the plan expects an object class -> file")
    labels = _read_on_grid(mask_path, record, image, base)
    unknown = sorted({int(v) for v in np.unique(labels)} - {0, *(int(v) for v in values.values())})
    if unknown:
        _print_once(
            "unknown",
            f"values {unknown[:8]} in masks (first {mask_path}) are not in label_dict.json and count as background",
        )
    ids = np.zeros(labels.shape, np.uint8)
    for k, name in enumerate(classes):
        ids[labels == int(values[name])] = k + 1
    return mark_ignored(ids, load_ignored(record, image, base))


def _read_on_grid(path: Any, record: Mapping[str, Any], image: Image, base: str) -> np.ndarray:
    """Return the numbers of a mask file on the grid of the record's image."""
    shape = tuple(image.array.shape[1:])
    return fit_mask_to_image(read_numbered_labels(path, base), record["image_path"], shape, path, base)


def _print_once(key: str, text: str) -> None:
    """Print a note once for each kind of note: it may hold for thousands of files."""
    if key not in _PRINTED_NOTES:
        _PRINTED_NOTES.add(key)
        print(text, flush=True)


def fit_mask_to_image(
    mask: Mask, image_path: ImagePath, shape: tuple[int, ...], name: Any, base: str = "."
) -> np.ndarray:
    """Return the mask's array on the image's grid: unchanged if the grids agree, else the nearest voxel by both affines."""
    if mask.array.ndim == len(shape) + 1 and mask.array.shape[-1] == 1:
        mask = Mask(mask.array[..., 0], mask.spacing, mask.affine)
    if mask.affine is None and mask.array.shape == shape:
        return mask.array
    grid = grid_of(image_path, base)
    grid = Geometry(shape, grid.spacing, grid.affine, grid.orientation)
    fitted = align_labels(mask, grid, f"{name} (image {image_path})")
    if mask.array.shape == shape[::-1] and grid.orientation >= 5:
        _print_once(
            "exif",
            f"masks of the size of the stored picture (first: {name}) are rotated by EXIF like their image",
        )
    elif mask.array.shape != shape:
        _print_once(
            "grid",
            f"masks on another grid (first: {name}, {mask.array.shape}) are resampled to that of their image",
        )
    elif grid.affine is not None and mask.affine is not None and fitted is not mask.array:
        distance = corner_distance(mask.affine, grid.affine, shape)
        _print_once(
            "place",
            f"masks displaced from their image (first: {name}, by {distance:.1f} mm) are resampled to its grid",
        )
    return fitted
