"""Image-blind baseline of segmentation: the mean shape of the training masks, as prediction for every validation case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.ignored_voxels import IGNORE
from m3b.training.resampling import resize
from m3b.training.segmentation.scoring import class_dice, mean_dice

MAX_MASKS = 40
"""Training masks that are averaged at most."""
GRID_SIDE = {2: 96, 3: 40}
"""Voxels per side of the grid on which masks are averaged, by dimensions."""


def mean_shape(masks: Sequence[np.ndarray], plan: Mapping[str, Any]) -> np.ndarray:
    """Return (K, *grid): share of the labelled masks with the class at each position, divided by the class's threshold; from 1 on it
    is predicted.

    Args:
        masks: ids (*shape), or channels (K, *shape) of 0/1 if classes overlap; all are resized to one grid.
    """
    classes, overlap, dims = len(plan["classes"]), bool(plan["overlap"]), int(plan["dims"])
    sampled = [masks[int(index)] for index in np.linspace(0, len(masks) - 1, min(MAX_MASKS, len(masks)))]
    marked = np.zeros((classes, *(GRID_SIDE[dims],) * dims), np.float32)
    labelled = np.zeros_like(marked if overlap else marked[:1])
    for mask in map(np.asarray, sampled):
        layers = mask == 1 if overlap else np.stack([mask == index + 1 for index in range(classes)])
        marked += resize(layers, marked.shape[1:])
        labelled += resize((mask if overlap else mask[None]) != IGNORE, marked.shape[1:])
    mean = marked / np.maximum(labelled, 1e-3)
    return np.stack([share / best_threshold(share) for share in mean])


def best_threshold(share: np.ndarray) -> float:
    """Return the share of masks from which a position is predicted, for the largest expected Dice; infinite for an empty class.

    A set V of positions overlaps a random mask by the sum of their shares, so the expected Dice is about 2 x that / (|V| + sum of all
    shares), and the best V is a level set. A threshold of one half would remove what varies in position, such as polyps.
    """
    values = np.sort(share[share > 0].astype(np.float64))[::-1]
    if not len(values):
        return float("inf")
    dice = 2 * np.cumsum(values) / (np.arange(1, len(values) + 1) + values.sum())
    last = values[int(dice.argmax())]
    return float(last + values[values < last].max(initial=0.0)) / 2


def predict_mean_shape(mean: np.ndarray, shape: Sequence[int], overlap: bool) -> np.ndarray:
    """Return the mean shape as prediction for an image of `shape`: uint8 ids of the class furthest above its threshold, or 0/1
    channels.
    """
    resized = resize(mean, tuple(int(n) for n in shape))
    if overlap:
        return (resized >= 1).astype(np.uint8)
    return np.where(resized.max(0) >= 1, resized.argmax(0) + 1, 0).astype(np.uint8)


def baseline_dice(masks: Sequence[np.ndarray], truths: Sequence[np.ndarray], plan: Mapping[str, Any]) -> float:
    """Return the mean Dice of the mean shape of `masks` on `truths`. A trained model that is no better learnt nothing from the
    images.
    """
    return mean_dice(baseline_dice_table(mean_shape(masks, plan), truths, plan))


def baseline_dice_table(mean: np.ndarray, truths: Sequence[np.ndarray], plan: Mapping[str, Any]) -> np.ndarray:
    """Return (N, K) Dice of the mean shape on each of `truths`."""
    classes, overlap, dims = len(plan["classes"]), bool(plan["overlap"]), int(plan["dims"])
    baselines = (predict_mean_shape(mean, truth.shape[-dims:], overlap) for truth in truths)
    rows = [
        class_dice(mask, np.asarray(truth), classes, overlap) for mask, truth in zip(baselines, truths, strict=True)
    ]
    return np.array(rows, float)
