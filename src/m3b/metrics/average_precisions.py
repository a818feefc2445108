"""Average precision of a ranking: of images by their anomaly score, and of pixels by an anomaly map.

AP = sum over thresholds of (recall_n - recall_n-1) x precision_n, without interpolation, equal scores taken together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .cases import Floats
from .operating import cumulative_counts, step_average_precision
from .pixels import PixelTables, cumulate_from_top


def image_ap(score: Floats, abnormal: NDArray[np.bool_], weights: Floats) -> Floats:
    """Average precision of the images' anomaly scores: (draws,), NaN where a draw has no abnormal image.

    Arguments as of `cumulated`.
    """
    return step_average_precision(*cumulative_counts(score, abnormal, weights))


def pixel_ap(tables: PixelTables, weights: Floats) -> Floats:
    """Average precision over the pixels of all images together: (draws,), NaN without an abnormal pixel."""
    return step_average_precision(
        cumulate_from_top(weights, tables.abnormal)[:, 1:], cumulate_from_top(weights, tables.normal)[:, 1:]
    )
