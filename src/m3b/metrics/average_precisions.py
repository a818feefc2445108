"""Average precision of a ranking: of images by their anomaly score, and of pixels by an anomaly map.

AP = sum over thresholds of (recall_n - recall_n-1) x precision_n, without interpolation, equal scores taken together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .cases import Floats
from .operating import cumulated, precision_area
from .pixels import PixelTables, from_above


def image_ap(score: Floats, abnormal: NDArray[np.bool_], weights: Floats) -> Floats:
    """Average precision of the images' anomaly scores: (draws,), NaN where a draw has no abnormal image.

    Arguments as of `cumulated`.
    """
    return precision_area(*cumulated(score, abnormal, weights))


def pixel_ap(tables: PixelTables, weights: Floats) -> Floats:
    """Average precision over the pixels of all images together: (draws,), NaN without an abnormal pixel."""
    return precision_area(from_above(weights, tables.abnormal)[:, 1:], from_above(weights, tables.normal)[:, 1:])
