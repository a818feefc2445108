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
    weighted_means,
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
    empty_prediction_metrics,
    make_mask_baseline_estimators,
    make_mask_estimator,
    mask_baseline,
    mask_details,
)
from m3b.metrics.metric_tables import MetricTable, canonical_metric
from m3b.metrics.scores import Scores

BOX_IOU = "box_iou"
"""Metric of cases whose true masks are boxes: IoU of these with the boxes of the components of the answer."""
SEGMENTATION_METRICS = MetricTable(
    {**MASK_METRICS, **INSTANCE_METRICS, BOX_IOU: ("IoU of boxes", "box overlap")},
    "dice",
    lower_is_better=frozenset({"hd95"}),
    unbounded=frozenset({"hd95"}),
    guarded_metrics=("dice", "hd95"),
    titles={**MASK_METRIC_TITLES, **INSTANCE_METRIC_TITLES, BOX_IOU: "IoU of boxes"},
)


@dataclass(frozen=True)
class SegmentationCase:
    """One test image: its name in messages, its patient (empty: one of its own), and metrics for every label.

    Args:
        instances: of every label; empty if they were not counted.
        is_boxed: whether the figures are of boxes, true ones and those of the answer: `box_iou` is then the only metric.
    """

    image: str
    patient: str
    figures: Mapping[str, LabelMetrics]
    instances: Mapping[str, InstanceCounts] = field(default_factory=dict)
    is_boxed: bool = False


def join_estimators(first: Estimator, second: Estimator) -> Estimator:
    """Return an estimator of the metrics of both."""
    return lambda weights: {**first(weights), **second(weights)}


def make_box_estimator(rows: Sequence[Mapping[str, LabelMetrics]], labels: Sequence[str]) -> Estimator:
    """Return an estimator of the IoU of boxes: (draws, labels) means over the cases with the label in either mask."""
    dice = np.array([[row[label].dice for label in labels] for row in rows])
    return lambda weights: {BOX_IOU: weighted_means(dice / (2 - dice), weights)}


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
        ValueError: no cases, a case without one of the labels, or an unknown metric; boxes measured by another metric than
            `box_iou`, or masks by it.
    """
    name = canonical_metric(primary, "segmentation")
    is_boxed = any(case.is_boxed for case in cases)
    if is_boxed and not all(case.is_boxed for case in cases):
        raise ValueError("some true masks are boxes and others outlines: measure them apart")
    if is_boxed != (name == BOX_IOU):
        raise ValueError(
            f"{name} of outlines cannot be measured: true masks are boxes; choose {BOX_IOU}"
            if is_boxed
            else f"{BOX_IOU} is for true masks that are boxes; these are outlines: choose dice"
        )
    patients = group_patients(cases)
    for case_list in (cases, baseline_cases or ()):
        check_labels(case_list, labels)
    if baseline_cases is not None and [case.image for case in baseline_cases] != [case.image for case in cases]:
        raise ValueError("the baseline cases must be the same images in the same order")
    rows = [case.figures for case in cases]
    baseline_rows = None if baseline_cases is None else [case.figures for case in baseline_cases]
    label_presence = np.array([[row[k].reference > 0 or row[k].prediction > 0 for k in labels] for row in rows])
    if is_boxed:
        estimator = make_box_estimator(rows, labels)
        unmarked_rows = [{label: empty_prediction_metrics(figures) for label, figures in row.items()} for row in rows]
        baseline_estimators = [
            make_box_estimator(answer, labels) for answer in (unmarked_rows, baseline_rows) if answer
        ]
        baseline = {
            BOX_IOU: np.fmax.reduce([point_estimates(item, len(rows))[BOX_IOU] for item in baseline_estimators])
        }
    else:
        estimator = make_mask_estimator(rows, labels)
        baseline = mask_baseline(rows, labels, baseline_rows)
        baseline_estimators = make_mask_baseline_estimators(rows, labels, baseline_rows)
    if not is_boxed and (name in INSTANCE_METRICS or all(case.instances for case in cases)):
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
        details=mask_details(rows, labels)
        | ({"boxed": True} if is_boxed else {})
        | {"baseline": "nothing marked" if baseline_cases is None else "mean shape"},
    )
