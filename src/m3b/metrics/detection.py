"""Score an anomaly detector: masks lesion by lesion, boxes, and a score for the image as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .boxes import FROC_RATES, froc, rank_boxes
from .cases import Floats
from .detection_cases import DetectionCase, check_cases
from .detection_estimators import (
    baseline_figures,
    combine_estimators,
    make_baseline_estimators,
    make_estimators,
    tabulate_lesions,
)
from .lesions import OVERLAP
from .measuring import MeasureSettings, PatientGroup, group_patients, measure_with_intervals
from .scores import Scores
from .segmentation import mask_details
from .vocabulary import canonical_metric

FROC_IOU = 0.5


def _label_presence(cases: Sequence[DetectionCase], classes: Sequence[str]) -> NDArray[np.bool_]:
    """(cases, classes) whether truth or prediction has something of the class."""

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
    """(cases, classes) how much of a class's figures hangs on a case: its true lesions; None where masks alone are measured.

    In a case without lesions a false positive may be unseen. It costs half as much as a lesion (F1), and all such
    cases together no more than all lesions.
    """
    _, lesions, boxes, *_ = cases[0].available_parts()
    if not lesions and not boxes:
        return None

    def count(case: DetectionCase, name: str) -> float:
        of_boxes = sum(box.label == name for box in case.truth or ())
        return float(max(of_boxes, sum(case.lesions[name].to_list()[:2]) if lesions else 0))

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
    """Whatever the cases have: mask figures, lesions, boxes, image scores; intervals by resampling patients.

    Lesions and boxes are pooled over the images, for each class; a figure over all classes is the mean of those for
    which it is defined.

    Args:
        cases: one for each test image.
        classes: names of the anomalies; they may overlap.
        primary: the metric that counts, any spelling in `metric_names("detection")`.
        baseline_cases: the same images with an answer that ignores them, for the baseline; else nothing and everything.
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
            raise ValueError("the trivial cases must be the same images in the same order")
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
