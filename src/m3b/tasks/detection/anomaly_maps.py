"""Anomaly maps compared with masks: pixel AUROC, pixel AP and PRO from counts of pixels by score.

A map gives every pixel a level from 0 to `MAX_LEVEL`. Each image is stored as three histograms over the levels, so that
any number of images can be ranked together without holding their pixels, and a bootstrap over patients costs one matrix
product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.cases import Floats, divide
from m3b.metrics.classification_estimators import cumulative_counts, step_average_precision
from m3b.metrics.masks import Mask, clear_ignored
from m3b.tasks.detection.lesions import label_components

MAX_FALSE_POSITIVE_RATE = 0.3
"""Upper limit of the false positive rate for PRO (Bergmann et al., MVTec AD, IJCV 2021)."""


def per_region_overlap(tables: PixelTables, weights: Floats, max_rate: float = MAX_FALSE_POSITIVE_RATE) -> Floats:
    """Return the mean overlap of connected regions, averaged over false positive rates up to `max_rate` (PRO).

    The overlap is the share of a region above a threshold. The curve starts at (0, 0), with straight lines between
    thresholds; its area up to `max_rate` is divided by `max_rate`, so that a perfect map has 1 and a map of a single
    level `max_rate` / 2. The false positive rate is that of the normal pixels of all images together.

    Returns:
        (draws,), NaN for a draw without a region or without a normal pixel.
    """
    regions, false_positives = cumulate_from_top(weights, tables.regions), cumulate_from_top(weights, tables.normal)
    overlap = divide(regions, regions[:, -1:])
    rate = divide(false_positives, false_positives[:, -1:])
    low, high = np.minimum(rate[:, :-1], max_rate), np.minimum(rate[:, 1:], max_rate)
    step = rate[:, 1:] - rate[:, :-1]
    slope = np.where(step > 0, (overlap[:, 1:] - overlap[:, :-1]) / np.where(step > 0, step, 1.0), 0.0)
    ends = overlap[:, :-1] + slope * (high - rate[:, :-1])
    area = ((high - low) * (overlap[:, :-1] + ends) / 2).sum(axis=1)
    return np.asarray(area / max_rate)


def pixel_auroc(tables: PixelTables, weights: Floats) -> Floats:
    """Return the area under the ROC curve over the pixels of all images, normal images included; ties count half.

    Args:
        weights: (draws, cases).

    Returns:
        (draws,), NaN for a draw without an abnormal or without a normal pixel.
    """
    true_positives, false_positives = (
        cumulate_from_top(weights, tables.abnormal),
        cumulate_from_top(weights, tables.normal),
    )
    area = (
        (false_positives[:, 1:] - false_positives[:, :-1]) * (true_positives[:, 1:] + true_positives[:, :-1]) / 2
    ).sum(axis=1)
    return divide(area, true_positives[:, -1] * false_positives[:, -1])


def image_ap(score: Floats, abnormal: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the average precision of image anomaly scores: (draws,), NaN for a draw without an abnormal image.

    For the arguments see `cumulative_counts`.
    """
    return step_average_precision(*cumulative_counts(score, abnormal, weights))


def pixel_ap(tables: PixelTables, weights: Floats) -> Floats:
    """Return the average precision over the pixels of all images: (draws,), NaN without an abnormal pixel."""
    return step_average_precision(
        cumulate_from_top(weights, tables.abnormal)[:, 1:], cumulate_from_top(weights, tables.normal)[:, 1:]
    )


MAX_LEVEL = 1000
"""Highest level of a map; the lowest is 0."""


@dataclass(frozen=True)
class PixelCounts:
    """Histograms of one image: its map inside and outside of its mask.

    Args:
        normal: (MAX_LEVEL + 1,) pixels outside of the mask at each level.
        abnormal: (MAX_LEVEL + 1,) pixels inside.
        regions: (MAX_LEVEL + 1,) shares of connected regions of the mask at each level; sums to the number of regions.
    """

    normal: Floats
    abnormal: Floats
    regions: Floats

    def to_row(self) -> dict[str, list[list[float]]]:
        """Return JSON values: part -> [level, count] of the levels that occur."""
        parts = {"normal": self.normal, "abnormal": self.abnormal, "regions": self.regions}
        return {
            name: [[int(k), float(histogram[k])] for k in np.flatnonzero(histogram)]
            for name, histogram in parts.items()
        }


def pixel_counts_from_row(row: dict[str, Any]) -> PixelCounts:
    """Convert the JSON values of `PixelCounts.to_row` back."""

    def to_histogram(pairs: Sequence[Sequence[float]]) -> Floats:
        counts = np.zeros(MAX_LEVEL + 1)
        for level, count in pairs:
            counts[int(level)] = count
        return counts

    return PixelCounts(to_histogram(row["normal"]), to_histogram(row["abnormal"]), to_histogram(row["regions"]))


def count_pixels(levels: NDArray[np.integer[Any]], mask: Mask, ignored: Mask | None = None) -> PixelCounts:
    """Compute the histograms of one image.

    Args:
        levels: integers from 0 to `MAX_LEVEL`, higher is more abnormal.
        mask: boolean, the same shape; regions are its connected components, corners included.
        ignored: pixels that are not counted.

    Raises:
        ValueError: the shapes differ, or a level is out of range.
    """
    if levels.shape != mask.shape:
        raise ValueError(f"the map's shape {levels.shape} differs from the mask's {mask.shape}")
    if levels.size and (int(levels.min()) < 0 or int(levels.max()) > MAX_LEVEL):
        raise ValueError(
            f"the map has levels from {int(levels.min())} to {int(levels.max())}; they are 0 to {MAX_LEVEL}"
        )
    (is_abnormal,) = clear_ignored(ignored, np.asarray(mask, dtype=np.bool_))
    is_normal = ~is_abnormal if ignored is None else ~is_abnormal & ~ignored
    region_labels, n_regions = label_components(is_abnormal)
    abnormal_levels = levels[is_abnormal]
    sizes = np.bincount(region_labels[is_abnormal], minlength=n_regions + 1).astype(np.float64)
    region_share = 1.0 / sizes[region_labels[is_abnormal]] if n_regions else np.zeros(0)
    return PixelCounts(
        np.bincount(levels[is_normal].ravel(), minlength=MAX_LEVEL + 1).astype(np.float64),
        np.bincount(abnormal_levels, minlength=MAX_LEVEL + 1).astype(np.float64),
        np.bincount(abnormal_levels, weights=region_share, minlength=MAX_LEVEL + 1).astype(np.float64),
    )


@dataclass(frozen=True)
class PixelTables:
    """The histograms of several images, each (cases, MAX_LEVEL + 1)."""

    normal: Floats
    abnormal: Floats
    regions: Floats


def stack_pixel_counts(cases: Sequence[PixelCounts]) -> PixelTables:
    """Stack the histograms of several images."""
    return PixelTables(
        *(np.stack([getattr(counts, part) for counts in cases]) for part in ("normal", "abnormal", "regions"))
    )


def cumulate_from_top(weights: Floats, table: Floats) -> Floats:
    """Return (draws, MAX_LEVEL + 2) sums at or above each level, from zero to the total."""
    sampled = (weights @ table)[:, ::-1]
    return np.concatenate([np.zeros((len(weights), 1)), np.cumsum(sampled, axis=1)], axis=1)
