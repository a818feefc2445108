"""The metrics of a segmentation, and the scoring of its cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from m3b.metrics.bootstrap import (
    Estimator,
    MeasureSettings,
    group_patients,
    measure_with_intervals,
    point_estimates,
)
from m3b.metrics.instances import (
    INSTANCE_METRIC_TITLES,
    INSTANCE_METRICS,
    InstanceCounts,
    has_many_instances,
    make_instance_estimator,
)
from m3b.metrics.masks import (
    MASK_METRIC_TITLES,
    MASK_METRICS,
    LabelMetrics,
    check_labels,
    make_mask_baseline_estimators,
    make_mask_estimator,
    mask_baseline,
    mask_details,
)
from m3b.metrics.metric_tables import MetricTable, canonical_metric
from m3b.metrics.scores import Scores

SEGMENTATION_METRICS = MetricTable(
    {**MASK_METRICS, **INSTANCE_METRICS},
    "dice",
    lower_is_better=frozenset({"hd95"}),
    unbounded=frozenset({"hd95"}),
    guarded_metrics=("dice", "hd95"),
    titles={**MASK_METRIC_TITLES, **INSTANCE_METRIC_TITLES},
)


@dataclass(frozen=True)
class SegmentationCase:
    """One test image: its name in messages, its patient (empty: one of its own), and metrics for every label.

    Args:
        instances: of every label; empty if they were not counted.
    """

    image: str
    patient: str
    figures: Mapping[str, LabelMetrics]
    instances: Mapping[str, InstanceCounts] = field(default_factory=dict)


def join_estimators(first: Estimator, second: Estimator) -> Estimator:
    """Return an estimator of the metrics of both."""
    return lambda weights: {**first(weights), **second(weights)}


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

    A label counts in the cases in which prediction or reference has it. An infinite HD95 counts as
    `MAX_HD95_MM`; `details` says how many there were.

    PQ and AP50 of instances are measured if true masks consist of many instances, or if one of them is `primary`.

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
    baseline_estimators = make_mask_baseline_estimators(rows, labels, baseline_rows)
    estimator = make_mask_estimator(rows, labels)
    if name in INSTANCE_METRICS or all(case.instances for case in cases):
        check_labels(cases, labels, "instances")
        instances = [case.instances for case in cases]
        if name in INSTANCE_METRICS or has_many_instances(instances, labels):
            estimator = join_estimators(estimator, make_instance_estimator(instances, labels))
            unmarked = [{k: row[k].without_prediction() for k in labels} for row in instances]
            baseline_estimators.append(make_instance_estimator(unmarked, labels))
            baseline |= point_estimates(baseline_estimators[-1], len(rows))
    settings = MeasureSettings(draws, seed, baseline, label_presence, baseline_estimators=baseline_estimators)
    metrics, per_label = measure_with_intervals(patients, labels, estimator, settings)
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
