"""Average precision of a ranking: of images by their anomaly score, and of pixels by an anomaly map.

AP = sum over thresholds of (recall_n - recall_n-1) x precision_n, without interpolation, equal scores taken together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arithmetic import divide
from .cases import Floats
from .pixels import PixelTables, from_above


def image_ap(score: Floats, abnormal: NDArray[np.bool_], weights: Floats) -> Floats:
    """Average precision of the images' anomaly scores.

    Args:
        score: (cases,) the higher the more abnormal.
        abnormal: (cases,) truth.
        weights: (draws, cases).

    Returns:
        (draws,), NaN where a draw has no abnormal image.
    """
    order = np.argsort(-score, kind="stable")
    drawn = weights[:, order]
    ends = np.append(np.flatnonzero(np.diff(score[order]) != 0), len(order) - 1)
    hit = np.cumsum(np.where(abnormal[order], drawn, 0.0), axis=1)[:, ends]
    return _area(hit, np.cumsum(drawn, axis=1)[:, ends])


def pixel_ap(tables: PixelTables, weights: Floats) -> Floats:
    """Average precision over the pixels of all images together: (draws,), NaN without an abnormal pixel."""
    hit = from_above(weights, tables.abnormal)[:, 1:]
    return _area(hit, hit + from_above(weights, tables.normal)[:, 1:])


def _area(hit: Floats, taken: Floats) -> Floats:
    """(draws,) from what is right and what is taken at each threshold, (draws, thresholds)."""
    gained = np.diff(hit, axis=1, prepend=0.0)
    precision = np.nan_to_num(divide(hit, taken))
    return divide((gained * precision).sum(axis=1), hit[:, -1])
