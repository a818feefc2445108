"""The metrics of a detection, and the scoring of its cases: masks lesion by lesion, boxes, and a score of the image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.bootstrap import (
    Estimator,
    MeasureSettings,
    PatientGroup,
    group_patients,
    measure_with_intervals,
    point_estimates,
)
from m3b.metrics.boxes import CENTRE_RULE, COCO_IOUS, FROC_RATES, Box, average_precision, froc, rank_boxes
from m3b.metrics.cases import Floats
from m3b.metrics.classification_estimators import auroc
from m3b.metrics.masks import (
    MASK_METRIC_TITLES,
    MASK_METRICS,
    LabelMetrics,
    better_value,
    check_labels,
    make_mask_baseline_estimators,
    make_mask_estimator,
    mask_baseline,
    mask_details,
)
from m3b.metrics.metric_tables import MetricTable, canonical_metric
from m3b.metrics.scores import Scores
from m3b.tasks.detection.anomaly_maps import (
    MAX_FALSE_POSITIVE_RATE,
    PixelCounts,
    image_ap,
    per_region_overlap,
    pixel_ap,
    pixel_auroc,
    stack_pixel_counts,
)
from m3b.tasks.detection.lesions import OVERLAP, LesionCounts, lesion_rates

DETECTION_METRICS = MetricTable(
    MASK_METRICS
    | {
        "lesion_f1": ("F1", "lesion-wise F1", "lesionwise F1", "F1 score", "object F1", "detection F1"),
        "lesion_precision": ("precision", "lesion-wise precision", "positive predictive value", "PPV"),
        "lesion_recall": ("recall", "sensitivity", "lesion-wise recall", "lesion sensitivity", "LTPR"),
        "map_50": ("mAP@0.5", "mAP50", "AP50", "AP@0.5", "mAP at 0.5"),
        "map": ("mean average precision", "COCO mAP", "mAP@[.5:.95]", "AP", "mAP 50-95"),
        "map_10": ("mAP@0.1", "mAP10", "AP10", "AP@0.1", "mAP at 0.1"),
        "centre_ap": ("centre hit AP", "center AP", "centre-hit average precision", "AP by centre hits"),
        "froc": ("CPM", "FROC score", "competition performance metric", "average FROC sensitivity"),
        "image_auroc": ("image-level AUROC", "image AUROC", "image-level AUC", "auroc", "AUC", "anomaly AUROC"),
        "image_ap": ("image-level AP", "image AP", "AUPRC", "image-level average precision", "anomaly AP"),
        "pixel_auroc": ("pixel-level AUROC", "pixel AUC", "pixel-level AUC", "P-AUROC"),
        "pixel_ap": ("pixel-level AP", "pixel-level average precision", "P-AP"),
        "pro": ("AUPRO", "per-region overlap", "AU-PRO", "PRO score"),
    },
    "lesion_f1",
    lower_is_better=frozenset({"hd95"}),
    unbounded=frozenset({"hd95"}),
    companions={"lesion_precision": "lesion_f1", "lesion_recall": "lesion_f1"},
    guarded_metrics=("dice", "lesion_f1", "map_50", "froc", "image_auroc"),
    titles=MASK_METRIC_TITLES
    | {
        "lesion_f1": "Lesion F1",
        "lesion_precision": "Lesion precision",
        "lesion_recall": "Lesion recall",
        "map_50": "mAP at IoU 0.5",
        "map": "mAP (0.5 to 0.95)",
        "map_10": "mAP at IoU 0.1",
        "centre_ap": "AP by centre hits",
        "froc": "FROC score",
        "image_auroc": "AUROC of images",
        "image_ap": "AP of images",
        "pixel_auroc": "AUROC of pixels",
        "pixel_ap": "AP of pixels",
        "pro": "PRO",
    },
)


@dataclass(frozen=True)
class DetectionCase:
    """One test image; all cases must have the same parts.

    Args:
        image: name of the case in messages.
        patient: empty means a patient of its own.
        figures: class -> metrics of its mask (`lesions.measure_channels`).
        lesions: class -> lesions of its mask.
        predicted: boxes with scores; None if the task has no boxes.
        truth: true boxes.
        anomaly_score: how abnormal the image is as a whole, any scale, higher is more.
        abnormal: whether it is abnormal.
        pixels: its anomaly map, compared with its mask.
    """

    image: str
    patient: str
    figures: Mapping[str, LabelMetrics] = field(default_factory=dict)
    lesions: Mapping[str, LesionCounts] = field(default_factory=dict)
    predicted: tuple[Box, ...] | None = None
    truth: tuple[Box, ...] | None = None
    anomaly_score: float | None = None
    abnormal: bool | None = None
    pixels: PixelCounts | None = None

    def available_parts(self) -> tuple[bool, bool, bool, bool, bool]:
        """Return whether it has mask metrics, lesions, boxes, an image score, an anomaly map."""
        mark_parts = (bool(self.figures), bool(self.lesions), self.truth is not None)
        return (*mark_parts, self.anomaly_score is not None, self.pixels is not None)


def _find_problem(case: DetectionCase, first: DetectionCase, classes: Sequence[str]) -> str:
    if case.available_parts() != first.available_parts():
        return (
            f"mask figures, lesions, boxes, image score, map are {case.available_parts()}, in the first case "
            f"{first.available_parts()}"
        )
    if not any(case.available_parts()):
        return "nothing to score: no mask figures, no lesions, no boxes, no map and no score of the image"
    if (case.predicted is None) != (case.truth is None) or (case.anomaly_score is None) != (case.abnormal is None):
        return "a prediction without its truth, or the reverse"
    if case.anomaly_score is not None and not math.isfinite(case.anomaly_score):
        return f"the anomaly score is {case.anomaly_score}"
    boxes = (*(case.predicted or ()), *(case.truth or ()))
    problems = [problem for box in boxes if (problem := box.problem(classes))]
    if problems:
        return problems[0]
    if len({len(box.corners) for box in boxes}) > 1:
        return "boxes in 2D and in 3D"
    rules = {counts.rule for counts in (*case.lesions.values(), *first.lesions.values())}
    return f"lesions matched by different rules: {sorted(rules)}" if len(rules) > 1 else ""


def check_cases(cases: Sequence[DetectionCase], classes: Sequence[str]) -> None:
    """Check that every case can be scored and has the same parts.

    Raises:
        ValueError: for the first case that does not; the message names it by position and image.
    """
    for number, case in enumerate(cases):
        problem = _find_problem(case, cases[0], classes)
        if problem:
            raise ValueError(f"case {number} ({case.image}): {problem}")
    for name in ("figures", "lesions"):
        if cases and getattr(cases[0], name):
            check_labels(cases, classes, name)


LOOSE_IOU = 0.1
"""IoU threshold of nnDetection and of 3D lesion detection: boxes of small findings rarely overlap by half.

Baumgartner et al., MICCAI 2021; Jaeger et al., ML4H 2019.
"""
BOX_METRICS = ("map_50", "map", "map_10", "centre_ap", "froc")


def tabulate_lesions(cases: Sequence[DetectionCase], classes: Sequence[str]) -> Floats:
    """Return (cases, classes, 4) counts."""
    return np.array([[case.lesions[name].to_list() for name in classes] for case in cases], dtype=np.float64)


def _make_lesion_estimator(table: Floats) -> Estimator:
    return lambda weights: lesion_rates(np.einsum("dn,nkc->dkc", weights, table))


def _make_box_estimator(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> Estimator:
    """Return an estimator of map_50, map, map_10, centre_ap and froc, each (draws, classes)."""
    predicted, truth = [case.predicted or () for case in cases], [case.truth or () for case in cases]
    rules: tuple[float | str, ...] = (*COCO_IOUS, LOOSE_IOU, CENTRE_RULE, froc_iou)
    rankings = [rank_boxes(predicted, truth, name, rules) for name in classes]

    def estimate(weights: Floats) -> dict[str, Floats]:
        precisions = np.stack([average_precision(ranking, weights) for ranking in rankings], axis=1)
        sensitivities = np.stack([froc(ranking, weights, len(rules) - 1) for ranking in rankings], axis=1)
        strict = precisions[:, :, : len(COCO_IOUS)]
        loose_precision, centre_precision = precisions[:, :, len(COCO_IOUS)], precisions[:, :, len(COCO_IOUS) + 1]
        return {
            "map_50": strict[:, :, 0],
            "map": strict.mean(axis=2),
            "map_10": loose_precision,
            "centre_ap": centre_precision,
            "froc": sensitivities.mean(axis=2),
        }

    return estimate


def _make_image_estimator(cases: Sequence[DetectionCase]) -> Estimator:
    score = np.array([case.anomaly_score for case in cases], dtype=np.float64)
    abnormal = np.array([bool(case.abnormal) for case in cases])
    return lambda weights: {
        "image_auroc": auroc(score, abnormal, weights),
        "image_ap": image_ap(score, abnormal, weights),
    }


def _make_pixel_estimator(cases: Sequence[DetectionCase]) -> Estimator:
    tables = stack_pixel_counts([case.pixels for case in cases if case.pixels is not None])
    return lambda weights: {
        "pixel_auroc": pixel_auroc(tables, weights),
        "pixel_ap": pixel_ap(tables, weights),
        "pro": per_region_overlap(tables, weights),
    }


def _constant_map_figures(cases: Sequence[DetectionCase]) -> dict[str, Floats]:
    """Return the metrics of an anomaly map with one level everywhere."""
    tables = stack_pixel_counts([case.pixels for case in cases if case.pixels is not None])
    n_abnormal, n_normal = tables.abnormal.sum(), tables.normal.sum()
    prevalence = n_abnormal / max(n_abnormal + n_normal, 1.0)
    return {
        "pixel_auroc": np.array(0.5),
        "pixel_ap": np.array(prevalence),
        "pro": np.array(MAX_FALSE_POSITIVE_RATE / 2),
    }


def make_estimators(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> list[Estimator]:
    """Return one estimator for each part that the cases have."""
    masks, lesions, boxes, images, pixels = cases[0].available_parts()
    part_estimators: list[Estimator] = []
    if masks:
        part_estimators.append(make_mask_estimator([case.figures for case in cases], classes))
    if lesions:
        part_estimators.append(_make_lesion_estimator(tabulate_lesions(cases, classes)))
    if boxes:
        part_estimators.append(_make_box_estimator(cases, classes, froc_iou))
    if images:
        part_estimators.append(_make_image_estimator(cases))
    if pixels:
        part_estimators.append(_make_pixel_estimator(cases))
    return part_estimators


def combine_estimators(estimators: Sequence[Estimator]) -> Estimator:
    """Return an estimator of the metrics of all given estimators."""
    return lambda weights: {name: value for estimator in estimators for name, value in estimator(weights).items()}


def baseline_figures(
    cases: Sequence[DetectionCase],
    classes: Sequence[str],
    baseline_cases: Sequence[DetectionCase] | None,
    froc_iou: float,
) -> dict[str, Floats]:
    """Return the best of: nothing marked, everything marked (lesions), and the given image-blind baseline."""
    masks, lesions, boxes, images, pixels = cases[0].available_parts()
    baseline: dict[str, Floats] = {}
    if masks:
        baseline |= mask_baseline([case.figures for case in cases], classes)
    if lesions:
        rows = [[case.lesions[name].for_everything_marked().to_list() for name in classes] for case in cases]
        marked_figures = point_estimates(_make_lesion_estimator(np.array(rows, dtype=np.float64)), len(cases))
        baseline |= {name: np.fmax(value, 0.0) for name, value in marked_figures.items()}
    if boxes:
        baseline |= {name: np.zeros(len(classes)) for name in BOX_METRICS}
    if images:
        abnormal = np.array([bool(case.abnormal) for case in cases])
        baseline |= {"image_auroc": np.array(0.5), "image_ap": np.array(abnormal.mean())}
    if pixels:
        baseline |= _constant_map_figures(cases)
    if baseline_cases is not None:
        figures = point_estimates(
            combine_estimators(make_estimators(baseline_cases, classes, froc_iou)), len(baseline_cases)
        )
        baseline = {name: better_value(name, value, figures.get(name)) for name, value in baseline.items()}
    return baseline


def make_baseline_estimators(
    cases: Sequence[DetectionCase],
    classes: Sequence[str],
    baseline_cases: Sequence[DetectionCase] | None,
    froc_iou: float,
) -> list[Estimator]:
    """Return estimators of those baselines in `baseline_figures` whose metrics depend on the cases."""
    masks, lesions, *_ = cases[0].available_parts()
    part_estimators: list[Estimator] = []
    if masks:
        part_estimators += make_mask_baseline_estimators([case.figures for case in cases], classes)
    if lesions:
        rows = [[case.lesions[name].for_everything_marked().to_list() for name in classes] for case in cases]
        part_estimators.append(_make_lesion_estimator(np.array(rows, dtype=np.float64)))
    return (
        part_estimators
        if baseline_cases is None
        else [*part_estimators, combine_estimators(make_estimators(baseline_cases, classes, froc_iou))]
    )


FROC_IOU = 0.5


def _label_presence(cases: Sequence[DetectionCase], classes: Sequence[str]) -> NDArray[np.bool_]:
    """Return (cases, classes) whether truth or prediction has something of the class."""

    def is_present(case: DetectionCase, name: str) -> bool:
        figures, lesions = case.figures.get(name), case.lesions.get(name)
        boxes = (*(case.predicted or ()), *(case.truth or ()))
        return (
            (figures is not None and figures.reference + figures.prediction > 0)
            or (lesions is not None and sum(lesions.to_list()) > 0)
            or any(box.label == name for box in boxes)
        )

    return np.array([[is_present(case, name) for name in classes] for case in cases], dtype=np.bool_)


def _loads(cases: Sequence[DetectionCase], classes: Sequence[str]) -> Floats | None:
    """Return (cases, classes) weights of a case in a class's metrics: its lesions; None if only masks are measured.

    In a case without lesions a false positive may be unseen. It costs half as much as a lesion (F1), and all such
    cases together no more than all lesions.
    """
    _, lesions, boxes, *_ = cases[0].available_parts()
    if not lesions and not boxes:
        return None

    def count(case: DetectionCase, name: str) -> float:
        n_boxes = sum(box.label == name for box in case.truth or ())
        return float(max(n_boxes, sum(case.lesions[name].to_list()[:2]) if lesions else 0))

    loads: Floats = np.array([[count(case, name) for name in classes] for case in cases], dtype=np.float64)
    total, n_empty = loads.sum(axis=0), (loads == 0).sum(axis=0)
    return np.where(loads == 0, np.minimum(0.5, total / np.maximum(n_empty, 1)), loads)


def score_detection(
    cases: Sequence[DetectionCase],
    classes: Sequence[str],
    *,
    primary: str = "lesion_f1",
    baseline_cases: Sequence[DetectionCase] | None = None,
    froc_iou: float = FROC_IOU,
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Score the parts that the cases have (mask metrics, lesions, boxes, image scores), with intervals.

    Lesions and boxes are pooled over the images, for each class; the value over all classes is the mean of those for
    which it is defined.

    Args:
        cases: one for each test image.
        classes: names of the anomalies; they may overlap.
        primary: the metric that counts, any spelling in `metric_names("detection")`.
        baseline_cases: the same images with image-blind predictions, for the baseline; by default nothing and
            everything.
        froc_iou: IoU from which a box is a hit for FROC.

    Raises:
        ValueError: no cases, a case that cannot be scored (the message says which), an unknown or unfitting metric.
    """
    name = canonical_metric(primary, "detection")
    patients = group_patients(cases)
    check_cases(cases, classes)
    if baseline_cases is not None:
        check_cases(baseline_cases, classes)
        if [case.image for case in baseline_cases] != [case.image for case in cases]:
            raise ValueError("the baseline cases must be the same images in the same order")
    settings = MeasureSettings(
        draws,
        seed,
        baseline_figures(cases, classes, baseline_cases, froc_iou),
        _label_presence(cases, classes),
        _effective_patients(cases, patients),
        make_baseline_estimators(cases, classes, baseline_cases, froc_iou),
        loads=_loads(cases, classes),
    )
    metrics, per_label = measure_with_intervals(
        patients, classes, combine_estimators(make_estimators(cases, classes, froc_iou)), settings
    )
    if name not in metrics:
        raise ValueError(f"{name} cannot be measured on these cases, which give: {', '.join(metrics)}")
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=tuple(classes),
        n_cases=len(cases),
        n_patients=patients.n_patients,
        task="detection",
        per_label=per_label,
        details=_collect_details(cases, classes, froc_iou),
    )


def _effective_patients(cases: Sequence[DetectionCase], patients: PatientGroup) -> dict[str, int]:
    abnormal = np.array([bool(case.abnormal) for case in cases])
    n_abnormal = patients.patients_with(abnormal)
    has_abnormal_pixels = np.array([case.pixels is not None and bool(case.pixels.abnormal.any()) for case in cases])
    pixels = dict.fromkeys(("pixel_auroc", "pixel_ap", "pro"), patients.patients_with(has_abnormal_pixels))
    return {"image_auroc": min(n_abnormal, patients.patients_with(~abnormal)), "image_ap": n_abnormal, **pixels}


def _collect_details(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> dict[str, Any]:
    masks, lesions, boxes, *_ = cases[0].available_parts()
    details: dict[str, Any] = {}
    if masks:
        details |= mask_details([case.figures for case in cases], classes)
    if lesions:
        totals = tabulate_lesions(cases, classes).sum(axis=0).astype(int).tolist()
        keys = ("found", "missed", "right", "wrong")
        rule = next(iter(cases[0].lesions.values())).rule
        details["lesions"] = {
            name: dict(zip(keys, row, strict=True)) for name, row in zip(classes, totals, strict=True)
        }
        details["rule"] = "any overlap" if rule == OVERLAP else "one to one by IoU"
    if boxes:
        predicted, truth = [case.predicted or () for case in cases], [case.truth or () for case in cases]
        unit_weights = np.ones((1, len(cases)))
        curves = {name: froc(rank_boxes(predicted, truth, name, (froc_iou,)), unit_weights)[0] for name in classes}
        sensitivities = {k: [None if np.isnan(v) else float(v) for v in curve] for k, curve in curves.items()}
        details["froc"] = {"rates": list(FROC_RATES), "iou": froc_iou, "sensitivity": sensitivities}
    return details
