"""What is done to a decided mask: only the largest piece of a class is kept, holes in a class are filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import ndimage

WAYS: tuple[tuple[str, ...], ...] = ((), ("largest",), ("fill",), ("largest", "fill"))
"""What can be done to a class; the validation cases choose (`postprocessing_selection`)."""


def refined(found: np.ndarray, plan: Mapping[str, Any]) -> np.ndarray:
    """A decided mask as plan["refine"] says: {class: what is done to it}.

    Args:
        found: uint8, places of classes from 1 on (*shape), or with plan["overlap"] 0/1 channels (K, *shape).
    """
    rule = plan.get("refine") or {}
    if not any(rule.values()):
        return found
    result = found.copy()
    for place, name in enumerate(plan["classes"]):
        if not rule.get(name):
            continue
        if plan["overlap"]:
            result[place] = changed(found[place] > 0, rule[name])
            continue
        before = result == place + 1
        after = changed(before, rule[name], (result > 0) & ~before)
        result[before] = 0
        result[after] = place + 1
    return result


def changed(mask: np.ndarray, ways: Sequence[str], taken: np.ndarray | None = None) -> np.ndarray:
    """A boolean mask (H, W) or (H, W, D), after `ways` in this order; what other classes have `taken` is no hole."""
    for way in ways:
        if way not in ("largest", "fill"):
            raise SystemExit(f"refine in plan.json: {way!r} is not known; largest and fill are")
        mask = _largest(mask) if way == "largest" else ndimage.binary_fill_holes(mask)
    return mask if taken is None else mask & ~taken


def _largest(mask: np.ndarray) -> np.ndarray:
    """The piece with most voxels; diagonal neighbours belong together."""
    pieces, count = ndimage.label(mask, np.ones((3,) * mask.ndim))
    if count < 2:
        return mask
    return np.asarray(pieces == np.bincount(pieces.ravel())[1:].argmax() + 1)
