"""Baseline from the covariates alone, without the image: a model that is given both has to be better.

It is a logistic regression with a ridge penalty, fitted on the training cases; regression and survival fit a linear and
a Cox model to the same design matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from m3b.data.index import Index
from m3b.data.kinds.covariates import numeric
from m3b.data.kinds.diagnosis import UNKNOWN_LABELS
from m3b.data.records import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

COVARIATES_KEY = "covariates"
"""Key of a baseline: the predictions from the covariates alone."""
RIDGE_PENALTY = 1.0
MAX_DEVIATIONS = 5.0
"""Numbers are clipped to this many deviations from the median."""


def build_design_matrices(training: Sequence[Record], records: Sequence[Record]) -> tuple[Floats, Floats]:
    """Return design matrices (N, D) of `training` and (M, D) of `records`; the first column is the constant.

    Numbers are given in deviations from the training median, with their squares; categories are one-hot; missing values
    have a column of their own.
    """
    columns: list[tuple[Floats, Floats]] = []
    for name in training[0].covariates:
        value_lists = ([record.covariates.get(name) for record in part] for part in (training, records))
        columns += _encode_numbers(*value_lists) if numeric(name, training) else _encode_categories(*value_lists)
    constants = np.ones(len(training)), np.ones(len(records))
    all_columns = [constants, *columns]
    return np.stack([training_column for training_column, _ in all_columns], axis=1), np.stack(
        [record_column for _, record_column in all_columns], axis=1
    )


def _encode_numbers(training: Sequence[Any], records: Sequence[Any]) -> list[tuple[Floats, Floats]]:
    known_values = np.array([value for value in training if value is not None], dtype=np.float64)
    low, centre, high = np.percentile(known_values, (25, 50, 75))
    scale = float(high - low) / 1.349 or float(known_values.std()) or 1.0

    def standardize(values: Sequence[Any]) -> Floats:
        numbers = np.array([centre if value is None else float(value) for value in values])
        clipped: Floats = np.clip((numbers - centre) / scale, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        return clipped

    training_column, record_column = standardize(training), standardize(records)
    missing = tuple(np.array([value is None for value in part], dtype=np.float64) for part in (training, records))
    return [
        (training_column, record_column),
        (np.square(training_column) - 1, np.square(record_column) - 1),
        (missing[0], missing[1]),
    ]


def _encode_categories(training: Sequence[Any], records: Sequence[Any]) -> list[tuple[Floats, Floats]]:
    values = sorted({str(value) for value in training if value is not None})
    pairs = []
    for category in (None, *values):
        training_column, record_column = (
            np.array([(value if value is None else str(value)) == category for value in part], dtype=np.float64)
            for part in (training, records)
        )
        pairs.append((training_column, record_column))
    return pairs


def predict_classes(
    training: Sequence[Record], records: Sequence[Record], index: Index, *, decide_median: bool = False
) -> list[dict[str, Any]] | None:
    """Predict each record from its covariates: class `probabilities` and `decided` classes; None without covariates.

    With several labels a case, each label gets the threshold with the best F1 on the training cases.

    Args:
        decide_median: classes are ordered, and the median of the distribution is decided, not the likeliest class.
    """
    if not index.covariates or not training or not records:
        return None
    training_matrix, record_matrix = build_design_matrices(training, records)
    truth = np.array([[name in record.labels for name in index.classes] for record in training], dtype=np.float64)
    if index.multi_label:
        known = [
            np.array([name not in record.extra.get(UNKNOWN_LABELS, ()) for record in training])
            for name in index.classes
        ]
        weights = np.stack(
            [_fit_logistic(training_matrix[rows], truth[rows, k]) for k, rows in enumerate(known)], axis=1
        )
        training_probabilities, probabilities = _sigmoid(training_matrix @ weights), _sigmoid(record_matrix @ weights)
        thresholds = [
            _find_best_threshold(training_probabilities[rows, k], truth[rows, k] > 0.5) for k, rows in enumerate(known)
        ]
        decisions = [
            [name for name, p, threshold in zip(index.classes, row, thresholds, strict=True) if p >= threshold]
            for row in probabilities
        ]
    else:
        probabilities = _softmax(record_matrix @ _fit_multinomial(training_matrix, truth))
        class_positions = (
            (probabilities.cumsum(axis=1) < 0.5 - 1e-9).sum(axis=1) if decide_median else probabilities.argmax(axis=1)
        )
        decisions = [[index.classes[min(int(position), len(index.classes) - 1)]] for position in class_positions]
    names = index.classes
    return [
        {"probabilities": dict(zip(names, map(float, row), strict=True)), "decided": decision}
        for row, decision in zip(probabilities, decisions, strict=True)
    ]


def make_covariate_rows(rows: Sequence[Mapping[str, Any]], baseline: Any) -> list[dict[str, Any]]:
    """Return the measured cases with the predictions from the covariates alone; empty if `baseline` has none."""
    covariate_answers = baseline.get(COVARIATES_KEY) if isinstance(baseline, Mapping) else None
    return [{**row, **answer} for row, answer in zip(rows, covariate_answers, strict=True)] if covariate_answers else []


def _sigmoid(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(values, -60, 60)))


def _softmax(values: Floats) -> Floats:
    exponentials = np.exp(values - values.max(axis=1, keepdims=True))
    probabilities: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def _fit_logistic(inputs: Floats, truth: Floats) -> Floats:
    """Fit the weights (D,) of one class by Newton's method; the first column is the almost unpenalised constant."""
    weights = np.zeros(inputs.shape[1])
    ridge = np.full(inputs.shape[1], RIDGE_PENALTY)
    ridge[0] = 1e-3
    for _ in range(50):
        p = _sigmoid(inputs @ weights)
        gradient = inputs.T @ (p - truth) + ridge * weights
        step = np.linalg.solve((inputs * (p * (1 - p))[:, None]).T @ inputs + np.diag(ridge), gradient)
        weights = weights - step * min(1.0, 3.0 / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-8:
            break
    return weights


def _fit_multinomial(inputs: Floats, truth: Floats) -> Floats:
    """Fit the weights (D, K) of exclusive classes."""
    from scipy.optimize import minimize

    shape = inputs.shape[1], truth.shape[1]
    ridge = np.full(shape, RIDGE_PENALTY)
    ridge[0] = 1e-3

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        p = _softmax(inputs @ weights)
        value = -float((truth * np.log(np.maximum(p, 1e-300))).sum()) + 0.5 * float((ridge * np.square(weights)).sum())
        return value, (inputs.T @ (p - truth) + ridge * weights).ravel()

    solution: Floats = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x
    return solution.reshape(shape)


def _find_best_threshold(score: Floats, truth: NDArray[np.bool_]) -> float:
    """Return the threshold with the best F1."""
    thresholds = np.unique(score)[:: max(1, len(np.unique(score)) // 200)]
    return float(
        max(
            thresholds,
            key=lambda threshold: (
                2 * (truth & (score >= threshold)).sum() / max(truth.sum() + (score >= threshold).sum(), 1)
            ),
        )
    )
