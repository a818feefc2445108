"""At which spacing to work, how large patches are, and where the network halves them (after nnU-Net's rules)."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.segmentation.thin_structures import finest_needed

MOST = {(2, False): 512 * 512, (2, True): 1024 * 1024, (3, False): 2_000_000, (3, True): 40_000_000}
"""Voxels of a median image that are affordable, by (dims, GPU); above, the spacing is made coarser."""
PATCH = {(2, False): 256 * 256, (2, True): 512 * 512, (3, False): 160_000, (3, True): 128**3}


def working_spacing(facts: dict[str, Any], gpu: bool) -> tuple[list[float], bool, int | None, list[int]]:
    """(spacing, whether it counts pixels, longest side or None, median shape there).

    The median spacing; along an axis that is much coarser than the others its 10th percentile. Pictures of unknown
    spacing: pixels, or one longest side if their sizes differ much.
    """
    shapes, dims, known = facts["shapes"], int(facts["dims"]), facts["spacings"]
    median = np.median(shapes, axis=0)
    most = MOST[dims, gpu]
    if known is None:
        sides = shapes.max(axis=1)
        factor = max(1.0, min((float(np.prod(median)) / most) ** (1 / dims), finest_needed(facts["widths"]) or np.inf))
        if dims == 2 and sides.max() > 1.5 * sides.min():
            longest = round(float(max(median)) / factor / 16) * 16
            shape = [round(float(n) * longest / float(max(median))) for n in median]
            return [1.0] * dims, True, max(16, longest), shape
        return [round(factor, 3)] * dims, True, None, [max(1, round(float(n) / factor)) for n in median]
    spacing = np.median(known, axis=0)
    worst = int(np.argmax(spacing))
    others = np.delete(spacing, worst)
    if dims == 3 and spacing[worst] > 3 * others.max() and median[worst] * 3 < np.delete(median, worst).min():
        spacing[worst] = max(float(np.percentile(known[:, worst], 10)), float(others.max()))
    extent = np.median([s * n for s, n in zip(known, shapes, strict=False)], axis=0)
    enough = finest_needed(facts["widths"]) or np.inf  # coarser, and thin structures break up
    while np.prod(extent / spacing) > most and spacing.min() * 1.05 <= enough:  # finer axes first, until all are alike
        fine = spacing < spacing.min() * 1.05
        spacing = np.where(fine, spacing * 1.05, spacing)
    shape = [max(1, round(float(e / s))) for e, s in zip(extent, spacing, strict=True)]
    return [round(float(s), 4) for s in spacing], False, None, shape


def choose_patch(shape: list[int], spacing: list[float], dims: int, gpu: bool, most: int | None = None) -> list[int]:
    """The median image if it is affordable (`most` voxels); else the axis that it covers most of is cut, again and again."""
    patch = [float(max(1, n)) for n in shape]
    while np.prod(patch) > (most or PATCH[dims, gpu]):
        extent = [p * s for p, s in zip(patch, spacing, strict=True)]
        longest = int(np.argmax([p if n > 8 else 0 for p, n in zip(extent, patch, strict=True)]))
        patch[longest] *= 0.95
    return [max(1, round(p)) for p in patch]


def topology(patch: list[int], spacing: list[float], smallest: int = 4) -> tuple[list[list[int]], list[list[int]]]:
    """(strides, kernels) of each stage: an axis is halved while it has twice `smallest` voxels and is among the finest.

    Kernels are 1 wide along an axis that is still more than twice as coarse as the finest.
    """
    size, now = np.array(patch, float), np.array(spacing, float)
    strides, kernels = [[1] * len(patch)], [_kernel(now, size)]
    while len(strides) < 6:
        can = size >= 2 * smallest
        if not can.any():
            break
        halve = can & (now < 2 * now[can].min())
        step = np.where(halve, 2, 1)
        size, now = np.ceil(size / step), now * step
        strides.append([int(v) for v in step])
        kernels.append(_kernel(now, size))
    while len(strides) < 3:  # so that there is a coarser output to supervise
        strides.append([1] * len(patch))
        kernels.append(_kernel(now, size))
    return strides, kernels


def round_up(patch: list[int], strides: list[list[int]]) -> list[int]:
    """Sides that the network can halve as often as it wants to."""
    total = np.prod(np.array(strides), axis=0)
    return [int(-(-size // step) * step) for size, step in zip(patch, total, strict=True)]


def _kernel(spacing: np.ndarray, size: np.ndarray) -> list[int]:
    return [1 if s > 2 * spacing.min() or n < 2 else 3 for s, n in zip(spacing, size, strict=True)]
