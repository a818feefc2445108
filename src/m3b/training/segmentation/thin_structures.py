"""Vessels and other thin structures: how wide they are, and down to which grid they can still be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NEEDED = 2.5
"""Voxels that a structure has to be wide on the working grid: thinner ones break up."""
LARGEST = 4_000_000
"""Voxels of a bounding box beyond which the width is not measured; what is so large is not thin."""


def width(mask: np.ndarray, spacing: Sequence[float] | None) -> float | None:
    """Mean width of what a boolean mask marks: mm where the spacing is known, else pixels; None where nothing is marked.

    Four times the mean distance to the border, which is the width of a strip and the radius of a ball.
    """
    from scipy import ndimage

    spans = [
        np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis))) for axis in range(mask.ndim)
    ]
    if not len(spans[0]):
        return None
    inside = np.pad(mask[tuple(slice(int(s[0]), int(s[-1]) + 1) for s in spans)], 1)
    if inside.size > LARGEST:
        return None
    steps = list(spacing) if spacing else [1.0] * mask.ndim
    distance = ndimage.distance_transform_edt(inside, sampling=steps)
    return 4.0 * max(0.0, float(distance[inside].mean()) - 0.5 * min(steps))


def finest_needed(widths: Mapping[str, float]) -> float | None:
    """The step of a grid on which the median class is still `NEEDED` voxels wide: one tiny class among many does not hold
    the grid of all."""
    return float(np.median(list(widths.values()))) / NEEDED if widths else None


def thin_classes(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """A line where classes are thinner than they can be drawn on the plan's grid, or none."""
    lines = []
    for name, wide in facts["widths"].items():
        voxels = wide / step_there(facts, plan)
        if voxels < NEEDED:
            lines.append(f"{name} {voxels:.1f}")
    if not lines:
        return []
    return [
        f"WARNING: thin on the working grid, in voxels: {', '.join(lines)}. A finer grid (spacing, or side) with a smaller "
        "patch draws them; the images themselves may be no finer"
    ]


def step_there(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> float:
    """The plan's finest step, in the unit of the widths."""
    if plan["side"]:
        return float(np.median(facts["shapes"].max(axis=1))) / float(plan["side"])
    return float(min(plan["spacing"])) if plan["spacing"] else 1.0
