"""Score a segmentation model from the metrics of its cases.

Masks are measured one case at a time (`masks.measure_masks`) and only the values are kept, so a set of masks never has
to fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m3b.metrics.bootstrap import (
    Estimator,
    MeasureSettings,
    group_patients,
    measure_with_intervals,
    point_estimates,
    weighted_means,
)
from m3b.metrics.metric_tables import SEGMENTATION, canonical_metric, lower_is_better

from .cases import Floats
from .masks import LabelMetrics, empty_prediction_metrics
from .scores import Scores

METRICS = tuple(SEGMENTATION.names)


@dataclass(frozen=True)
class SegmentationCase:
    """One test image: its name in messages, its patient (empty: one of its own), and metrics for every label."""

    image: str
    patient: str
    figures: Mapping[str, LabelMetrics]


def make_mask_estimator(rows: Sequence[Mapping[str, LabelMetrics]], labels: Sequence[str]) -> Estimator:
    """Return an estimator of Dice, NSD and HD95: (draws, labels) means over the cases with the label in either mask."""
    tables = {name: np.array([[row[label].value(name) for label in labels] for row in rows]) for name in METRICS}
    return lambda weights: {name: weighted_means(table, weights) for name, table in tables.items()}


def better_value(name: str, first: Floats, second: Floats | None) -> Floats:
    """Return the better of two values; a defined value wins over NaN."""
    if second is None:
        return first
    return np.fmin(first, second) if lower_is_better(name) else np.fmax(first, second)


def mask_baseline(
    rows: Sequence[Mapping[str, LabelMetrics]],
    labels: Sequence[str],
    baseline_rows: Sequence[Mapping[str, LabelMetrics]] | None = None,
) -> dict[str, Floats]:
    """Return metric -> (labels,) the better of marking nothing and an image-blind baseline such as the mean shape."""
    empty_rows = [{label: empty_prediction_metrics(figures) for label, figures in row.items()} for row in rows]
    empty_values = point_estimates(make_mask_estimator(empty_rows, labels), len(rows))
    baseline_values = (
        point_estimates(make_mask_estimator(baseline_rows, labels), len(baseline_rows)) if baseline_rows else {}
    )
    return {name: better_value(name, value, baseline_values.get(name)) for name, value in empty_values.items()}


def make_mask_baseline_estimators(
    rows: Sequence[Mapping[str, LabelMetrics]],
    labels: Sequence[str],
    baseline_rows: Sequence[Mapping[str, LabelMetrics]] | None = None,
) -> list[Estimator]:
    """Return estimators of the baselines that `mask_baseline` compares."""
    empty_rows = [{label: empty_prediction_metrics(figures) for label, figures in row.items()} for row in rows]
    return [make_mask_estimator(answer, labels) for answer in (empty_rows, baseline_rows) if answer]


def check_labels(cases: Sequence[Any], labels: Sequence[str], field: str = "figures") -> None:
    """Check that every case has every label.

    Raises:
        ValueError: for the first case and label that is missing or unknown.
    """
    for number, case in enumerate(cases):
        mismatched = sorted(set(labels) ^ set(getattr(case, field)))
        if mismatched:
            problem = "no figures for" if mismatched[0] in labels else "figures for the unknown"
            raise ValueError(
                f"case {number} ({case.image}): {problem} label {mismatched[0]!r}; the labels are {list(labels)}"
            )


def score_segmentation(
    cases: Sequence[SegmentationCase],
    labels: Sequence[str],
    *,
    primary: str = "dice",
    baseline_cases: Sequence[SegmentationCase] | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Average over cases for each label, then over labels, with intervals from `draws` bootstrap samples of patients.

    A label counts in the cases in which prediction or reference has it. An infinite HD95 counts as the extent of its
    image; `details` says how many there were.

    Args:
        cases: one for each test image.
        labels: names of the labels, without background.
        primary: the metric that counts, any spelling in `metric_names("segmentation")`.
        baseline_cases: the same images with the masks of `Atlas.predict`, for the baseline; by default nothing is
            marked.

    Raises:
        ValueError: no cases, a case without one of the labels, or an unknown metric.
    """
    name = canonical_metric(primary, "segmentation")
    patients = group_patients(cases)
    for case_list in (cases, baseline_cases or ()):
        check_labels(case_list, labels)
    if baseline_cases is not None and [case.image for case in baseline_cases] != [case.image for case in cases]:
        raise ValueError("the baseline cases must be the same images in the same order")
    rows = [case.figures for case in cases]
    baseline_rows = None if baseline_cases is None else [case.figures for case in baseline_cases]
    baseline = mask_baseline(rows, labels, baseline_rows)
    label_presence = np.array([[row[k].reference > 0 or row[k].prediction > 0 for k in labels] for row in rows])
    settings = MeasureSettings(
        draws,
        seed,
        baseline,
        label_presence,
        baseline_estimators=make_mask_baseline_estimators(rows, labels, baseline_rows),
    )
    metrics, per_label = measure_with_intervals(patients, labels, make_mask_estimator(rows, labels), settings)
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=tuple(labels),
        n_cases=len(cases),
        n_patients=patients.n_patients,
        task="segmentation",
        per_label=per_label,
        details=mask_details(rows, labels) | {"baseline": "nothing marked" if baseline_cases is None else "mean shape"},
    )


def mask_details(rows: Sequence[Mapping[str, LabelMetrics]], labels: Sequence[str]) -> dict[str, Any]:
    """Return for each label in how many cases it was missed entirely, and in how many it was invented."""
    return {
        "missed": {k: sum(row[k].reference > 0 and not row[k].prediction for row in rows) for k in labels},
        "invented": {k: sum(row[k].prediction > 0 and not row[k].reference for row in rows) for k in labels},
    }
