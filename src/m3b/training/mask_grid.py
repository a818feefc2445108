"""Masks of an index record, brought onto the grid of their image."""

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

_SAID: set[str] = set()


def load_masks(record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = ".") -> np.ndarray:
    """(K, H, W[, D]) bool on the image's own grid. Raises DataError naming the file and what to do."""
    masks = np.zeros((len(plan["classes"]), *image.array.shape[1:]), bool)
    for place, mask in iterate_masks(record, plan, image, base):
        masks[place] = mask
    return masks


def iterate_masks(
    record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = "."
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (place of the class, boolean mask) one class at a time; see `load_masks`."""
    classes, path = list(plan["classes"]), record.get("mask_path")
    if not isinstance(path, Mapping):
        ids = load_ids(record, plan, image, base)
        yield from ((place, ids == place + 1) for place in range(len(classes)))
        return
    strange = sorted(set(path) - set(classes))
    if strange:
        raise DataError(f"mask of {record['image_path']}: class {strange[0]!r} is not in label_dict {classes}")
    shape = tuple(image.array.shape[1:])
    for name, file in path.items():
        if file:
            mask = fit(read_numbered_labels(file, base), record["image_path"], shape, file, base)
            yield classes.index(name), mask != 0


def load_file_ids(
    record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = "."
) -> tuple[np.ndarray, int]:
    """Return ids as `load_ids` of a record with one mask file a class, and how many voxels were marked more than once.

    A voxel that several classes mark belongs to the class with the fewest voxels in this case.
    """
    ids, sizes, shared = np.zeros(image.array.shape[1:], np.uint8), np.zeros(len(plan["classes"]) + 1, np.int64), 0
    for place, mask in iterate_masks(record, plan, image, base):
        before = ids[mask]
        sizes[place + 1] = len(before)
        shared += int(np.count_nonzero(before))
        ids[mask] = np.where((before > 0) & (sizes[before] < len(before)), before, place + 1)
    return ids, shared


def load_ids(record: Mapping[str, Any], plan: Mapping[str, Any], image: Image, base: str = ".") -> np.ndarray:
    """(H, W[, D]) uint8 on the image's own grid: 0, or 1 + place in plan["classes"]. Raises DataError, as `load_masks`."""
    classes, path = list(plan["classes"]), record.get("mask_path")
    shape = tuple(image.array.shape[1:])
    if path is None:
        return np.zeros(shape, np.uint8)
    values = plan.get("labels")
    if isinstance(path, Mapping) and not values:
        ids, shared = load_file_ids(record, plan, image, base)
        if shared:
            _say(
                "shared", f"classes share voxels (first {record['image_path']}, {shared}): the smaller class keeps them"
            )
        return ids
    if not values or isinstance(path, Mapping):
        raise DataError(f"{path}: one file with label numbers, where the plan expects an object class -> file")
    found = fit(read_numbered_labels(path, base), record["image_path"], shape, path, base)
    unknown = sorted({int(v) for v in np.unique(found)} - {0, *(int(v) for v in values.values())})
    if unknown:
        _say("unknown", f"values {unknown[:8]} in masks (first {path}) are not in label_dict.json: background")
    ids = np.zeros(found.shape, np.uint8)
    for place, name in enumerate(classes):
        ids[found == int(values[name])] = place + 1
    return ids


def _say(key: str, text: str) -> None:
    """Once for each kind of finding: it may be the same for thousands of files."""
    if key not in _SAID:
        _SAID.add(key)
        print(text, flush=True)


def fit(mask: Mask, image_path: ImagePath, shape: tuple[int, ...], name: Any, base: str = ".") -> np.ndarray:
    """The mask's array on the image's grid: as it is where the grids agree, else the nearest voxel by both affines."""
    if mask.array.ndim == len(shape) + 1 and mask.array.shape[-1] == 1:
        mask = Mask(mask.array[..., 0], mask.spacing, mask.affine)
    if mask.affine is None and mask.array.shape == shape:
        return mask.array
    grid = grid_of(image_path, base)
    grid = Geometry(shape, grid.spacing, grid.affine, grid.orientation)
    fitted = align_labels(mask, grid, f"{name} (image {image_path})")
    if mask.array.shape == shape[::-1] and grid.orientation >= 5:
        _say("exif", f"masks of the size of the stored picture (first {name}) are turned by EXIF, as their image is")
    elif mask.array.shape != shape:
        _say("grid", f"masks on another grid than their image (first {name}, {mask.array.shape}) are resampled to it")
    elif grid.affine is not None and mask.affine is not None and fitted is not mask.array:
        gap = corner_distance(mask.affine, grid.affine, shape)
        _say("place", f"masks that lie elsewhere than their image (first {name}, by {gap:.1f} mm) are resampled to it")
    return fitted
