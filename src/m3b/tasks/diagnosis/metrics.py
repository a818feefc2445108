"""The metrics of a diagnosis, and the scoring of its cases: every metric with its interval and its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.bootstrap import (
    bootstrap_interval,
    gain_at_edge,
    has_spread,
    lower_median,
    paired_interval,
    rarer_side_patients,
    resample,
)
from m3b.metrics.cases import ClassificationCase, ClassificationTable, Floats, divide, mean_defined, tabulate
from m3b.metrics.classification_estimators import (
    ECE_BINS,
    SPECIFICITIES,
    class_aurocs,
    confusion_matrix,
    decision_confidence,
    estimate,
)
from m3b.metrics.edges import class_losses, largest_unseen_share, perfect_labels_loss, share_edges, with_perfect_labels
from m3b.metrics.metric_tables import MetricTable, canonical_metric, lower_is_better
from m3b.metrics.scores import ClassScore, Measure, Scores

DIAGNOSIS_METRICS = MetricTable(
    {
        "auroc": (
            "AUC",
            "ROC-AUC",
            "ROC AUC",
            "AUROC macro",
            "macro AUC",
            "mean AUC",
            "area under the ROC curve",
            "AUC-ROC",
        ),
        "balanced_accuracy": ("bacc", "balanced acc", "balanced accuracy", "macro recall", "UAR"),
        "accuracy": ("acc", "top-1 accuracy", "overall accuracy"),
        "f1": ("F1 score", "macro F1", "F1 macro", "F-score", "F1-measure"),
        "sensitivity": ("recall", "true positive rate", "TPR", "sens"),
        "specificity": ("true negative rate", "TNR", "spec"),
        "auprc": ("average precision", "PR-AUC", "AUC-PR", "area under the precision-recall curve", "macro AP"),
        "sensitivity_at_90_specificity": (
            "sensitivity at 90 % specificity",
            "sens@90spec",
            "recall at 90 % specificity",
        ),
        "sensitivity_at_95_specificity": (
            "sensitivity at 95 % specificity",
            "sens@95spec",
            "recall at 95 % specificity",
        ),
        "ece": ("calibration error", "expected calibration error", "calibration"),
        "brier": ("Brier score", "Brier loss"),
    },
    "auroc",
    lower_is_better=frozenset({"ece", "brier"}),
    companions={"sensitivity": "balanced_accuracy", "specificity": "balanced_accuracy", "ece": "auroc"},
    noted_metrics=("accuracy",),
    decision_metric="balanced_accuracy",
    uses_rarer_class=True,
    titles={
        "auroc": "AUROC",
        "balanced_accuracy": "Balanced accuracy",
        "accuracy": "Accuracy",
        "f1": "F1 (macro)",
        "sensitivity": "Sensitivity",
        "specificity": "Specificity",
        "auprc": "AUPRC (average precision)",
        "sensitivity_at_90_specificity": "Sensitivity at 90 % specificity",
        "sensitivity_at_95_specificity": "Sensitivity at 95 % specificity",
        "ece": "Calibration error",
        "brier": "Brier score",
    },
)
MAX_ROC_POINTS = 200


def roc_points(score: Floats, positive: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Return (false positive rate, true positive rate) from (0, 0) to (1, 1); [] if undefined.

    There are about `MAX_ROC_POINTS` at most.

    Equal scores make one step, so ties show as a slope.
    """
    if positive.all() or not positive.any():
        return []
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order]) != 0), len(order) - 1)
    tpr = np.cumsum(positive[order])[ends] / positive.sum()
    fpr = np.cumsum(~positive[order])[ends] / (~positive).sum()
    x, y = np.concatenate(([0.0], fpr)), np.concatenate(([0.0], tpr))
    is_corner = np.ones(len(x), dtype=np.bool_)  # points on the line between their neighbours are dropped
    cross = (x[1:-1] - x[:-2]) * (y[2:] - y[1:-1]) - (y[1:-1] - y[:-2]) * (x[2:] - x[1:-1])
    is_corner[1:-1] = np.abs(cross) > 1e-12
    x, y = x[is_corner], y[is_corner]
    if len(x) > MAX_ROC_POINTS:
        indices = np.unique(np.linspace(0, len(x) - 1, MAX_ROC_POINTS).round().astype(np.int64))
        x, y = x[indices], y[indices]
    return [(round(float(a), 5), round(float(b), 5)) for a, b in zip(x, y, strict=True)]


def calibration_bins(table: ClassificationTable) -> list[dict[str, float]]:
    """Return the non-empty calibration bins: mean `confidence`, share `correct`, number `n` of decisions.

    For exclusive classes a decision is the decided class of a case; for multi-label tasks all findings of all cases are
    pooled.
    """
    if table.multi_label:
        confidence, correct = table.probability[table.known], table.truth[table.known]
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


def _best_constant_f1(prevalence: Floats) -> float:
    """Return the macro F1 of the best constant class: only that class has an F1 above zero."""
    return float((2 * prevalence / (1 + prevalence)).max()) / int((prevalence > 0).sum())


def _chance_average_precision(table: ClassificationTable, shares: Floats) -> Floats:
    """Return (draws,) average precision of uninformative scores: the positive share, from (draws, classes) shares."""
    if len(table.classes) == 2 and not table.multi_label:
        return np.where((shares[:, 1] > 0) & (shares[:, 1] < 1), shares[:, 1], np.nan)
    return mean_defined(np.where((shares > 0) & (shares < 1), shares, np.nan))


def _chance_ranking_metrics(table: ClassificationTable, prevalence: Floats) -> dict[str, float | None]:
    """Return ranking metrics of uninformative scores: sensitivity equals the false positive rate."""
    area = float(_chance_average_precision(table, prevalence[None])[0])
    chance_sensitivities = {name: 1 - specificity for name, specificity in SPECIFICITIES.items()}
    return {"auprc": None if np.isnan(area) else area, **chance_sensitivities}


def _prevalence(table: ClassificationTable) -> Floats:
    """Return (classes,) the share of positives among the cases whose truth is known."""
    return np.nan_to_num(divide(table.truth.sum(axis=0).astype(np.float64), table.known.sum(axis=0).astype(np.float64)))


def constant_baselines(table: ClassificationTable) -> dict[str, float | None]:
    """Return canonical name -> the best value of a constant prediction on these cases; None if it has no meaning.

    For exclusive classes, accuracy is the share of the commonest class, balanced accuracy one over the number of
    classes that occur, average precision the share of positives, and the Brier score that of predicting every class's
    share. For multi-label tasks it is the mean of the same values over findings. Sensitivity and specificity are those
    of a coin (a constant prediction gets 1 on one and 0 on the other). A constant prediction of the shares is perfectly
    calibrated, so the calibration error has no baseline.
    """
    prevalence = _prevalence(table)
    by_rank = _chance_ranking_metrics(table, prevalence)
    if table.multi_label:
        is_present = prevalence > 0
        f1 = float((2 * prevalence[is_present] / (1 + prevalence[is_present])).mean()) if is_present.any() else None
        shares = table.known.mean(axis=0) / table.known.mean()
        return {
            "auroc": 0.5,
            "balanced_accuracy": 0.5,
            "accuracy": float((shares * np.maximum(prevalence, 1 - prevalence)).mean()),
            "f1": f1,
            "sensitivity": 0.5,
            "specificity": 0.5,
            **by_rank,
            "ece": None,
            "brier": float((shares * prevalence * (1 - prevalence)).mean()),
        }
    return {
        "auroc": 0.5,
        "balanced_accuracy": 1 / int((prevalence > 0).sum()),
        "accuracy": float(prevalence.max()),
        "f1": _best_constant_f1(prevalence),
        "sensitivity": 0.5,
        "specificity": 0.5,
        **by_rank,
        "ece": None,
        "brier": float((prevalence * (1 - prevalence)).sum() / 2),
    }


def constant_draws(table: ClassificationTable, weights: Floats) -> dict[str, Floats]:
    """Return metrics of the best constant prediction on weighted cases, each (draws,).

    These are accuracy, F1, average precision and Brier score.

    The constant is chosen on all cases, as in `constant_baselines`, and is the same in every draw. For the other
    metrics a constant prediction has the same value on any cases.

    Args:
        weights: (draws, cases), see `bootstrap.resampling_weights`.
    """
    known = weights @ table.known.astype(np.float64)
    prevalence = _prevalence(table)
    shares = np.nan_to_num(divide(weights @ table.truth.astype(np.float64), known))
    single_class_f1 = 2 * shares / (1 + shares)
    errors = np.square(prevalence - table.truth) * table.known
    total = weights.sum(axis=1)
    if table.multi_label:
        total = known.sum(axis=1)
        accuracy = divide((np.where(prevalence >= 0.5, shares, 1 - shares) * known).sum(axis=1), total)
        f1, brier = single_class_f1[:, prevalence > 0].mean(axis=1), errors.sum(axis=1)
    else:
        common = int(prevalence.argmax())
        accuracy = shares[:, common]
        f1 = divide(single_class_f1[:, common], (shares > 0).sum(axis=1).astype(np.float64))
        brier = errors.sum(axis=1) / 2
    precision = _chance_average_precision(table, shares)
    return {"accuracy": accuracy, "f1": f1, "auprc": precision, "brier": (weights @ brier) / total}


_CASE_WEIGHTED_METRICS = frozenset({"accuracy", "ece", "brier"})
"""Metrics in which every case counts alike; in the others the rarest class limits the precision of the estimate."""
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
    """Compare predictions with the truth.

    AUROC is that of the positive class (the second of two) or the mean over classes against the rest; see
    docs/metrics.md for every formula. Intervals come from `draws` bootstrap samples of patients.

    Args:
        cases: one for each test case.
        classes: class names in the order of the model's outputs.
        multi_label: whether a case can have any number of labels.
        primary: the metric that counts, any spelling in `metric_names("diagnosis")`.
        seed: of the bootstrap; the same seed gives the same intervals.
        draws: bootstrap samples; 0 for no intervals.
        baseline_cases: the same cases with image-blind predictions that differ between cases, such as those from the
            covariates alone. The baseline of a metric is the better of these and of a constant prediction.

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
    """Replace constant baselines by the metrics of image-blind predictions if these are better; return the latter.

    Sensitivity and specificity stay those of a coin, because either can be bought with the other.
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
    """Return every metric with its interval, its baseline, and its gain over the best image-blind baseline."""
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
    """Return the number of patients behind a metric.

    That is all patients, those with (or without) a finding, or those on the rarer side of a typical class.
    """
    if metric in _CASE_WEIGHTED_METRICS:
        return table.n_patients
    if metric in _TRADE_OFF_METRICS:
        marked = table.truth if metric == "sensitivity" else table.negative
        columns = marked.T if table.multi_label else marked.T[1:]
        return lower_median([len(np.unique(table.patient[column])) for column in columns if column.any()])
    return typical_side


def _score_classes(table: ClassificationTable, samples: Floats | None) -> tuple[ClassScore, ...]:
    areas = class_aurocs(table, np.ones((1, table.n_cases)))[0]
    rows = []
    for k, name in enumerate(table.classes):
        truth, negative, known = table.truth[:, k], table.negative[:, k], table.known[:, k]
        rarest_patients = min(len(np.unique(table.patient[truth])), len(np.unique(table.patient[negative])))
        edges = share_edges(largest_unseen_share(rarest_patients))
        low, high = (
            bootstrap_interval(float(areas[k]), samples[:, k], rarest_patients, edges)
            if samples is not None
            else (None, None)
        )
        area = Measure("auroc", float(areas[k]), low, high, table.n_cases, 0.5)
        points = tuple(roc_points(table.probability[known, k], truth[known]))
        rows.append(ClassScore(name, int(truth.sum()), area, points))
    return tuple(rows)
