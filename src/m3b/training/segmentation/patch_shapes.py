"""Working spacing, patch size, and strides and kernels of the network (after nnU-Net's rules)."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.segmentation.thin_structures import coarsest_spacing


def working_spacing(facts: dict[str, Any], max_voxels: int) -> tuple[list[float], bool, int | None, list[int]]:
    """Return (spacing, whether it counts pixels, longest side or None, median shape on this grid).

    The median spacing; along an axis that is much coarser than the others its 10th percentile. Pictures of unknown spacing: pixels, or
    one longest side if their sizes differ much.

    Args:
        max_voxels: of an affordable median image; above, the spacing is made coarser.
    """
    shapes, dims, spacings = facts["shapes"], int(facts["dims"]), facts["spacings"]
    median = np.median(shapes, axis=0)
    if spacings is None:
        sides = shapes.max(axis=1)
        factor = max(
            1.0, min((float(np.prod(median)) / max_voxels) ** (1 / dims), coarsest_spacing(facts["widths"]) or np.inf)
        )
        if dims == 2 and sides.max() > 1.5 * sides.min():
            longest = round(float(max(median)) / factor / 16) * 16
            shape = [round(float(length) * longest / float(max(median))) for length in median]
            return [1.0] * dims, True, max(16, longest), shape
        return [round(factor, 3)] * dims, True, None, [max(1, round(float(length) / factor)) for length in median]
    spacing = np.median(spacings, axis=0)
    coarse_axis = int(np.argmax(spacing))
    other_spacings = np.delete(spacing, coarse_axis)
    if (
        dims == 3
        and spacing[coarse_axis] > 3 * other_spacings.max()
        and median[coarse_axis] * 3 < np.delete(median, coarse_axis).min()
    ):
        spacing[coarse_axis] = max(float(np.percentile(spacings[:, coarse_axis], 10)), float(other_spacings.max()))
    extent = np.median([step * length for step, length in zip(spacings, shapes, strict=False)], axis=0)
    max_spacing = coarsest_spacing(facts["widths"]) or np.inf  # on a coarser grid thin structures break up
    # finer axes first, until all are equal
    while np.prod(extent / spacing) > max_voxels and spacing.min() * 1.05 <= max_spacing:
        is_fine = spacing < spacing.min() * 1.05
        spacing = np.where(is_fine, spacing * 1.05, spacing)
    shape = [max(1, round(float(side / step))) for side, step in zip(extent, spacing, strict=True)]
    return [round(float(step), 4) for step in spacing], False, None, shape


def choose_patch(shape: list[int], spacing: list[float], max_voxels: int) -> list[int]:
    """Return the median image if it has at most `max_voxels`; else repeatedly shorten its longest side in mm."""
    patch = [float(max(1, length)) for length in shape]
    while np.prod(patch) > max_voxels:
        extent = [side * step for side, step in zip(patch, spacing, strict=True)]
        longest = int(np.argmax([side if length > 8 else 0 for side, length in zip(extent, patch, strict=True)]))
        patch[longest] *= 0.95
    return [max(1, round(side)) for side in patch]


def plan_strides(patch: list[int], spacing: list[float], smallest: int = 4) -> tuple[list[list[int]], list[list[int]]]:
    """Return (strides, kernels) of each stage: an axis is halved while it has twice `smallest` voxels and is among the finest.

    Kernels are 1 wide along an axis that is still more than twice as coarse as the finest.
    """
    size, grid = np.array(patch, float), np.array(spacing, float)
    strides, kernels = [[1] * len(patch)], [_kernel(grid, size)]
    while len(strides) < 6:
        can_halve = size >= 2 * smallest
        if not can_halve.any():
            break
        is_halved = can_halve & (grid < 2 * grid[can_halve].min())
        step = np.where(is_halved, 2, 1)
        size, grid = np.ceil(size / step), grid * step
        strides.append([int(v) for v in step])
        kernels.append(_kernel(grid, size))
    while len(strides) < 3:  # deep supervision needs a coarser output
        strides.append([1] * len(patch))
        kernels.append(_kernel(grid, size))
    return strides, kernels


def round_up(patch: list[int], strides: list[list[int]]) -> list[int]:
    """Round the sides up to multiples of the network's total strides."""
    total = np.prod(np.array(strides), axis=0)
    return [int(-(-size // step) * step) for size, step in zip(patch, total, strict=True)]


def _kernel(spacing: np.ndarray, size: np.ndarray) -> list[int]:
    return [1 if s > 2 * spacing.min() or n < 2 else 3 for s, n in zip(spacing, size, strict=True)]
