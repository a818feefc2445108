"""Probabilities that mean what they say: temperature and bias fitted on validation logits, thresholds, and their error.

Guo et al., 2017, "On calibration of modern neural networks": one temperature for one label a case; for several labels a
temperature and a bias a class (the loss weighs positive cases, which moves every class's logit by an amount of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ENOUGH = 10
"""Cases that a class must have on either side to be given its own temperature and bias."""
BINS = 15


def probabilities(logits: np.ndarray, multi_label: bool) -> np.ndarray:
    """(N, K) logits to probabilities: sigmoid for several labels a case, softmax for one."""
    if multi_label:
        return 1 / (1 + np.exp(-np.clip(logits, -60, 60)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def log_loss(logits: np.ndarray, labels: np.ndarray, multi: bool) -> float:
    """Mean over cases (and classes, for several labels), in nats."""
    if multi:
        return float((np.logaddexp(0, logits) - labels * logits).mean())
    top = logits.max(axis=1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return float(-(logs * labels).sum(axis=1).mean())


def fit(logits: np.ndarray, labels: np.ndarray, multi: bool) -> dict[str, Any]:
    """{"temperature", "bias"}: a number and 0 for one label a case, lists of K for several. Least log loss."""
    logits, labels = logits.astype(np.float64), labels > 0.5
    grid = np.exp(np.linspace(np.log(0.25), np.log(4.0), 81))
    shared = float(min(grid, key=lambda value: log_loss(logits / value, labels, multi)))
    if not multi:
        return {"temperature": round(shared, 4), "bias": 0.0}
    rows = [_fit_class(logits[:, k], labels[:, k], shared) for k in range(labels.shape[1])]
    return {"temperature": [round(t, 4) for t, _ in rows], "bias": [round(b, 4) for _, b in rows]}


def _fit_class(logits: np.ndarray, truth: np.ndarray, shared: float) -> tuple[float, float]:
    """Newton's method for the slope and the bias of one class, drawn slightly to the shared slope and no bias."""
    if min(truth.sum(), (~truth).sum()) < ENOUGH:
        return shared, 0.0
    weights, prior = np.array([1 / shared, 0.0]), np.array([1 / shared, 0.0])
    inputs = np.stack([logits, np.ones_like(logits)], axis=1)
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(inputs @ weights, -60, 60)))
        gradient = inputs.T @ (p - truth) + (weights - prior)
        step = np.linalg.solve((inputs * (p * (1 - p))[:, None]).T @ inputs + np.eye(2), gradient)
        weights = weights - step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
    if not np.isfinite(weights).all() or not 0.05 <= weights[0] <= 20:
        return shared, 0.0  # a class that the network ranks the wrong way round is left as it is
    return float(1 / weights[0]), float(weights[1])


def adjust(logits: np.ndarray, fitted: Mapping[str, Any]) -> np.ndarray:
    """logits / temperature + bias."""
    return logits / np.asarray(fitted["temperature"]) + np.asarray(fitted["bias"])


def calibration_error(scores: np.ndarray, labels: np.ndarray, multi: bool) -> float:
    """Expected calibration error, 15 equal bins: of the class decided for, or the mean over classes of each alone."""
    truth = labels > 0.5
    if multi:
        return float(np.mean([_binned(scores[:, k], truth[:, k]) for k in range(truth.shape[1])]))
    called = scores.argmax(axis=1)
    rows = np.arange(len(scores))
    return _binned(scores[rows, called], truth[rows, called])


def _binned(score: np.ndarray, right: np.ndarray) -> float:
    place = np.minimum((score * BINS).astype(int), BINS - 1)
    gap = np.bincount(place, score, BINS) - np.bincount(place, right.astype(float), BINS)
    return float(np.abs(gap).sum() / max(len(score), 1))


def best_threshold(truth: np.ndarray, score: np.ndarray) -> float:
    """The cut with the highest F1; 0.5 where only one side is present."""
    if not truth.any() or truth.all():
        return 0.5
    cuts = np.unique(score)[:: max(1, len(np.unique(score)) // 200)]
    return float(max(cuts, key=lambda cut: 2 * (truth & (score >= cut)).sum() / (truth.sum() + (score >= cut).sum())))


def calibrate(logits: np.ndarray, labels: np.ndarray, patients: list[str], multi: bool) -> dict[str, Any]:
    """temperature, bias, thresholds, and before and after: log loss and calibration error.

    "After" is measured on cases that the fit has not seen: five groups of patients take turns. Where it does not lower
    the log loss there, as with a handful of cases, nothing is fitted.
    """
    truth, fitted = labels > 0.5, fit(logits, labels, multi)
    fair = np.zeros_like(logits, dtype=np.float64)
    names = {name: place for place, name in enumerate(sorted(set(patients)))}
    turn = np.random.default_rng(0).permutation(len(names))[[names[name] for name in patients]] % 5
    for part in range(5):
        rest = turn != part
        chosen = fit(logits[rest], labels[rest], multi) if rest.any() else fitted
        fair[~rest] = adjust(logits[~rest], chosen)
    if log_loss(fair, truth, multi) >= log_loss(logits, truth, multi):
        one = np.ones(labels.shape[1])
        fitted = (
            {"temperature": one.tolist(), "bias": (one * 0).tolist()} if multi else {"temperature": 1.0, "bias": 0.0}
        )
        fair = logits.astype(np.float64)
    before, after = probabilities(logits, multi), probabilities(fair, multi)
    thresholds = [0.5] * labels.shape[1]
    if multi:
        scores = probabilities(adjust(logits, fitted), multi)
        thresholds = [round(best_threshold(truth[:, k], scores[:, k]), 4) for k in range(labels.shape[1])]
    figures = {
        "log_loss_before": round(log_loss(logits, truth, multi), 4),
        "log_loss_after": round(log_loss(fair, truth, multi), 4),
        "ece_before": round(calibration_error(before, labels, multi), 4),
        "ece_after": round(calibration_error(after, labels, multi), 4),
    }
    return {**fitted, "thresholds": thresholds, "figures": figures}
