"""Anomaly maps against masks, as counts of pixels by score: what pixel AUROC, pixel AP and PRO are made from.

A map gives every pixel a level from 0 to `MAX_LEVEL`. An image is kept as three histograms over the levels, so that any number
of images are ranked together without holding their pixels, and a bootstrap over patients costs a product of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.cases import Floats, divide
from m3b.metrics.classification_estimators import cumulative_counts, step_average_precision
from m3b.metrics.lesions import label_components
from m3b.metrics.masks import Mask

MAX_FALSE_POSITIVE_RATE = 0.3
"""False positive rate up to which the curve counts (Bergmann et al., MVTec AD, IJCV 2021)."""


def per_region_overlap(tables: PixelTables, weights: Floats, max_rate: float = MAX_FALSE_POSITIVE_RATE) -> Floats:
    """Mean share of each connected region that lies above a threshold, averaged over false positive rates up to `max_rate`.

    The curve runs over the thresholds from (0, 0), straight between them; its area up to `max_rate` is divided by `max_rate`, so
    that a perfect map has 1, and one of a single level `max_rate` / 2. The false positive rate is that of the normal pixels of
    all images together.

    Returns:
        (draws,), NaN where a draw has no region or no normal pixel.
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
    """Area under the ROC curve over the pixels of all images together, normal images included; ties count half.

    Args:
        weights: (draws, cases).

    Returns:
        (draws,), NaN where a draw has no abnormal or no normal pixel.
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
    """Average precision of the images' anomaly scores: (draws,), NaN where a draw has no abnormal image.

    Arguments as of `cumulative_counts`.
    """
    return step_average_precision(*cumulative_counts(score, abnormal, weights))


def pixel_ap(tables: PixelTables, weights: Floats) -> Floats:
    """Average precision over the pixels of all images together: (draws,), NaN without an abnormal pixel."""
    return step_average_precision(
        cumulate_from_top(weights, tables.abnormal)[:, 1:], cumulate_from_top(weights, tables.normal)[:, 1:]
    )


MAX_LEVEL = 1000
"""The highest level of a map; its lowest is 0."""


@dataclass(frozen=True)
class PixelCounts:
    """One image's map and mask.

    Args:
        normal: (TOP + 1,) pixels outside of the mask at each level.
        abnormal: (TOP + 1,) pixels inside.
        regions: (TOP + 1,) shares of connected regions of the mask at each level; sums to the number of regions.
    """

    normal: Floats
    abnormal: Floats
    regions: Floats

    def to_row(self) -> dict[str, list[list[float]]]:
        """JSON values: part -> [level, count] of the levels that occur."""
        parts = {"normal": self.normal, "abnormal": self.abnormal, "regions": self.regions}
        return {
            name: [[int(k), float(histogram[k])] for k in np.flatnonzero(histogram)]
            for name, histogram in parts.items()
        }


def pixel_counts_from_row(row: dict[str, Any]) -> PixelCounts:
    """Undoes `PixelCounts.row`."""

    def to_histogram(pairs: Sequence[Sequence[float]]) -> Floats:
        counts = np.zeros(MAX_LEVEL + 1)
        for level, count in pairs:
            counts[int(level)] = count
        return counts

    return PixelCounts(to_histogram(row["normal"]), to_histogram(row["abnormal"]), to_histogram(row["regions"]))


def count_pixels(levels: NDArray[np.integer[Any]], mask: Mask) -> PixelCounts:
    """The histograms of one image.

    Args:
        levels: whole numbers from 0 to `MAX_LEVEL`, higher is more abnormal.
        mask: boolean, the same shape; regions are its connected components, corners included.

    Raises:
        ValueError: shapes differ, or a level out of range.
    """
    if levels.shape != mask.shape:
        raise ValueError(f"the map's shape {levels.shape} differs from the mask's {mask.shape}")
    if levels.size and (int(levels.min()) < 0 or int(levels.max()) > MAX_LEVEL):
        raise ValueError(
            f"the map has levels from {int(levels.min())} to {int(levels.max())}; they are 0 to {MAX_LEVEL}"
        )
    is_abnormal = np.asarray(mask, dtype=np.bool_)
    region_labels, n_regions = label_components(is_abnormal)
    abnormal_levels = levels[is_abnormal]
    sizes = np.bincount(region_labels[is_abnormal], minlength=n_regions + 1).astype(np.float64)
    region_share = 1.0 / sizes[region_labels[is_abnormal]] if n_regions else np.zeros(0)
    return PixelCounts(
        np.bincount(levels[~is_abnormal].ravel(), minlength=MAX_LEVEL + 1).astype(np.float64),
        np.bincount(abnormal_levels, minlength=MAX_LEVEL + 1).astype(np.float64),
        np.bincount(abnormal_levels, weights=region_share, minlength=MAX_LEVEL + 1).astype(np.float64),
    )


@dataclass(frozen=True)
class PixelTables:
    """The histograms of several images, each (cases, TOP + 1)."""

    normal: Floats
    abnormal: Floats
    regions: Floats


def stack_pixel_counts(cases: Sequence[PixelCounts]) -> PixelTables:
    """Stacked."""
    return PixelTables(
        *(np.stack([getattr(counts, part) for counts in cases]) for part in ("normal", "abnormal", "regions"))
    )


def cumulate_from_top(weights: Floats, table: Floats) -> Floats:
    """(draws, TOP + 2) how much lies at or above each level, from nothing at all to everything."""
    sampled = (weights @ table)[:, ::-1]
    return np.concatenate([np.zeros((len(weights), 1)), np.cumsum(sampled, axis=1)], axis=1)
