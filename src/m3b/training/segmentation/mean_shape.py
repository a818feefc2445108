"""What an answer that never looks at the image gets: the mean shape of the training masks, on every validation case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.resampling import resize
from m3b.training.segmentation.scoring import dice_of, mean_dice

MOST = 40
"""So many training masks make the mean shape."""
SIDE = {2: 96, 3: 40}
"""Voxels a side of the grid on which they are averaged."""


def mean_shape(masks: Sequence[np.ndarray], plan: Mapping[str, Any]) -> np.ndarray:
    """(K, *grid) how far each place is above the cut of each class: from 1 on it is marked.

    Args:
        masks: ids (*shape), or channels (K, *shape) of 0/1 where classes overlap; all are stretched to one grid.
    """
    classes, overlap, dims = len(plan["classes"]), bool(plan["overlap"]), int(plan["dims"])
    chosen = [masks[int(k)] for k in np.linspace(0, len(masks) - 1, min(MOST, len(masks)))]
    mean = np.zeros((classes, *(SIDE[dims],) * dims), np.float32)
    for mask in chosen:
        layers = np.asarray(mask) if overlap else np.stack([np.asarray(mask) == k + 1 for k in range(classes)])
        mean += resize((layers > 0).astype(np.float32), mean.shape[1:]) / len(chosen)
    return np.stack([share / best_cut(share) for share in mean])


def best_cut(share: np.ndarray) -> float:
    """The share of the masks from which a place is marked, for the largest Dice to expect; infinite where nothing is.

    Places V overlap with a random mask in the sum of their shares, so the Dice to expect is about 2 x that / (|V| + sum of all
    shares), and V is best a level set. Halves would leave out whatever lies elsewhere in every image, such as polyps.
    """
    values = np.sort(share[share > 0].astype(np.float64))[::-1]
    if not len(values):
        return float("inf")
    dice = 2 * np.cumsum(values) / (np.arange(1, len(values) + 1) + values.sum())
    last = values[int(dice.argmax())]
    return float(last + values[values < last].max(initial=0.0)) / 2


def stretched(mean: np.ndarray, shape: Sequence[int], overlap: bool) -> np.ndarray:
    """The mean shape as an answer for an image of `shape`: uint8 ids of the class furthest above its cut, or 0/1 channels."""
    above = resize(mean, tuple(int(n) for n in shape))
    if overlap:
        return (above >= 1).astype(np.uint8)
    return np.where(above.max(0) >= 1, above.argmax(0) + 1, 0).astype(np.uint8)


def blind_dice(masks: Sequence[np.ndarray], truths: Sequence[np.ndarray], plan: Mapping[str, Any]) -> float:
    """Mean Dice of the mean shape of `masks` on `truths`. A trained model that is no better has learnt nothing from the
    images."""
    return mean_dice(blind_table(mean_shape(masks, plan), truths, plan))


def blind_table(mean: np.ndarray, truths: Sequence[np.ndarray], plan: Mapping[str, Any]) -> np.ndarray:
    """(N, K) Dice of the mean shape on each of `truths`."""
    classes, overlap, dims = len(plan["classes"]), bool(plan["overlap"]), int(plan["dims"])
    return np.array(
        [
            dice_of(stretched(mean, truth.shape[-dims:], overlap), np.asarray(truth), classes, overlap)
            for truth in truths
        ],
        float,
    )
