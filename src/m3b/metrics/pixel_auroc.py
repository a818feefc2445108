"""Pixel AUROC: how well a map ranks the pixels of all images, abnormal above normal."""

from __future__ import annotations

from .arithmetic import divide
from .cases import Floats
from .pixels import PixelTables, cumulate_from_top


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
