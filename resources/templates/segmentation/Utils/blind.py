"""What an answer that never looks at the image gets: the mean shape of the training masks, on every validation case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .preprocess import resize
from .scoring import dice_of, mean_dice

MOST = 40
"""So many training masks make the mean shape."""
SIDE = {2: 96, 3: 40}
"""Voxels a side of the grid on which they are averaged."""


def mean_shape(masks: Sequence[np.ndarray], plan: Mapping[str, Any]) -> np.ndarray:
    """(K, *grid) share of `masks` that mark each place: ids (*shape), or channels (K, *shape) of 0/1 where classes overlap,
    all stretched to one grid."""
    classes, overlap, dims = len(plan["classes"]), bool(plan["overlap"]), int(plan["dims"])
    chosen = [masks[int(k)] for k in np.linspace(0, len(masks) - 1, min(MOST, len(masks)))]
    mean = np.zeros((classes, *(SIDE[dims],) * dims), np.float32)
    for mask in chosen:
        layers = np.asarray(mask) if overlap else np.stack([np.asarray(mask) == k + 1 for k in range(classes)])
        mean += resize((layers > 0).astype(np.float32), mean.shape[1:]) / len(chosen)
    return mean


def stretched(mean: np.ndarray, shape: Sequence[int], overlap: bool) -> np.ndarray:
    """The mean shape as an answer for an image of `shape`: uint8 ids, or 0/1 channels."""
    shares = resize(mean, tuple(int(n) for n in shape))
    return (shares >= 0.5).astype(np.uint8) if overlap else _strongest(shares)


def blind_dice(masks: Sequence[np.ndarray], truths: Sequence[np.ndarray], plan: Mapping[str, Any]) -> float:
    """Mean Dice of the mean shape of `masks` on `truths`. A trained model that is no better has learnt nothing from the
    images."""
    classes, overlap, mean = len(plan["classes"]), bool(plan["overlap"]), mean_shape(masks, plan)
    table = [
        dice_of(stretched(mean, truth.shape[-int(plan["dims"]) :], overlap), np.asarray(truth), classes, overlap)
        for truth in truths
    ]
    return mean_dice(np.array(table, float))


def _strongest(shares: np.ndarray) -> np.ndarray:
    """Of the classes and the background the commonest, as uint8 ids."""
    background = 1.0 - shares.sum(axis=0, keepdims=True)
    return np.concatenate([background, shares]).argmax(axis=0).astype(np.uint8)
