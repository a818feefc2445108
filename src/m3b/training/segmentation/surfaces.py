"""Surface metrics of the model and of the mean shape: NSD and HD95 on the plan's grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import ndimage

from m3b.training.ignored_voxels import clear_ignored
from m3b.training.segmentation.mean_shape import predict_mean_shape
from m3b.training.segmentation.scoring import decide_mask, finish_mask, predict_case

NSD_TOLERANCE = 1.0
"""Tolerance of the NSD in mm, or in pixels of the plan's grid if no spacing is known."""
MAX_HD95_MM = 373.13
"""HD95 in mm of a structure that is missed or invented, and the largest value that counts, as in the BraTS challenges.

If no spacing is known, the diagonal of the image in pixels replaces it.
"""
MAX_CASES = 12
"""Validation cases for which surface metrics are computed at most."""


def surface_metrics(
    predicted: np.ndarray, truth: np.ndarray, spacing: tuple[float, ...], max_distance: float = MAX_HD95_MM
) -> tuple[float, float]:
    """Return (NSD, HD95) of two boolean masks.

    NSD is the share of border voxels within `NSD_TOLERANCE` of the other border, HD95 the larger 95th percentile of the distances
    to it. Both empty: NaN. One empty: 0, and `max_distance`. Voxels are counted, not surface area as in m3b, so NSD is slightly
    lower than m3b's.
    """
    if not predicted.any() or not truth.any():
        return (np.nan, np.nan) if predicted.any() == truth.any() else (0.0, max_distance)
    box = ndimage.find_objects((predicted | truth).view(np.uint8))[0]
    borders = [mask[box] & ~ndimage.binary_erosion(mask[box]) for mask in (predicted, truth)]
    border_distances = [
        ndimage.distance_transform_edt(~other, sampling=spacing)[border] for border, other in (borders, borders[::-1])
    ]
    near_count = sum(int((distances <= NSD_TOLERANCE).sum()) for distances in border_distances)
    hd95 = max(float(np.percentile(distances, 95)) for distances in border_distances)
    return near_count / sum(map(len, border_distances)), min(hd95, max_distance)


def compare_surfaces(
    model: Any, cases: Any, plan: Mapping[str, Any], device: Any, mean: np.ndarray
) -> dict[str, float | None]:
    """Return mean NSD and HD95 over classes and a few cases, of the delivered model and of the mean shape."""
    return average_rows(surface_rows(model, cases, plan, device, mean))


def surface_rows(
    model: Any, cases: Any, plan: Mapping[str, Any], device: Any, mean: np.ndarray, max_cases: int = MAX_CASES
) -> np.ndarray:
    """Return (rows, 4) NSD and HD95 of the model, and of the mean shape; one row per class of each of at most `max_cases` cases."""
    overlap, dims = bool(plan["overlap"]), int(plan["dims"])
    has_spacing = bool(plan["spacing"]) and not plan["pixels"]
    spacing = tuple(float(step) for step in plan["spacing"]) if has_spacing else (1.0,) * dims
    rows: list[list[float]] = []
    for row in np.linspace(0, len(cases) - 1, min(max_cases, len(cases))).astype(int):
        item = cases[int(row)]
        truth = item["labels"].numpy()
        mask = decide_mask(predict_case(model, item["pixel_values"], plan, device), overlap)
        predicted = finish_mask(mask, truth, plan)
        baseline = predict_mean_shape(mean, truth.shape[-dims:], overlap)
        pairs = [clear_ignored(mask, truth) for mask in (predicted, baseline)]
        max_distance = MAX_HD95_MM if has_spacing else float(np.linalg.norm(truth.shape[-dims:]))
        for k in range(len(plan["classes"])):
            rows.append([])
            for pair in pairs:
                class_predicted, class_truth = (part[k] > 0 if overlap else part == k + 1 for part in pair)
                rows[-1] += surface_metrics(class_predicted, class_truth, spacing, max_distance)
    return np.array(rows, float)


def average_rows(table: np.ndarray) -> dict[str, float | None]:
    """Return the means of `surface_rows` by name."""
    names = ("nsd", "hd95", "mean_shape_nsd", "mean_shape_hd95")
    return {
        name: round(float(np.nanmean(c)), 4) if np.isfinite(c).any() else None
        for name, c in zip(names, table.T, strict=True)
    }


def describe_surfaces(figures: Mapping[str, float | None], plan: Mapping[str, Any]) -> str:
    """Return a line for people, with a warning if HD95 is above that of the mean shape."""
    unit = "mm" if plan["spacing"] and not plan["pixels"] else "pixels of the working grid"
    subject = "surfaces of boxes" if plan.get("boxes") else "surfaces"
    hd95, baseline_hd95 = figures["hd95"], figures["mean_shape_hd95"]
    is_worse = hd95 is not None and baseline_hd95 is not None and hd95 > baseline_hd95
    return (
        f"{subject}: NSD at {NSD_TOLERANCE:g} {unit} {figures['nsd']} (mean shape {figures['mean_shape_nsd']}), HD95 {hd95} {unit} "
        f"(mean shape {baseline_hd95})"
        + (
            "; HD95 is WORSE than that of the mean shape: regions far from the structure are predicted"
            if is_worse
            else ""
        )
    )
