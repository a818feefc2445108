"""What detection is measured by, as estimators: of the model's answers, and of answers that ignore the image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .boxes import COCO_IOUS, average_precision, froc, rank
from .cases import Floats
from .detection_cases import DetectionCase
from .estimators import auroc
from .lesions import lesion_rates
from .measuring import Estimator, plain_figures
from .segmentation import better, mask_baseline, mask_estimator, mask_rivals


def lesion_table(cases: Sequence[DetectionCase], classes: Sequence[str]) -> Floats:
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


def estimators(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> list[Estimator]:
    masks, lesions, boxes, images = cases[0].parts()
    found: list[Estimator] = []
    if masks:
        found.append(mask_estimator([case.figures for case in cases], classes))
    if lesions:
        found.append(_lesion_estimator(lesion_table(cases, classes)))
    if boxes:
        found.append(_box_estimator(cases, classes, froc_iou))
    if images:
        score = np.array([case.anomaly_score for case in cases], dtype=np.float64)
        abnormal = np.array([bool(case.abnormal) for case in cases])
        found.append(lambda weights: {"image_auroc": auroc(score, abnormal, weights)})
    return found


def joined(estimators: Sequence[Estimator]) -> Estimator:
    return lambda weights: {name: value for one in estimators for name, value in one(weights).items()}


def blind_figures(
    cases: Sequence[DetectionCase], classes: Sequence[str], others: Sequence[DetectionCase] | None, froc_iou: float
) -> dict[str, Floats]:
    """The best of: nothing marked, everything marked (lesions), and the given image-blind answer."""
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
        figures = plain_figures(joined(estimators(others, classes, froc_iou)), len(others))
        floor = {name: better(name, value, figures.get(name)) for name, value in floor.items()}
    return floor


def rivals(
    cases: Sequence[DetectionCase], classes: Sequence[str], others: Sequence[DetectionCase] | None, froc_iou: float
) -> list[Estimator]:
    """The answers behind `blind_figures` whose figures depend on the cases, as estimators."""
    masks, lesions, _, _ = cases[0].parts()
    found: list[Estimator] = []
    if masks:
        found += mask_rivals([case.figures for case in cases], classes)
    if lesions:
        rows = [[case.lesions[name].everything_marked().row() for name in classes] for case in cases]
        found.append(_lesion_estimator(np.array(rows, dtype=np.float64)))
    return found if others is None else [*found, joined(estimators(others, classes, froc_iou))]
