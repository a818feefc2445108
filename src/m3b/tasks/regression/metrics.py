"""The metrics of a regression, and the scoring of its cases: errors in the unit of the quantity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m3b.metrics.bootstrap import MeasureSettings, group_patients, measure_with_intervals, point_estimates
from m3b.metrics.cases import Floats, divide
from m3b.metrics.edges import largest_unseen_share
from m3b.metrics.metric_tables import MetricTable, canonical_metric, lower_is_better
from m3b.metrics.scores import Scores

REGRESSION_METRICS = MetricTable(
    {
        "mae": ("mean absolute error", "absolute error", "MAD"),
        "rmse": ("root mean squared error", "root mean square error", "RMS error"),
        "r2": ("R squared", "R^2", "coefficient of determination", "explained variance"),
        "pearson": ("Pearson's r", "Pearson correlation", "correlation", "PCC"),
    },
    "mae",
    lower_is_better=frozenset({"mae", "rmse"}),
    unbounded=frozenset({"mae", "rmse", "r2", "pearson"}),
    best={"r2": 1.0, "pearson": 1.0},
    companions={"pearson": "mae"},
    guarded_metrics=("mae",),
    noted_metrics=("rmse",),
    titles={"mae": "Mean absolute error", "rmse": "RMSE", "r2": "R²", "pearson": "Pearson's r"},
)
MAX_PLOT_POINTS = 400
"""Number of pairs of true and predicted numbers kept for a plot, spread evenly over all of them."""


@dataclass(frozen=True)
class RegressionCase:
    """One test case: its true number, the predicted one, and the model's interval, if any."""

    image: str
    patient: str
    true: float
    predicted: float
    interval: tuple[float, float] | None = None


def score_regression(
    cases: Sequence[RegressionCase],
    quantity: str,
    *,
    primary: str = "mae",
    constant_values: Sequence[float] = (),
    covariates_only: Sequence[float] = (),
    level: float | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Compare predicted numbers with the true ones.

    Args:
        cases: one for each test case.
        quantity: what is measured, with its unit.
        primary: the metric that counts, any spelling in `metric_names("regression")`.
        constant_values: numbers that are given to every image alike (the training median and mean): the best of them is
            the baseline of each metric.
        covariates_only: the number for each case from the covariates alone: another baseline.
        level: the nominal coverage of the intervals.
        seed: of the bootstrap.
        draws: bootstrap samples of patients; 0 for no intervals.

    Raises:
        ValueError: no cases, a number that is not finite, or an unknown metric.
    """
    name = canonical_metric(primary, "regression")
    patients = group_patients(cases)
    true = np.array([case.true for case in cases], dtype=np.float64)
    predicted = np.array([case.predicted for case in cases], dtype=np.float64)
    if not np.isfinite(true).all() or not np.isfinite(predicted).all():
        raise ValueError("a true or predicted number is not finite")
    baseline_estimators = [_make_estimator(true, np.full(len(true), value)) for value in constant_values]
    baseline_estimators += (
        [_make_estimator(true, np.array(covariates_only, dtype=np.float64))] if len(covariates_only) else []
    )
    baseline_figures = [point_estimates(estimator, len(true)) for estimator in baseline_estimators]
    baseline = {
        metric: np.asarray(
            (min if lower_is_better(metric) else max)(float(figures[metric]) for figures in baseline_figures)
        )
        for metric in (baseline_figures[0] if baseline_figures else ())
    }
    losses = {"rmse": largest_unseen_share(patients.n_patients) ** 0.5}  # the share applies to squared errors
    settings = MeasureSettings(
        draws,
        seed,
        baseline,
        np.zeros((len(true), 0), dtype=np.bool_),
        baseline_estimators=baseline_estimators,
        losses=losses,
    )
    covariates_figures = (
        {key: float(value) for key, value in baseline_figures[-1].items() if not np.isnan(value)}
        if len(covariates_only)
        else {}
    )
    metrics, _ = measure_with_intervals(patients, (), _make_estimator(true, predicted), settings)
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=(quantity,),
        n_cases=len(cases),
        n_patients=patients.n_patients,
        task="regression",
        details={
            **_details(cases, true, predicted, quantity, level),
            **({"covariates_alone": covariates_figures} if covariates_figures else {}),
        },
    )


def _make_estimator(true: Floats, predicted: Floats) -> Callable[[Floats], dict[str, Floats]]:
    """Return weights (draws, cases) -> metric -> (draws,); R2 and Pearson's r are undefined without variation."""
    error = predicted - true

    def estimate(weights: Floats) -> dict[str, Floats]:
        total = weights.sum(axis=1)
        mean_squared_error = divide(weights @ np.square(error), total)
        true_variance = _covariance(weights, true, true)
        covariance, predicted_variance = (
            _covariance(weights, true, predicted),
            _covariance(weights, predicted, predicted),
        )
        return {
            "mae": divide(weights @ np.abs(error), total),
            "rmse": np.sqrt(mean_squared_error),
            "r2": 1 - divide(mean_squared_error, true_variance),
            "pearson": divide(covariance, np.sqrt(np.maximum(true_variance * predicted_variance, 0.0))),
        }

    return estimate


def _covariance(weights: Floats, first: Floats, second: Floats) -> Floats:
    """Return (draws,) covariances of the weighted cases; exactly zero if they are zero up to rounding."""
    total = weights.sum(axis=1)
    first, second = first - first.mean(), second - second.mean()  # avoids cancellation for large numbers
    covariance: Floats = divide(weights @ (first * second), total) - divide(weights @ first, total) * divide(
        weights @ second, total
    )
    scale = np.sqrt(float(np.square(first).mean() * np.square(second).mean()))
    return np.where(np.abs(covariance) <= 1e-12 * scale, 0.0, covariance)


def _details(
    cases: Sequence[RegressionCase], true: Floats, predicted: Floats, quantity: str, level: float | None
) -> Mapping[str, Any]:
    """Return bias and limits of agreement (Bland and Altman, 1986), coverage of the intervals, and pairs for a plot."""
    error = predicted - true
    deviation = float(error.std(ddof=1)) if len(error) > 1 else 0.0
    plot_indices = np.argsort(true, kind="stable")[:: max(1, -(-len(true) // MAX_PLOT_POINTS))]
    details: dict[str, Any] = {
        "quantity": quantity,
        "bias": float(error.mean()),
        "limits_of_agreement": [float(error.mean() - 1.96 * deviation), float(error.mean() + 1.96 * deviation)],
        "pairs": [[float(true[index]), float(predicted[index])] for index in plot_indices],
    }
    with_interval = [(case.true, case.interval) for case in cases if case.interval is not None]
    if with_interval and level is not None:
        n_covered = sum(span[0] <= value <= span[1] for value, span in with_interval)
        width = float(np.mean([span[1] - span[0] for _, span in with_interval]))
        details["intervals"] = {
            "promised": level,
            "held": n_covered / len(with_interval),
            "cases": len(with_interval),
            "mean_width": width,
        }
    return details
