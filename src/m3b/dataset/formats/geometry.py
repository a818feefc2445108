"""Where voxels lie: the grid of an image, the map from file axes to the axes of `read_image`, and its inverse.

Affines are 4 x 4 and map voxel indices (row, column, slice) of the array that `read_image` gives to millimetres in LPS
(x to the patient's left, y to the back, z to the head). Voxel centres lie at whole indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
CANONICAL = (1, 0, 2)
"""Rows run along y, columns along x, slices along z."""


@dataclass(frozen=True)
class Geometry:
    """The grid of an image: spatial shape (H, W) or (H, W, D), spacing in mm of these axes, affine; None if unknown.

    `orientation` is the EXIF orientation by which a picture was turned from its file to this grid.
    """

    shape: tuple[int, ...]
    spacing: tuple[float, ...] | None
    affine: np.ndarray | None
    orientation: int = 1


def closest_axes(affine: np.ndarray) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the array axes that run most along y, x and z, and which of these three have to be reversed to run upwards."""
    directions = affine[:3, :3] / np.maximum(np.linalg.norm(affine[:3, :3], axis=0), 1e-12)
    remaining, axes = [0, 1, 2], {}
    for _ in range(3):  # the clearest pair of world and array axis first
        world, axis = max(
            ((w, a) for w in CANONICAL if w not in axes for a in remaining), key=lambda pair: abs(directions[pair])
        )
        axes[world] = axis
        remaining.remove(axis)
    order = tuple(axes[world] for world in CANONICAL)
    return order, tuple(bool(directions[world, axes[world]] < 0) for world in CANONICAL)


def reorient(array: np.ndarray, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (C, a, b, c) with the affine of (a, b, c), turned so that rows run to the back, columns left and slices up."""
    order, reversed_ = closest_axes(affine)
    turned = np.transpose(array, (0, *(axis + 1 for axis in order)))
    new = np.array(affine, dtype=float)
    new[:3, :3] = affine[:3, list(order)]
    for axis, flip in enumerate(reversed_):
        if flip:
            turned = np.flip(turned, axis + 1)
            new[:3, 3] += new[:3, axis] * (turned.shape[axis + 1] - 1)
            new[:3, axis] *= -1
    return turned, new


def restore(array: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Undo `reorient` for an array without channels; `affine` is that of the array before it was turned."""
    order, reversed_ = closest_axes(affine)
    for axis, flip in enumerate(reversed_):
        if flip:
            array = np.flip(array, axis)
    return np.ascontiguousarray(np.transpose(array, np.argsort(order)))


def spacing_of(affine: np.ndarray) -> tuple[float, ...]:
    """Return the mm between neighbours along each array axis."""
    return tuple(float(value) for value in np.linalg.norm(affine[:3, :3], axis=0))


def nifti_affine(header_affine: np.ndarray) -> np.ndarray:
    """Return the LPS affine of a NIfTI file's own axes (i, j, k)."""
    return np.asarray(RAS_TO_LPS @ np.asarray(header_affine, float))


def itk_affine(image: Any) -> np.ndarray:
    """Return the LPS affine of an ITK image's own axes (i, j, k); of a series of volumes that of the first."""
    size = image.GetDimension()
    direction = np.array(image.GetDirection()).reshape(size, size)[:3, :3]
    affine = np.eye(4)
    affine[:3, :3] = direction * np.array(image.GetSpacing()[:3])
    affine[:3, 3] = image.GetOrigin()[:3]
    return affine


def corner_distance(first: np.ndarray, second: np.ndarray, shape: tuple[int, ...]) -> float:
    """Return the largest distance in mm between corners of the same grid under two affines."""
    ends = [(0, size - 1) for size in (*shape, 1)[:3]]
    corners = np.array([(a, b, c, 1) for a in ends[0] for b in ends[1] for c in ends[2]], float)
    gap = corners @ (np.asarray(first) - np.asarray(second)).T
    return float(np.linalg.norm(gap[:, :3], axis=1).max())


def reorient_grid(affine: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the affine and sizes that `reorient` gives for an array of this shape (a, b, c)."""
    turned, new = reorient(np.broadcast_to(np.zeros(1, bool), (1, *shape)), affine)
    return new, tuple(turned.shape[1:])
