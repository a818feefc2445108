"""PRO: per-region overlap, in which a small lesion counts as much as a large one."""

from __future__ import annotations

import numpy as np

from .arithmetic import divide
from .cases import Floats
from .pixels import PixelTables, cumulate_from_top

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
