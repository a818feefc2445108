"""The mean shape: the best segmentation that ignores the image and only knows its frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from m3b.metrics.cases import Floats
from m3b.metrics.masks import Labels, as_integer_mask, clear_ignored

GRID_SIZE = 64
_MIN_LABELLED = 1e-3
"""Number of labelled masks at a position below which its share is 0."""


@dataclass(frozen=True)
class Atlas:
    """The frequency of each label at each position of the frame, over the training masks.

    Args:
        labels: label -> its number in masks, or numbers of which the first is written.
        probabilities: label -> (grid) share of the training images, 0 to 1.
        thresholds: label -> the share from which a position belongs to the label.
        n: number of training masks.
    """

    labels: Labels
    probabilities: Mapping[str, NDArray[np.float32]]
    thresholds: Mapping[str, float]
    n: int

    def predict(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the same label mask for every image of the given shape.

        If several labels reach their threshold, the one that is furthest above it (as a ratio) is chosen.

        Raises:
            ValueError: the number of dimensions differs from that of the training masks.
        """
        result = np.zeros(shape, dtype=np.int64)
        best = np.zeros(shape)
        for name, label_value in self.labels.items():
            ratio = resample_linear(self.probabilities[name], shape) / self.thresholds[name]
            is_assigned = (ratio >= 1) & (ratio > best)
            result[is_assigned] = first_label_value(label_value)
            best[is_assigned] = ratio[is_assigned]
        return result


def first_label_value(label_value: object) -> int:
    """Return a label's number, the first if it has several."""
    return int(np.atleast_1d(np.asarray(label_value))[0])


def resample_linear(image: NDArray[np.float32], shape: tuple[int, ...]) -> Floats:
    """Resample an image to another shape with the same frame: voxel centres are matched, linear in between.

    An axis that shrinks is averaged over what each new voxel covers, so that small structures do not get lost.

    Raises:
        ValueError: the number of dimensions differs.
    """
    if image.ndim != len(shape):
        raise ValueError(f"an atlas of {image.ndim} dimensions does not fit an image of shape {shape}")
    box = _bounding_box(image)
    if box is None:
        return np.zeros(shape)
    block, target_ranges = image[box].astype(np.float64), []
    for axis, (size, source_range) in enumerate(zip(shape, box, strict=True)):  # only the occupied part is resampled
        weights = _resampling_weights(image.shape[axis], size)[:, source_range]
        rows = np.flatnonzero(weights.any(axis=1))
        target_ranges.append(slice(int(rows[0]), int(rows[-1]) + 1))
        block = np.moveaxis(np.tensordot(weights[target_ranges[-1]], block, axes=(1, axis)), 0, axis)
    result = np.zeros(shape)
    result[tuple(target_ranges)] = block
    return result


def _bounding_box(image: NDArray[np.float32]) -> tuple[slice, ...] | None:
    """Return the box around everything that is not zero; None for an empty image."""
    box = []
    for axis in range(image.ndim):
        occupied = np.flatnonzero(
            image.any(axis=tuple(other_axis for other_axis in range(image.ndim) if other_axis != axis))
        )
        if not len(occupied):
            return None
        box.append(slice(int(occupied[0]), int(occupied[-1]) + 1))
    return tuple(box)


def _resampling_weights(old: int, new: int) -> Floats:
    """Return (new, old) weights, rows summing to 1."""
    if new >= old:
        place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
        return np.asarray(np.maximum(0.0, 1 - np.abs(place[:, None] - np.arange(old))))
    edges = np.arange(new + 1) * old / new
    low, high = np.maximum(edges[:-1, None], np.arange(old)), np.minimum(edges[1:, None], np.arange(1, old + 1))
    return np.asarray(np.maximum(0.0, high - low) * new / old)


def best_threshold(probability: NDArray[np.float32]) -> float:
    """Return the share above which to mark a position, for the largest expected Dice.

    If the positions V are marked, the expected overlap with a random training mask is the sum of the shares over V, so
    the expected Dice is about 2 x that / (|V| + sum of shares); the best V is a level set. The threshold lies halfway
    between the last share inside and the first outside, so that it does not move if the shares are interpolated. A
    label that never occurs is never marked.
    """
    values = np.sort(probability[probability > 0].astype(np.float64))[::-1]
    if not len(values):
        return math.inf
    dice = 2 * np.cumsum(values) / (np.arange(1, len(values) + 1) + values.sum())
    last = values[int(dice.argmax())]
    return float(last + values[values < last].max(initial=0.0)) / 2


def build_atlas(
    masks: Iterable[ArrayLike],
    labels: Labels,
    grid: int = GRID_SIZE,
    ignored: Iterable[NDArray[np.bool_] | None] | None = None,
) -> Atlas:
    """Average training masks on a common grid; one mask is in memory at a time.

    Each mask is stretched to `grid` voxels along every axis, so the atlas knows positions relative to the image's
    frame, whatever the spacing.

    Args:
        masks: label masks, all 2D or all 3D, of any shapes.
        labels: label -> number, or numbers of one region.
        grid: voxels along an axis.
        ignored: of each mask the pixels that nobody labelled, or None: shares are of the masks that are labelled at a position.

    Raises:
        ValueError: no masks, masks of different numbers of dimensions, fractions in a mask.
    """
    shape: tuple[int, ...] = ()
    sums: dict[str, Floats] = {}
    labelled: Floats | float = 0.0
    count = 0
    for mask, mask_ignored in zip(masks, repeat(None) if ignored is None else ignored, strict=False):
        array = as_integer_mask(mask, f"training mask {count}")
        if not count:
            shape = (grid,) * array.ndim
        for name, number in labels.items():
            (marked,) = clear_ignored(mask_ignored, np.isin(array, number))
            image = resample_linear(marked.astype(np.float32), shape)
            sums[name] = sums[name] + image if count else image
        labelled = labelled + (
            1.0 if mask_ignored is None else resample_linear((~mask_ignored).astype(np.float32), shape)
        )
        count += 1
    if not count:
        raise ValueError("a mean shape needs at least one training mask")
    shares = {name: (total / np.maximum(labelled, _MIN_LABELLED)).astype(np.float32) for name, total in sums.items()}
    return Atlas(labels, shares, {name: best_threshold(share) for name, share in shares.items()}, count)
