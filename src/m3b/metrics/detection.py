"""Score an anomaly detector: masks lesion by lesion, boxes, and a score for the image as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .boxes import COCO_IOUS, FROC_RATES, average_precision, froc, rank
from .cases import Floats
from .detection_cases import DetectionCase, check_cases
from .estimators import auroc
from .lesions import OVERLAP, lesion_rates
from .measuring import Estimator, Group, Settings, group, measure, plain_figures
from .scores import Scores
from .segmentation import better, mask_baseline, mask_details, mask_estimator, mask_rivals
from .vocabulary import canonical_metric

FROC_IOU = 0.5


def _lesion_table(cases: Sequence[DetectionCase], classes: Sequence[str]) -> Floats:
    """(cases, classes, 4) counts."""
    return np.array([[case.lesions[name].row() for name in classes] for case in cases], dtype=np.float64)


def _lesion_estimator(table: Floats) -> Estimator:
    return lambda weights: lesion_rates(np.einsum("dn,nkc->dkc", weights, table))


def _box_estimator(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> Estimator:
    """map_50, map and froc, each (draws, classes)."""
    predicted, truth = [case.predicted or () for case in cases], [case.truth or () for case in cases]
    rankings = [rank(predicted, truth, name, (*COCO_IOUS, froc_iou)) for name in classes]

    def estimate(weights: Floats) -> dict[str, Floats]:
        precisions = np.stack([average_precision(ranking, weights) for ranking in rankings], axis=1)
        sensitivities = np.stack([froc(ranking, weights, len(COCO_IOUS)) for ranking in rankings], axis=1)
        overall = precisions[:, :, : len(COCO_IOUS)]
        return {"map_50": overall[:, :, 0], "map": overall.mean(axis=2), "froc": sensitivities.mean(axis=2)}

    return estimate


def _estimators(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> list[Estimator]:
    masks, lesions, boxes, images = cases[0].parts()
    found: list[Estimator] = []
    if masks:
        found.append(mask_estimator([case.figures for case in cases], classes))
    if lesions:
        found.append(_lesion_estimator(_lesion_table(cases, classes)))
    if boxes:
        found.append(_box_estimator(cases, classes, froc_iou))
    if images:
        score = np.array([case.anomaly_score for case in cases], dtype=np.float64)
        abnormal = np.array([bool(case.abnormal) for case in cases])
        found.append(lambda weights: {"image_auroc": auroc(score, abnormal, weights)})
    return found


def _joined(estimators: Sequence[Estimator]) -> Estimator:
    return lambda weights: {name: value for one in estimators for name, value in one(weights).items()}


def _trivial(
    cases: Sequence[DetectionCase], classes: Sequence[str], others: Sequence[DetectionCase] | None, froc_iou: float
) -> dict[str, Floats]:
    """The best of: nothing marked, everything marked (lesions), and the given trivial answer."""
    masks, lesions, boxes, images = cases[0].parts()
    floor: dict[str, Floats] = {}
    if masks:
        floor |= mask_baseline([case.figures for case in cases], classes)
    if lesions:
        rows = [[case.lesions[name].everything_marked().row() for name in classes] for case in cases]
        marked = plain_figures(_lesion_estimator(np.array(rows, dtype=np.float64)), len(cases))
        floor |= {name: np.fmax(value, 0.0) for name, value in marked.items()}
    if boxes:
        floor |= {name: np.zeros(len(classes)) for name in ("map_50", "map", "froc")}
    if images:
        floor["image_auroc"] = np.array(0.5)
    if others is not None:
        figures = plain_figures(_joined(_estimators(others, classes, froc_iou)), len(others))
        floor = {name: better(name, value, figures.get(name)) for name, value in floor.items()}
    return floor


def _rivals(
    cases: Sequence[DetectionCase], classes: Sequence[str], others: Sequence[DetectionCase] | None, froc_iou: float
) -> list[Estimator]:
    """The answers behind `_trivial` whose figures depend on the cases, as estimators."""
    masks, lesions, _, _ = cases[0].parts()
    found: list[Estimator] = []
    if masks:
        found += mask_rivals([case.figures for case in cases], classes)
    if lesions:
        rows = [[case.lesions[name].everything_marked().row() for name in classes] for case in cases]
        found.append(_lesion_estimator(np.array(rows, dtype=np.float64)))
    return found if others is None else [*found, _joined(_estimators(others, classes, froc_iou))]


def _concerned(cases: Sequence[DetectionCase], classes: Sequence[str]) -> NDArray[np.bool_]:
    """(cases, classes) whether truth or prediction has something of the class."""

    def has(case: DetectionCase, name: str) -> bool:
        figures, lesions = case.figures.get(name), case.lesions.get(name)
        boxes = (*(case.predicted or ()), *(case.truth or ()))
        return (
            (figures is not None and figures.reference + figures.prediction > 0)
            or (lesions is not None and sum(lesions.row()) > 0)
            or any(box.label == name for box in boxes)
        )

    return np.array([[has(case, name) for name in classes] for case in cases], dtype=np.bool_)


def score_detection(
    cases: Sequence[DetectionCase],
    classes: Sequence[str],
    *,
    primary: str = "lesion_f1",
    trivial: Sequence[DetectionCase] | None = None,
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
        trivial: the same images with an answer that ignores them, for the baseline; else nothing and everything.
        froc_iou: IoU from which a box is a hit for FROC.

    Raises:
        ValueError: no cases, a case that cannot be scored (the message says which), an unknown or unfitting metric.
    """
    name = canonical_metric(primary, "detection")
    patients = group(cases)
    check_cases(cases, classes)
    if trivial is not None:
        check_cases(trivial, classes)
        if [case.image for case in trivial] != [case.image for case in cases]:
            raise ValueError("the trivial cases must be the same images in the same order")
    settings = Settings(
        draws,
        seed,
        _trivial(cases, classes, trivial, froc_iou),
        _concerned(cases, classes),
        _sides(cases, patients),
        _rivals(cases, classes, trivial, froc_iou),
    )
    metrics, per_label = measure(patients, classes, _joined(_estimators(cases, classes, froc_iou)), settings)
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
        details=_details(cases, classes, froc_iou),
    )


def _sides(cases: Sequence[DetectionCase], patients: Group) -> dict[str, int]:
    abnormal = np.array([bool(case.abnormal) for case in cases])
    return {"image_auroc": min(patients.patients_with(abnormal), patients.patients_with(~abnormal))}


def _details(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> dict[str, Any]:
    masks, lesions, boxes, _ = cases[0].parts()
    details: dict[str, Any] = {}
    if masks:
        details |= mask_details([case.figures for case in cases], classes)
    if lesions:
        totals = _lesion_table(cases, classes).sum(axis=0).astype(int).tolist()
        keys = ("found", "missed", "right", "wrong")
        rule = next(iter(cases[0].lesions.values())).rule
        details["lesions"] = {
            name: dict(zip(keys, row, strict=True)) for name, row in zip(classes, totals, strict=True)
        }
        details["rule"] = "any overlap" if rule == OVERLAP else "one to one by IoU"
    if boxes:
        predicted, truth = [case.predicted or () for case in cases], [case.truth or () for case in cases]
        once = np.ones((1, len(cases)))
        curves = {name: froc(rank(predicted, truth, name, (froc_iou,)), once)[0] for name in classes}
        points = {k: [None if np.isnan(v) else float(v) for v in curve] for k, curve in curves.items()}
        details["froc"] = {"rates": list(FROC_RATES), "iou": froc_iou, "sensitivity": points}
    return details
