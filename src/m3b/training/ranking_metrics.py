"""Validation metrics in NumPy: area under the ROC curve (one class against the rest) and balanced accuracy."""

from __future__ import annotations

import numpy as np


def auroc(positive: np.ndarray, score: np.ndarray) -> float:
    """Return the area under the ROC curve (Mann-Whitney, ties count half); NaN if only one class is present."""
    positive = np.asarray(positive).astype(bool)
    _, inverse, counts = np.unique(np.asarray(score, dtype=np.float64), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return float("nan")
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2.0) / (n_positive * n_negative))


def macro_auroc(labels: np.ndarray, scores: np.ndarray, networks: np.ndarray | None = None) -> float:
    """Return the mean over the classes of (N, K) multi-hot labels with positives and negatives; 0.5 without any. NaN labels are
    unknown.

    Args:
        networks: (N,) the network of each row. Only rows of one network are compared with each other, since networks differ in scale;
            each network counts by its pairs of a positive and a negative case.
    """
    network_ids = np.zeros(len(labels), int) if networks is None else np.asarray(networks)
    values = []
    for k in range(labels.shape[1]):
        area = pairs = 0.0
        for network in np.unique(network_ids):
            rows = (network_ids == network) & ~np.isnan(labels[:, k])
            truth = labels[rows, k] > 0.5
            count = float(truth.sum()) * float((~truth).sum())
            if count:
                area += count * auroc(truth, scores[rows, k])
                pairs += count
        if pairs:
            values.append(area / pairs)
    return float(np.mean(values)) if values else 0.5


def balanced_accuracy(labels: np.ndarray, scores: np.ndarray, multi_label: bool = False) -> float:
    """Return the mean recall of the classes; multi-label: mean over classes of (sensitivity + specificity) / 2 at 0.5."""
    truth, negative = labels > 0.5, labels <= 0.5
    if multi_label:
        is_called = scores >= 0.5
        values = [
            0.5 * (is_called[truth[:, k], k].mean() + (~is_called[negative[:, k], k]).mean())
            for k in range(truth.shape[1])
            if truth[:, k].any() and negative[:, k].any()
        ]
    else:
        predicted = scores.argmax(axis=1)
        values = [(predicted[truth[:, k]] == k).mean() for k in range(truth.shape[1]) if truth[:, k].any()]
    return float(np.mean(values)) if values else float("nan")
