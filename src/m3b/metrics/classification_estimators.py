"""Classification metrics on weighted cases, for many weightings at once.

Each function takes `weights` of shape (draws, cases): integers that say how often a case was drawn, all ones for the
point estimate. It returns one value a draw, NaN if the metric is undefined (for example without cases of a class).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.cases import ClassificationTable, Floats, divide, mean_defined

SPECIFICITIES = {"sensitivity_at_90_specificity": 0.90, "sensitivity_at_95_specificity": 0.95}
"""Metric -> the specificity that must be kept."""

_ROUNDING_TOLERANCE = 1e-9


def cumulative_counts(score: Floats, positive: NDArray[np.bool_], weights: Floats) -> tuple[Floats, Floats]:
    """Return true and false positives at every threshold, the highest first; equal scores share a threshold.

    Args:
        score: (cases,) the higher the more positive.
        positive: (cases,) truth.
        weights: (draws, cases).

    Returns:
        Two arrays of shape (draws, thresholds).
    """
    order = np.argsort(-score, kind="stable")
    ordered = weights[:, order]
    true_positives = np.cumsum(np.where(positive[order], ordered, 0.0), axis=1)
    last = np.append(np.diff(score[order]) < 0, True)
    return true_positives[:, last], (np.cumsum(ordered, axis=1) - true_positives)[:, last]


def step_average_precision(true_positives: Floats, false_positives: Floats) -> Floats:
    """Return the area under the precision-recall curve as a sum of steps.

    This is the sum over thresholds of precision x rise of recall.

    It is not interpolated, like scikit-learn's `average_precision_score`; Davis & Goadrich, ICML 2006, explain why
    straight lines between points of this curve are too optimistic. NaN for a draw without positives.
    """
    rise = np.diff(true_positives, axis=1, prepend=0.0)
    precision = np.nan_to_num(divide(true_positives, true_positives + false_positives))
    return divide((rise * precision).sum(axis=1), true_positives[:, -1])


def average_precision(true_positives: Floats, false_positives: Floats) -> Floats:
    """Return `step_average_precision`, NaN also for a draw without negatives, where every ranking is equally good."""
    return np.where(false_positives[:, -1] > 0, step_average_precision(true_positives, false_positives), np.nan)


def sensitivity_at_specificity(specificity: float, true_positives: Floats, false_positives: Floats) -> Floats:
    """Return the largest sensitivity at any threshold that keeps the specificity; nothing is interpolated."""
    allowed = false_positives <= (1 - specificity) * false_positives[:, -1:] + _ROUNDING_TOLERANCE
    sensitivity = divide(np.where(allowed, true_positives, 0.0).max(axis=1, initial=0.0), true_positives[:, -1])
    return np.where(false_positives[:, -1] > 0, sensitivity, np.nan)


def ranking_metrics(table: ClassificationTable, weights: Floats) -> dict[str, Floats]:
    """Return metric -> (draws, classes), each class against the rest, of the cases whose truth is known."""
    columns: dict[str, list[Floats]] = {"auprc": [], **{name: [] for name in SPECIFICITIES}}
    for k in range(len(table.classes)):
        known_weights = weights * table.known[:, k]
        true_positives, false_positives = cumulative_counts(table.probability[:, k], table.truth[:, k], known_weights)
        columns["auprc"].append(average_precision(true_positives, false_positives))
        for name, specificity in SPECIFICITIES.items():
            columns[name].append(sensitivity_at_specificity(specificity, true_positives, false_positives))
    return {name: np.stack(column, axis=1) for name, column in columns.items()}


ECE_BINS = 15


def auroc(score: Floats, positive: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the area under the ROC curve: P(score of a positive > of a negative) + half of P(equal).

    This is the Mann-Whitney statistic (Hanley 1982).

    Args:
        score: (cases,) the higher the more positive.
        positive: (cases,) truth.
        weights: (draws, cases).

    Returns:
        (draws,), NaN for a draw without positives or negatives.
    """
    order = np.argsort(score, kind="stable")
    ordered = weights[:, order]
    positives = np.where(positive[order], ordered, 0.0)
    negatives = ordered - positives
    starts = np.flatnonzero(np.concatenate(([True], np.diff(score[order]) > 0)))
    if len(starts) < len(order):  # equal scores share a rank
        positives, negatives = np.add.reduceat(positives, starts, axis=1), np.add.reduceat(negatives, starts, axis=1)
    ranks = np.cumsum(negatives, axis=1) - negatives / 2
    pairs = np.einsum("dg,dg->d", positives, ranks)
    return divide(pairs, positives.sum(axis=1) * negatives.sum(axis=1))


def class_aurocs(table: ClassificationTable, weights: Floats) -> Floats:
    """Return (draws, classes) the AUROC of each class against the rest."""
    columns = [
        auroc(table.probability[:, k], table.truth[:, k], weights * table.known[:, k])
        for k in range(len(table.classes))
    ]
    return np.stack(columns, axis=1)


def confusion_counts(table: ClassificationTable, weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return true and false positives, false and true negatives, each (draws, classes), class against rest."""
    truth, decision = table.truth, table.decision
    tp = weights @ (truth & decision).astype(np.float64)
    fp = weights @ (table.negative & decision).astype(np.float64)
    fn = weights @ (truth & ~decision).astype(np.float64)
    tn = weights @ table.known.astype(np.float64) - tp - fp - fn
    return tp, fp, fn, tn


def ece(confidence: Floats, correct: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the expected calibration error over 15 bins of equal width (Naeini 2015; Guo 2017).

    It is the sum over bins of share of cases x |share correct - mean confidence|.
    """
    bins = np.minimum((confidence * ECE_BINS).astype(np.int64), ECE_BINS - 1)
    gap = np.zeros((len(confidence), ECE_BINS))
    gap[np.arange(len(confidence)), bins] = correct - confidence
    return divide(np.abs(weights @ gap).sum(axis=1), weights.sum(axis=1))


def decision_confidence(table: ClassificationTable) -> tuple[Floats, NDArray[np.bool_]]:
    """Return (cases,) the probability of the decided class, and whether it is the true one; exclusive classes."""
    decided_class = table.decision.argmax(axis=1)
    return table.probability[np.arange(table.n_cases), decided_class], decided_class == table.target


def estimate_single_label(table: ClassificationTable, weights: Floats) -> dict[str, Floats]:
    """Compute every metric of a task with exclusive classes; sensitivity and specificity only for two classes."""
    tp, fp, fn, _ = confusion_counts(table, weights)
    total = weights.sum(axis=1)
    recalls = divide(tp, tp + fn)
    present = (~np.isnan(recalls)).sum(axis=1)
    binary = len(table.classes) == 2
    areas = class_aurocs(table, weights)
    confidence, is_correct = decision_confidence(table)
    squares = 0.5 * np.square(table.probability - table.truth).sum(axis=1)
    values = {
        "auroc": areas[:, 1] if binary else mean_defined(areas),
        "balanced_accuracy": np.where(present >= 2, mean_defined(recalls), np.nan),
        "accuracy": divide(tp.sum(axis=1), total),
        "f1": mean_defined(divide(2 * tp, 2 * tp + fp + fn)),
    }
    ranking = ranking_metrics(table, weights)
    values["auprc"] = ranking.pop("auprc")[:, 1] if binary else mean_defined(ranking.pop("auprc"))
    if binary:
        values["sensitivity"], values["specificity"] = recalls[:, 1], recalls[:, 0]
        values |= {name: column[:, 1] for name, column in ranking.items()}
    values["ece"] = ece(confidence, is_correct, weights)
    values["brier"] = divide(weights @ squares, total)
    return values


def estimate_multi_label(table: ClassificationTable, weights: Floats) -> dict[str, Floats]:
    """Compute every metric of a multi-label task: each is the mean over the findings for which it is defined."""
    tp, fp, fn, tn = confusion_counts(table, weights)
    known = table.known.astype(np.float64)
    total = (weights @ known).sum(axis=1)
    sensitivity, specificity = divide(tp, tp + fn), divide(tn, tn + fp)
    findings = range(len(table.classes))
    gaps = [ece(table.probability[:, k], table.truth[:, k], weights * known[:, k]) for k in findings]
    squares = (np.square(table.probability - table.truth) * known).sum(axis=1)
    return {
        "auroc": mean_defined(class_aurocs(table, weights)),
        "balanced_accuracy": mean_defined((sensitivity + specificity) / 2),
        "accuracy": divide((tp + tn).sum(axis=1), total),
        "f1": mean_defined(divide(2 * tp, 2 * tp + fp + fn)),
        "sensitivity": mean_defined(sensitivity),
        "specificity": mean_defined(specificity),
        **{name: mean_defined(column) for name, column in ranking_metrics(table, weights).items()},
        "ece": mean_defined(np.stack(gaps, axis=1)),
        "brier": divide(weights @ squares, total),
    }


def estimate(table: ClassificationTable, weights: Floats) -> dict[str, Floats]:
    """Return canonical name -> (draws,) values, for either kind of task."""
    return estimate_multi_label(table, weights) if table.multi_label else estimate_single_label(table, weights)


def confusion_matrix(table: ClassificationTable) -> list[list[int]]:
    """Return the confusion matrix: for exclusive classes rows are truth and columns decisions.

    For multi-label tasks there is one row [tp, fp, fn, tn] for each finding.
    """
    truth, decision = table.truth, table.decision
    if not table.multi_label:
        matrix = truth.T.astype(np.int64) @ decision.astype(np.int64)
        return [[int(value) for value in row] for row in matrix]
    pairs = [(truth & decision), (table.negative & decision), (truth & ~decision), (table.negative & ~decision)]
    return [[int(pair[:, k].sum()) for pair in pairs] for k in range(len(table.classes))]
