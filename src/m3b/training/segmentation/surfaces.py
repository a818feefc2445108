"""How far the borders of masks are apart, beside those of the mean shape: NSD and HD95 on the plan's grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import ndimage

from m3b.training.segmentation.mask_cleaning import refined
from m3b.training.segmentation.mean_shape import stretched
from m3b.training.segmentation.scoring import decide, run_whole

TOLERANCE = 1.0
"""Of the NSD, in mm, or in pixels of the plan's grid where no spacing is known."""
FARTHEST = 373.13
"""HD95 in mm of a structure that is missed or invented, and the most that any counts, as in the BraTS challenges; in pixels where no
spacing is known it is the diagonal of the image."""
MOST = 12
"""Validation cases whose borders are measured."""


def border_figures(
    found: np.ndarray, truth: np.ndarray, steps: tuple[float, ...], farthest: float = FARTHEST
) -> tuple[float, float]:
    """(NSD, HD95) of two boolean masks: share of border voxels within `TOLERANCE` of the other border, and the larger 95th
    percentile of distances to it. Both empty: NaN. One empty: 0, and `farthest`. Voxels are
    counted, not the area between them as m3b does, so this NSD is a little lower than m3b's."""
    if not found.any() or not truth.any():
        return (np.nan, np.nan) if found.any() == truth.any() else (0.0, farthest)
    spans = [np.flatnonzero((found | truth).any(axis=_others(found.ndim, axis))) for axis in range(found.ndim)]
    box = tuple(slice(int(span[0]), int(span[-1]) + 1) for span in spans)
    borders = [mask[box] & ~ndimage.binary_erosion(np.pad(mask[box], 1))[_inner(mask.ndim)] for mask in (found, truth)]
    apart = [ndimage.distance_transform_edt(~other, sampling=steps)[own] for own, other in (borders, borders[::-1])]
    near = sum(int((distances <= TOLERANCE).sum()) for distances in apart)
    far = max(float(np.percentile(distances, 95)) for distances in apart)
    return near / sum(map(len, apart)), min(far, farthest)


def _others(dims: int, axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(dims) if other != axis)


def _inner(dims: int) -> tuple[slice, ...]:
    return (slice(1, -1),) * dims


def compare(model: Any, cases: Any, plan: Mapping[str, Any], device: Any, mean: np.ndarray) -> dict[str, float | None]:
    """Mean NSD and HD95 over classes and a few cases, of the model as it is delivered and of the mean shape."""
    return averaged(border_rows(model, cases, plan, device, mean))


def border_rows(
    model: Any, cases: Any, plan: Mapping[str, Any], device: Any, mean: np.ndarray, most: int = MOST
) -> np.ndarray:
    """(rows, 4) NSD and HD95 of the model, and of the mean shape, a row a class of each of at most `most` cases."""
    overlap, dims = bool(plan["overlap"]), int(plan["dims"])
    known = bool(plan["spacing"]) and not plan["pixels"]
    steps = tuple(float(step) for step in plan["spacing"]) if known else (1.0,) * dims
    rows: list[list[float]] = []
    for row in np.linspace(0, len(cases) - 1, min(most, len(cases))).astype(int):
        item = cases[int(row)]
        truth = item["labels"].numpy()
        own = refined(decide(run_whole(model, item["pixel_values"], plan, device), overlap), plan)
        blind = stretched(mean, truth.shape[-dims:], overlap)
        for place in range(len(plan["classes"])):
            a, b, wanted = (part[place] > 0 if overlap else part == place + 1 for part in (own, blind, truth))
            far = FARTHEST if known else float(np.linalg.norm(wanted.shape))
            rows.append([*border_figures(a, wanted, steps, far), *border_figures(b, wanted, steps, far)])
    return np.array(rows, float)


def averaged(table: np.ndarray) -> dict[str, float | None]:
    """The means of what `border_rows` gives, by name."""
    names = ("nsd", "hd95", "mean_shape_nsd", "mean_shape_hd95")
    return {
        name: round(float(np.nanmean(c)), 4) if np.isfinite(c).any() else None
        for name, c in zip(names, table.T, strict=True)
    }


def told(figures: Mapping[str, float | None], plan: Mapping[str, Any]) -> str:
    """A line for people; a HD95 above that of the mean shape is named."""
    unit = "mm" if plan["spacing"] and not plan["pixels"] else "pixels of the working grid"
    own, blind = figures["hd95"], figures["mean_shape_hd95"]
    worse = own is not None and blind is not None and own > blind
    return (
        f"borders: NSD at {TOLERANCE:g} {unit} {figures['nsd']} (mean shape {figures['mean_shape_nsd']}), HD95 {own} {unit} "
        f"(mean shape {blind})"
        + ("; HD95 is WORSE than that of the mean shape: pieces far from the structure are marked" if worse else "")
    )
