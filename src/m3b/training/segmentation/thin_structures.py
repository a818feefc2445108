"""Vessels and other thin structures: their width, and the coarsest grid that represents them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MIN_WIDTH_VOXELS = 2.5
"""Width in voxels that a structure needs on the working grid; thinner ones break up."""
MAX_BOX_VOXELS = 4_000_000
"""Voxels of a bounding box above which the width is not measured: such a large structure is not thin."""


def mean_width(mask: np.ndarray, spacing: Sequence[float] | None) -> float | None:
    """Return the mean width of a boolean mask: mm if the spacing is known, else pixels; None if it is empty or very large.

    Four times the mean distance to the border, which is the width of a strip and the radius of a ball.
    """
    from scipy import ndimage

    boxes = ndimage.find_objects(mask.view(np.uint8))
    if not boxes:
        return None
    padded = np.pad(mask[boxes[0]], 1)
    if padded.size > MAX_BOX_VOXELS:
        return None
    steps = list(spacing) if spacing else [1.0] * mask.ndim
    distance = ndimage.distance_transform_edt(padded, sampling=steps)
    return 4.0 * max(0.0, float(distance[padded].mean()) - 0.5 * min(steps))


def coarsest_spacing(widths: Mapping[str, float]) -> float | None:
    """Return the spacing at which the median class is `MIN_WIDTH_VOXELS` wide; one tiny class does not determine the grid of all."""
    return float(np.median(list(widths.values()))) / MIN_WIDTH_VOXELS if widths else None


def describe_thin_classes(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Return a warning if classes are thinner than the plan's grid can represent, or nothing."""
    lines = []
    for name, width in facts["widths"].items():
        voxels = width / finest_grid_step(facts, plan)
        if voxels < MIN_WIDTH_VOXELS:
            lines.append(f"{name}: {voxels:.1f}")
    if not lines:
        return []
    return [
        f"WARNING: thin on the working grid (width in voxels): {', '.join(lines)}. A finer grid (spacing, or side) with a "
        "smaller patch represents them better, unless the images themselves are no finer"
    ]


def finest_grid_step(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> float:
    """Return the plan's finest spacing, in the unit of the widths."""
    if plan["side"]:
        return float(np.median(facts["shapes"].max(axis=1))) / float(plan["side"])
    return float(min(plan["spacing"])) if plan["spacing"] else 1.0
