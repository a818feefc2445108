"""What the report draws: ROC points, calibration bins and the confusion matrix, as plain lists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .cases import ClassificationTable, Floats
from .estimators import ECE_BINS, decision_confidence

MAX_ROC_POINTS = 200


def roc_points(score: Floats, positive: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """(false positive rate, true positive rate) from (0, 0) to (1, 1), at most about 200 points; [] where undefined.

    Equal scores make one step, so ties show as a slope.
    """
    if positive.all() or not positive.any():
        return []
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order]) != 0), len(order) - 1)
    tpr = np.cumsum(positive[order])[ends] / positive.sum()
    fpr = np.cumsum(~positive[order])[ends] / (~positive).sum()
    x, y = np.concatenate(([0.0], fpr)), np.concatenate(([0.0], tpr))
    is_corner = np.ones(len(x), dtype=np.bool_)  # a point on the line between its neighbours draws nothing
    cross = (x[1:-1] - x[:-2]) * (y[2:] - y[1:-1]) - (y[1:-1] - y[:-2]) * (x[2:] - x[1:-1])
    is_corner[1:-1] = np.abs(cross) > 1e-12
    x, y = x[is_corner], y[is_corner]
    if len(x) > MAX_ROC_POINTS:
        indices = np.unique(np.linspace(0, len(x) - 1, MAX_ROC_POINTS).round().astype(np.int64))
        x, y = x[indices], y[indices]
    return [(round(float(a), 5), round(float(b), 5)) for a, b in zip(x, y, strict=True)]


def calibration_bins(table: ClassificationTable) -> list[dict[str, float]]:
    """Non-empty calibration bins: mean `confidence`, share `correct`, number `n` of decisions.

    Exclusive classes: the class that each case was decided to be. Multi-label: all findings of all cases pooled.
    """
    if table.multi_label:
        confidence, correct = table.probability.ravel(), table.truth.ravel()
    else:
        confidence, correct = decision_confidence(table)
    bins = np.minimum((confidence * ECE_BINS).astype(np.int64), ECE_BINS - 1)
    rows = []
    for number in range(ECE_BINS):
        in_bin = bins == number
        if in_bin.any():
            mean, share = float(confidence[in_bin].mean()), float(correct[in_bin].mean())
            rows.append({"confidence": mean, "correct": share, "n": int(in_bin.sum())})
    return rows


def confusion_matrix(table: ClassificationTable) -> list[list[int]]:
    """Exclusive classes: rows are truth, columns the decision. Multi-label: one row [tp, fp, fn, tn] a finding."""
    truth, decision = table.truth, table.decision
    if not table.multi_label:
        matrix = truth.T.astype(np.int64) @ decision.astype(np.int64)
        return [[int(value) for value in row] for row in matrix]
    pairs = [(truth & decision), (~truth & decision), (truth & ~decision), (~truth & ~decision)]
    return [[int(pair[:, k].sum()) for pair in pairs] for k in range(len(table.classes))]
