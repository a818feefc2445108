"""Score a diagnosis model: every metric with its interval and its trivial baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .baselines import constant_baselines, constant_draws
from .bootstrap import (
    bootstrap_interval,
    gain_at_edge,
    has_spread,
    lower_median,
    paired_interval,
    rarer_side_patients,
    resample,
)
from .cases import ClassificationCase, ClassificationTable, Floats, tabulate
from .curves import calibration_bins, confusion_matrix, roc_points
from .edges import class_losses, largest_unseen_share, perfect_labels_loss, share_edges, with_perfect_labels
from .estimators import class_aurocs, estimate
from .scores import ClassScore, Measure, Scores
from .table import lower_is_better
from .vocabulary import canonical_metric

_CASE_WEIGHTED_METRICS = frozenset({"accuracy", "ece", "brier"})
"""Metrics in which every case counts alike; in the others the rarest class decides how sure a figure can be."""
_TRADE_OFF_METRICS = frozenset({"sensitivity", "specificity"})


def _estimate_all(table: ClassificationTable, weights: Floats) -> dict[str, Floats]:
    return estimate(table, weights) | {"per class": class_aurocs(table, weights)}


def score_diagnosis(
    cases: Sequence[ClassificationCase],
    classes: Sequence[str],
    multi_label: bool,
    *,
    primary: str = "auroc",
    seed: int = 0,
    draws: int = 1000,
    baseline_cases: Sequence[ClassificationCase] = (),
) -> Scores:
    """Measure predictions against the truth.

    AUROC is that of the positive class (the second of two) or the mean over classes against the rest; see
    docs/metrics.md for every formula. Intervals come from `draws` bootstrap samples of patients.

    Args:
        cases: one for each test case.
        classes: class names in the order of the model's outputs.
        multi_label: whether a case can have any number of labels.
        primary: the metric that counts, any spelling in `metric_names("diagnosis")`.
        seed: of the bootstrap; the same seed gives the same intervals.
        draws: bootstrap samples; 0 for no intervals.
        baseline_cases: the same cases as an answer gets them that never looks at an image and is not the same for
            all, such as that of the
            covariates alone: the better of it and of a constant prediction is the baseline of a metric.

    Raises:
        ValueError: a case that cannot be scored (the message says which), or an unknown or unfitting metric.
    """
    name = canonical_metric(primary, "diagnosis")
    table = tabulate(cases, classes, multi_label)
    values = {key: float(value[0]) for key, value in estimate(table, np.ones((1, table.n_cases))).items()}
    if name not in values:
        raise ValueError(f"{name} needs two classes or a multi-label task, there are {len(table.classes)} classes here")
    samples = resample(table, _estimate_all, draws, seed)
    baseline: dict[str, float | None] = dict(constant_baselines(table))
    baseline_samples = resample(table, constant_draws, draws, seed)
    covariates_only = (
        _raise_baseline(tabulate(baseline_cases, classes, multi_label), baseline, baseline_samples, draws, seed)
        if baseline_cases
        else {}
    )
    metrics = _make_measures(table, values, samples, baseline, baseline_samples)
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=table.classes,
        n_cases=table.n_cases,
        n_patients=table.n_patients,
        multi_label=multi_label,
        per_class=_score_classes(table, samples.get("per class")),
        confusion=tuple(tuple(row) for row in confusion_matrix(table)),
        calibration=tuple(calibration_bins(table)),
        details={"covariates_alone": covariates_only} if covariates_only else {},
    )


def _raise_baseline(
    baseline_table: ClassificationTable,
    baseline: dict[str, float | None],
    baseline_samples: dict[str, Floats],
    draws: int,
    seed: int,
) -> dict[str, float]:
    """Puts a blind answer's figures where they are better than a constant one's; gives all of them.

    Sensitivity and specificity stay those of a coin: either is had for the other.
    """
    values = {
        key: float(value[0]) for key, value in estimate(baseline_table, np.ones((1, baseline_table.n_cases))).items()
    }
    samples = resample(baseline_table, _estimate_all, draws, seed)
    for key, value in values.items():
        constant_value, sign = baseline.get(key), -1.0 if lower_is_better(key) else 1.0
        if (
            key in _TRADE_OFF_METRICS
            or constant_value is None
            or np.isnan(value)
            or sign * value <= sign * constant_value
        ):
            continue
        baseline[key] = value
        if samples:
            baseline_samples[key] = samples[key]
    return {key: value for key, value in values.items() if not np.isnan(value)}


def _make_measures(
    table: ClassificationTable,
    values: Mapping[str, float],
    samples: Mapping[str, Floats],
    baseline: Mapping[str, float | None],
    baseline_samples: Mapping[str, Floats],
) -> dict[str, Measure]:
    """Every metric with its interval, its baseline, and its gain on the best blind answer to the same cases."""
    typical_side = lower_median(rarer_side_patients(table))
    losses = class_losses(table)
    unseen = perfect_labels_loss(table, class_aurocs(table, np.ones((1, table.n_cases)))[0])
    metrics = {}
    for key, value in values.items():
        effective = _patients_behind(table, key, typical_side)
        edges = share_edges(losses[key])
        bounds = bootstrap_interval(value, samples[key], effective, edges) if samples else (None, None)
        if key == "auroc" and (table.multi_label or len(table.classes) > 2):
            bounds = with_perfect_labels(value, bounds, unseen)
        gain = None
        if key in baseline_samples and has_spread(samples[key]):
            gain = paired_interval(samples[key], baseline_samples[key], effective, lower_is_better(key))
            gain = gain_at_edge(gain, bounds, edges[1] if lower_is_better(key) else edges[0], baseline[key])
        metrics[key] = Measure(key, value, *bounds, table.n_cases, baseline[key], gain, effective)
    return metrics


def _patients_behind(table: ClassificationTable, metric: str, typical_side: int) -> int:
    """Patients that a metric rests on: all, those with (or without) a finding, or those of a typical rarer side."""
    if metric in _CASE_WEIGHTED_METRICS:
        return table.n_patients
    if metric in _TRADE_OFF_METRICS:
        marked = table.truth if metric == "sensitivity" else ~table.truth
        columns = marked.T if table.multi_label else marked.T[1:]
        return lower_median([len(np.unique(table.patient[column])) for column in columns if column.any()])
    return typical_side


def _score_classes(table: ClassificationTable, samples: Floats | None) -> tuple[ClassScore, ...]:
    areas = class_aurocs(table, np.ones((1, table.n_cases)))[0]
    rows = []
    for k, name in enumerate(table.classes):
        truth = table.truth[:, k]
        rarest_patients = min(len(np.unique(table.patient[truth])), len(np.unique(table.patient[~truth])))
        edges = share_edges(largest_unseen_share(rarest_patients))
        low, high = (
            bootstrap_interval(float(areas[k]), samples[:, k], rarest_patients, edges)
            if samples is not None
            else (None, None)
        )
        area = Measure("auroc", float(areas[k]), low, high, table.n_cases, 0.5)
        points = tuple(roc_points(table.probability[:, k], truth))
        rows.append(ClassScore(name, int(truth.sum()), area, points))
    return tuple(rows)
