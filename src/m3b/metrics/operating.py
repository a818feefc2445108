"""Figures that are read off the ranking of cases: average precision, and sensitivity where specificity is fixed.

As in `estimators`, every function takes `weights` of shape (draws, cases) and gives one value a draw, NaN where the draw
has no positives or no negatives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arithmetic import divide
from .cases import Floats

SPECIFICITIES = {"sensitivity_at_90_specificity": 0.90, "sensitivity_at_95_specificity": 0.95}
"""Metric -> the specificity that has to be kept."""

_ROUNDING_TOLERANCE = 1e-9


def cumulative_counts(score: Floats, positive: NDArray[np.bool_], weights: Floats) -> tuple[Floats, Floats]:
    """True and false positives at every threshold, the highest first; equal scores share one.

    Args:
        score: (cases,) the higher the more positive.
        positive: (cases,) truth.
        weights: (draws, cases).

    Returns:
        Two of shape (draws, thresholds).
    """
    order = np.argsort(-score, kind="stable")
    ordered = weights[:, order]
    true_positives = np.cumsum(np.where(positive[order], ordered, 0.0), axis=1)
    last = np.append(np.diff(score[order]) < 0, True)
    return true_positives[:, last], (np.cumsum(ordered, axis=1) - true_positives)[:, last]


def step_average_precision(true_positives: Floats, false_positives: Floats) -> Floats:
    """Area under the precision-recall curve as a sum of steps: sum over thresholds of precision x rise of recall.

    Not interpolated, as scikit-learn's `average_precision_score`; Davis & Goadrich, ICML 2006, say why straight lines
    between points of this curve are too kind. NaN where a draw has no positives.
    """
    rise = np.diff(true_positives, axis=1, prepend=0.0)
    precision = np.nan_to_num(divide(true_positives, true_positives + false_positives))
    return divide((rise * precision).sum(axis=1), true_positives[:, -1])


def average_precision(true_positives: Floats, false_positives: Floats) -> Floats:
    """`step_average_precision`, NaN also where a draw has no negatives: then every ranking is as good."""
    return np.where(false_positives[:, -1] > 0, step_average_precision(true_positives, false_positives), np.nan)


def sensitivity_at_specificity(specificity: float, true_positives: Floats, false_positives: Floats) -> Floats:
    """The largest sensitivity at any threshold that keeps the specificity; nothing is interpolated."""
    allowed = false_positives <= (1 - specificity) * false_positives[:, -1:] + _ROUNDING_TOLERANCE
    sensitivity = divide(np.where(allowed, true_positives, 0.0).max(axis=1, initial=0.0), true_positives[:, -1])
    return np.where(false_positives[:, -1] > 0, sensitivity, np.nan)


def ranking_metrics(probability: Floats, truth: NDArray[np.bool_], weights: Floats) -> dict[str, Floats]:
    """Metric -> (draws, classes), each class against the rest.

    Args:
        probability: (cases, classes).
        truth: (cases, classes).
        weights: (draws, cases).
    """
    columns: dict[str, list[Floats]] = {"auprc": [], **{name: [] for name in SPECIFICITIES}}
    for k in range(probability.shape[1]):
        true_positives, false_positives = cumulative_counts(probability[:, k], truth[:, k], weights)
        columns["auprc"].append(average_precision(true_positives, false_positives))
        for name, specificity in SPECIFICITIES.items():
            columns[name].append(sensitivity_at_specificity(specificity, true_positives, false_positives))
    return {name: np.stack(column, axis=1) for name, column in columns.items()}
