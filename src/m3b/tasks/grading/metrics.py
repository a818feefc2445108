"""The metrics of a grading, and the scoring of its cases: the distance of grades from the true ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from m3b.metrics.bootstrap import MeasureSettings, group_patients, measure_with_intervals, point_estimates
from m3b.metrics.cases import ClassificationCase, ClassificationTable, Floats, divide, mean_defined, tabulate
from m3b.metrics.classification_estimators import class_aurocs, confusion_matrix
from m3b.metrics.edges import class_losses, largest_loss, sum_by_patient
from m3b.metrics.metric_tables import MetricTable, canonical_metric, lower_is_better
from m3b.metrics.scores import Scores

GRADING_METRICS = MetricTable(
    {
        "qwk": (
            "quadratic weighted kappa",
            "quadratic kappa",
            "weighted kappa",
            "Cohen's kappa",
            "kappa",
            "quadratically weighted kappa",
        ),
        "grade_mae": ("MAE", "mean absolute error", "MAE of the grade", "mean grade error"),
        "accuracy": ("acc", "exact agreement", "overall accuracy"),
        "within_one": ("adjacent accuracy", "accuracy within one grade", "off-by-one accuracy"),
        "balanced_accuracy": ("bacc", "balanced acc", "macro recall", "UAR"),
        "auroc": ("AUC", "ROC-AUC", "macro AUC", "mean AUC"),
    },
    "qwk",
    lower_is_better=frozenset({"grade_mae"}),
    unbounded=frozenset({"grade_mae", "qwk"}),
    best={"qwk": 1.0},
    guarded_metrics=("grade_mae",),
    noted_metrics=("accuracy",),
    titles={
        "qwk": "Quadratic weighted kappa",
        "grade_mae": "Mean error in grades",
        "accuracy": "Accuracy",
        "within_one": "Within one grade",
        "balanced_accuracy": "Balanced accuracy",
        "auroc": "AUROC",
    },
)


def score_grading(
    cases: Sequence[ClassificationCase],
    classes: Sequence[str],
    *,
    primary: str = "qwk",
    constant_grades: Sequence[str] = (),
    covariates_only: Sequence[ClassificationCase] = (),
    seed: int = 0,
    draws: int = 1000,
    details: Mapping[str, Any] | None = None,
) -> Scores:
    """Compare predicted grades with the truth.

    Args:
        cases: one for each test case; `labels` holds the one true grade, `decision` the one that the model gives.
        classes: the grades, from low to high.
        primary: the metric that counts, any spelling in `metric_names("grading")`.
        constant_grades: grades that are given to every image alike: the best of them is the baseline.
        covariates_only: the same cases, predicted from the covariates alone: another baseline.
        seed: of the bootstrap.
        draws: bootstrap samples of patients; 0 for no intervals.

    Raises:
        ValueError: a case that cannot be scored, or an unknown metric.
    """
    name = canonical_metric(primary, "grading")
    table = tabulate(cases, classes, multi_label=False)
    decided = table.decision.argmax(axis=1)
    baseline_estimators = [
        _make_estimator(table, np.full(table.n_cases, list(classes).index(grade)), is_constant=True)
        for grade in constant_grades
    ]
    if covariates_only:
        covariates_table = tabulate(covariates_only, classes, multi_label=False)
        baseline_estimators.append(_make_estimator(covariates_table, covariates_table.decision.argmax(axis=1)))
    baseline_figures = [point_estimates(estimator, table.n_cases) for estimator in baseline_estimators]
    baseline = {
        metric: np.asarray(
            (min if lower_is_better(metric) else max)(float(figures[metric]) for figures in baseline_figures)
        )
        for metric in (baseline_figures[0] if baseline_figures else ())
    }
    settings = MeasureSettings(
        draws,
        seed,
        baseline,
        np.zeros((table.n_cases, 0), dtype=np.bool_),
        baseline_estimators=baseline_estimators,
        losses=_losses(table),
    )
    covariates_figures = (
        {key: float(value) for key, value in baseline_figures[-1].items() if not np.isnan(value)}
        if covariates_only
        else {}
    )
    metrics, _ = measure_with_intervals(group_patients(cases), (), _make_estimator(table, decided), settings)
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=table.classes,
        n_cases=table.n_cases,
        n_patients=table.n_patients,
        task="grading",
        confusion=tuple(tuple(row) for row in confusion_matrix(table)),
        details={**(details or {}), **({"covariates_alone": covariates_figures} if covariates_figures else {})},
    )


def _losses(table: ClassificationTable) -> dict[str, float]:
    """Return how much perfect values may lose; for the weighted kappa, an unseen patient gets the furthest grade."""
    losses = class_losses(table)
    top, disagreement = len(table.classes) - 1, 2 * float(np.var(table.target))
    furthest = np.square(np.maximum(table.target, top - table.target)) / max(disagreement, 1e-12) / table.n_cases
    kappa = largest_loss(sum_by_patient(table.patient, furthest.astype(np.float64)))
    shared_names = ("accuracy", "balanced_accuracy", "auroc")
    by_case = dict.fromkeys(("grade_mae", "within_one"), losses["accuracy"])
    return {name: losses[name] for name in shared_names} | by_case | {"qwk": min(kappa, 2.0)}


def _make_estimator(
    table: ClassificationTable, decided: Any, *, is_constant: bool = False
) -> Callable[[Floats], dict[str, Floats]]:
    """Return weights (draws, cases) -> metric -> (draws,). `is_constant`: equal predictions, which rank nothing."""
    truth, count = table.target, len(table.classes)
    grade_distance: Floats = np.abs(truth - decided).astype(np.float64)
    pairs = np.eye(count * count)[truth * count + decided]
    rows, columns = np.divmod(np.arange(count * count), count)
    penalty = np.square(rows - columns).astype(np.float64)

    def estimate(weights: Floats) -> dict[str, Floats]:
        total = weights.sum(axis=1)
        observed = (weights @ pairs).reshape(len(weights), count, count)
        expected = np.einsum("di,dj->dij", observed.sum(axis=2), observed.sum(axis=1)).reshape(len(weights), -1)
        weighted_disagreement = divide((weights @ np.square(grade_distance)) * total, expected @ penalty)
        recall = divide(np.einsum("dii->di", observed), observed.sum(axis=2))
        auroc = np.full(len(weights), 0.5) if is_constant else mean_defined(class_aurocs(table, weights))
        return {
            "qwk": 1 - weighted_disagreement,
            "grade_mae": divide(weights @ grade_distance, total),
            "accuracy": divide(weights @ (grade_distance == 0).astype(np.float64), total),
            "within_one": divide(weights @ (grade_distance <= 1).astype(np.float64), total),
            "balanced_accuracy": mean_defined(recall),
            "auroc": auroc,
        }

    return estimate
