"""Working grid of the images, and patch, network and batch for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.detection.detector_plan import fit_anchors
from m3b.training.detection.detectors import is_library
from m3b.training.plan_table import choose_settings, conditions_of


def choose_grid(facts: dict[str, Any], gpu: bool) -> dict[str, Any]:
    """Return the grid: as coarse as the device needs, but small lesions keep a few pixels."""
    median, table = np.median(facts["shapes"], axis=0), choose_settings("detection", conditions_of(facts, gpu))
    sides = facts["sides"]
    small_side = float(np.percentile(sides[:, :2].min(axis=1), 20)) if len(sides) else 8.0
    max_shrink = max(
        1.0, small_side / (6.0 if facts["target"] == "boxes" else 4.0)
    )  # a coarser grid loses small lesions
    if facts["dims"] == 2:
        target_share = table["longest_side"] / float(median.max())
        max_share = table["finest_side"] / float(median.max())
        factor = min(1.0, max(target_share, min(1.0 / max_shrink, max_share)))
        return {"spacing": None, "longest": round(float(median.max()) * factor)}
    shrink = min(max(1.0, float(np.prod(median)) / table["image_voxels"]), max_shrink**3) ** (1 / 3)
    if not facts["spacing"]:
        return {"spacing": None, "longest": round(float(median.max()) / shrink)}
    spacing = np.array(facts["spacing"])
    volume = float(np.prod(spacing)) * shrink**3
    while np.prod(spacing) < volume * 0.97:  # coarsen the finest axis: thick slices are not made thicker
        spacing[int(np.argmin(spacing))] *= 1.03
    return {"spacing": [round(float(v), 4) for v in spacing], "longest": None}


def fit_to_grid(
    facts: dict[str, Any], plan: dict[str, Any], gpu: bool, patch_reduction: int = 1, patch: list[int] | None = None
) -> None:
    """Set patch, network and batch for the plan's spacing or longest side.

    Args:
        patch_reduction: divides the maximum size of the patch.
        patch: desired patch, rounded to what the network can halve.
    """
    shapes = facts["shapes"].astype(float)
    if plan["spacing"] and facts["spacing"]:
        shapes = shapes * np.array(facts["spacing"]) / np.array(plan["spacing"])
    elif plan["longest"]:
        shapes = shapes * np.minimum(1.0, plan["longest"] / shapes.max(axis=1, keepdims=True))
    spacing = np.array(plan["spacing"] or [1.0] * plan["dims"])
    boxes, dims, library = plan["target"] == "boxes", plan["dims"], is_library(plan)
    table = choose_settings("detection", conditions_of(facts, gpu))
    largest, limit = np.percentile(shapes, 95 if dims == 2 else 50, axis=0), table["patch_voxels"]
    target = np.array(patch or largest, float)
    while not patch and np.prod(target) > limit / patch_reduction * 1.1:  # shorten the physically longest side
        target[int(np.argmax(target * spacing))] *= 0.94
    strides = _strides(target, spacing, 5 if dims == 2 and boxes else 4)
    reduction = np.prod(np.array(strides), axis=0)
    plan["patch"] = [int(max(step, np.ceil(n / step - 0.3) * step)) for n, step in zip(target, reduction, strict=True)]
    if library:
        fit_anchors(facts, plan)
    elif boxes:
        plan["network"] = {"name": "centers", "width": table["first_filters"], "strides": strides, "out_stage": 2}
        if dims == 3:
            plan["network"]["out_stage"] = 1 if _needs_small_cells(facts, plan, strides) else 2
    else:
        filters = [min(table["first_filters"] * 2**k, table["max_filters"]) for k in range(len(strides) + 1)]
        plan["network"] = {
            "name": "unet",
            "filters": filters,
            "strides": [[1] * dims, *strides],
            "kernels": _kernels(spacing, strides),
            "dropout": 0.0,
        }
    plan["batch"] = int(np.clip(table["step_voxels"] // float(np.prod(plan["patch"])), 2, 16))
    plan["least_batch"] = 1
    plan["patches"] = max(8 * plan["batch"], min(facts["cases"], 512))


def _needs_small_cells(facts: dict[str, Any], plan: dict[str, Any], strides: list[list[int]]) -> bool:
    """Return whether small boxes would be less than two cells wide at a quarter of the resolution."""
    if not len(facts["sides"]):
        return False
    scale = np.array(facts["spacing"] or [1.0] * 3) / np.array(plan["spacing"] or [1.0] * 3)
    if plan["longest"]:
        scale = scale * min(1.0, plan["longest"] / float(np.median(facts["shapes"].max(axis=1))))
    cell = np.prod(np.array(strides[:2]), axis=0)
    return bool((np.percentile(facts["sides"] * scale, 20, axis=0) < 2 * cell).any())


def _strides(patch: np.ndarray, spacing: np.ndarray, max_stages: int) -> list[list[int]]:
    """Return strides: an axis is halved while it is long enough and not much coarser than the finest (as nnU-Net does)."""
    size, grain, strides = patch.copy(), spacing.astype(float).copy(), []
    for _ in range(max_stages):
        can_halve = (size >= 8) & (grain <= 2 * grain.min())
        if not can_halve.any():
            break
        strides.append([2 if is_halved else 1 for is_halved in can_halve])
        size, grain = np.where(can_halve, size / 2, size), np.where(can_halve, grain * 2, grain)
    while len(strides) < 2:
        strides.append([1] * len(patch))
    return strides


def _kernels(spacing: np.ndarray, strides: list[list[int]]) -> list[list[int]]:
    """Return kernels: 3 wide, 1 across slices that are still much thicker than the pixels."""
    grain, kernels = spacing.astype(float).copy(), []
    for stride in [[1] * len(spacing), *strides]:
        grain = grain * np.array(stride)
        kernels.append([3 if step <= 2 * grain.min() else 1 for step in grain])
    return kernels
