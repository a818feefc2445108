"""Shapes and textures of the stand-ins. Positions and radii are in voxels, with any number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Random = np.random.Generator


def texture(random: Random, shape: Sequence[int], strength: float, cells: int = 8) -> Floats:
    """Return smooth noise of standard deviation `strength`: random numbers on a coarse grid, linearly interpolated."""
    field = random.standard_normal((cells,) * len(shape)).astype(np.float32)
    for axis, size in enumerate(shape):
        field = np.moveaxis(np.tensordot(_interpolation_weights(size, cells), field, axes=(1, axis)), 0, axis)
    deviation = float(field.std()) or 1.0
    return np.asarray(field * (strength / deviation), dtype=np.float32)


def _interpolation_weights(size: int, cells: int) -> Floats:
    """Return the weights of linear interpolation, shape (size, cells)."""
    positions = np.linspace(0, cells - 1, size)
    lower_cells = np.minimum(positions.astype(int), cells - 2)
    weights = np.zeros((size, cells), dtype=np.float32)
    weights[np.arange(size), lower_cells] = 1 - (positions - lower_cells)
    weights[np.arange(size), lower_cells + 1] = positions - lower_cells
    return weights


def noise(random: Random, shape: Sequence[int], strength: float) -> Floats:
    """Return independent Gaussian noise of standard deviation `strength`."""
    return random.standard_normal(tuple(shape), dtype=np.float32) * np.float32(strength)


class Blob:
    """An ellipsoid as level set in its bounding box: the squared relative distance from the centre, below 1 inside.

    Args:
        centre, radii: in voxels, one per axis.
        rough: standard deviation of the outline, as a fraction of the radius (0 for a smooth outline).
    """

    MARGIN = 1.35

    def __init__(
        self,
        shape: Sequence[int],
        centre: Sequence[float] | NDArray[Any],
        radii: Sequence[float] | NDArray[Any],
        *,
        random: Random | None = None,
        rough: float = 0.0,
    ) -> None:
        starts = [max(0, int(c - r * self.MARGIN)) for c, r in zip(centre, radii, strict=True)]
        stops = [min(size, int(c + r * self.MARGIN) + 2) for size, c, r in zip(shape, centre, radii, strict=True)]
        self.box: tuple[slice, ...] = tuple(
            slice(start, max(start, stop)) for start, stop in zip(starts, stops, strict=True)
        )
        axes = np.ogrid[self.box]
        terms = [((axis - c) / r) ** 2 for axis, c, r in zip(axes, centre, radii, strict=True)]
        level: NDArray[Any] = terms[0]
        for term in terms[1:]:
            level = level + term
        self.level: Floats = np.asarray(level, dtype=np.float32)
        if rough and random is not None and self.level.size:
            self.level = self.level * (1 + texture(random, self.level.shape, 2 * rough, cells=4))

    def hard_mask(self) -> Bools:
        """Return whether each voxel of the box is inside."""
        return np.asarray(self.level < 1, dtype=np.bool_)

    def soft_mask(self, sharp: float = 6.0) -> Floats:
        """Return 1 inside and 0 outside, with a soft edge, for the voxels of the box."""
        return np.asarray(1 / (1 + np.exp(np.clip((self.level - 1) * sharp, -30, 30))), dtype=np.float32)

    def redraw_outline(self, random: Random, outline_error: float) -> Bools:
        """Return the mask of a second reader: the radius has a smooth relative error of sd `outline_error`."""
        if not self.level.size:
            return self.hard_mask()
        error = texture(random, self.level.shape, 2 * outline_error, cells=4)
        return np.asarray(self.level * (1 + error) < 1, dtype=np.bool_)

    def add(self, image: Floats, amount: float, sharp: float = 6.0) -> None:
        """Add `amount` inside, with a soft edge."""
        image[self.box] += np.float32(amount) * self.soft_mask(sharp)

    def fill(self, image: NDArray[Any], value: float) -> None:
        """Set the inside to `value`."""
        image[self.box][self.hard_mask()] = value


def dice(first: Bools, second: Bools) -> float:
    """Return the Dice of two masks; 1 if both are empty."""
    total = int(first.sum()) + int(second.sum())
    return 2 * int((first & second).sum()) / total if total else 1.0


def to_bytes(image: Floats, low: float = 0.0, high: float = 1.0) -> NDArray[np.uint8]:
    """Return the image as 8-bit grey values for the window `low..high`."""
    return np.asarray(np.clip((image - low) / (high - low) * 255, 0, 255), dtype=np.uint8)


def to_hu(image: Floats) -> NDArray[np.int16]:
    """Return the image as 16-bit HU, -1024 to 3071."""
    return np.asarray(np.clip(np.rint(image), -1024, 3071), dtype=np.int16)
