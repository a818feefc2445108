"""Post-processing of a decided mask: keep the largest component of a class, fill holes of a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import ndimage

OPERATION_SETS: tuple[tuple[str, ...], ...] = ((), ("largest",), ("fill",), ("largest", "fill"))
"""Operations on a class; the validation cases choose one set for each class (`postprocessing_selection`)."""


def clean_mask(mask: np.ndarray, plan: Mapping[str, Any]) -> np.ndarray:
    """Return a decided mask after the operations of plan["refine"]: {class: operations}.

    Args:
        mask: uint8, class ids from 1 on (*shape), or with plan["overlap"] 0/1 channels (K, *shape).
    """
    operations = plan.get("refine") or {}
    if not any(operations.values()):
        return mask
    result = mask.copy()
    for k, name in enumerate(plan["classes"]):
        if not operations.get(name):
            continue
        if plan["overlap"]:
            result[k] = apply_operations(mask[k] > 0, operations[name])
            continue
        before = result == k + 1
        after = apply_operations(before, operations[name], (result > 0) & ~before)
        result[before] = 0
        result[after] = k + 1
    return result


def apply_operations(
    mask: np.ndarray, operations: Sequence[str], other_classes: np.ndarray | None = None
) -> np.ndarray:
    """Return a boolean mask (H, W) or (H, W, D) after `operations` in this order; voxels of `other_classes` are no holes."""
    for operation in operations:
        if operation not in ("largest", "fill"):
            raise SystemExit(f"refine in plan.json: unknown operation {operation!r}; known are largest and fill")
        mask = _keep_largest(mask) if operation == "largest" else ndimage.binary_fill_holes(mask)
    return mask if other_classes is None else mask & ~other_classes


def _keep_largest(mask: np.ndarray) -> np.ndarray:
    """Return the component with most voxels; diagonal neighbours are connected."""
    pieces, count = ndimage.label(mask, np.ones((3,) * mask.ndim))
    if count < 2:
        return mask
    return np.asarray(pieces == np.bincount(pieces.ravel())[1:].argmax() + 1)
