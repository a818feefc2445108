"""Metrics that are a mean over cases, from one figure a case: intervals, and the paired gain on an image-blind answer.

What a task family of one's own needs most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cases import Floats
from .measuring import MeasureSettings, group_patients, measure_with_intervals, weighted_means
from .scores import Scores
from .vocabulary import canonical_metric

CaseFigures = Mapping[str, Sequence[float]]
"""Metric -> one figure a case, NaN where a case says nothing."""


@dataclass(frozen=True)
class _PatientOnly:
    patient: str


def score_means(
    task: str,
    patients: Sequence[str],
    figures: CaseFigures,
    *,
    primary: str,
    baseline_figures: CaseFigures | None = None,
    classes: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Each metric's mean over the cases, with a 95 % interval from `draws` bootstrap samples of patients.

    Args:
        task: whose metrics these are; its table says which way is better.
        patients: of each case.
        figures: of the model.
        primary: the metric that counts, any spelling of it.
        baseline_figures: of the best answer that never looks at an image, on the same cases; it is paired with the model's.
        details: JSON values that belong to the task.

    Raises:
        ValueError: no cases, a metric without a figure for each case, or an unknown primary metric.
    """
    name = canonical_metric(primary, task)
    cases = group_patients([_PatientOnly(patient) for patient in patients])
    for figures_by_metric in (figures, baseline_figures or {}):
        if incomplete := [metric for metric, values in figures_by_metric.items() if len(values) != len(patients)]:
            raise ValueError(f"{', '.join(incomplete)}: there must be one figure for each of the {len(patients)} cases")
    if name not in figures:
        raise ValueError(f"there are no figures of {name}, which is asked for; there are {', '.join(figures)}")
    baseline_estimator = _make_mean_estimator(baseline_figures) if baseline_figures else None
    baseline = (
        {}
        if baseline_estimator is None
        else {metric: value[0] for metric, value in baseline_estimator(np.ones((1, len(patients)))).items()}
    )
    no_labels = np.zeros((len(patients), 0), dtype=np.bool_)
    settings = MeasureSettings(
        draws, seed, baseline, no_labels, baseline_estimators=[baseline_estimator] if baseline_estimator else []
    )
    metrics, _ = measure_with_intervals(cases, (), _make_mean_estimator(figures), settings)
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=tuple(classes),
        n_cases=len(patients),
        n_patients=cases.n_patients,
        task=task,
        details=dict(details or {}),
    )


def _make_mean_estimator(figures: CaseFigures) -> Callable[[Floats], dict[str, Floats]]:
    """The means of every metric from (draws, cases) weights."""
    columns = {name: np.asarray(values, dtype=np.float64)[:, None] for name, values in figures.items()}
    return lambda weights: {name: weighted_means(column, weights)[:, 0] for name, column in columns.items()}
