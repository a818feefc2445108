"""What detection is measured by, as estimators: of the model's answers, and of answers that ignore the image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .average_precisions import image_ap, pixel_ap
from .boxes import CENTRE_RULE, COCO_IOUS, average_precision, froc, rank_boxes
from .cases import Floats
from .detection_cases import DetectionCase
from .estimators import auroc
from .lesions import lesion_rates
from .measuring import Estimator, point_estimates
from .pixel_auroc import pixel_auroc
from .pixels import stack_pixel_counts
from .pro import MAX_FALSE_POSITIVE_RATE, per_region_overlap
from .segmentation import better_value, make_mask_baseline_estimators, make_mask_estimator, mask_baseline

LOOSE_IOU = 0.1
"""As of nnDetection and of lesion detection in 3D: boxes of small findings rarely overlap by half (Baumgartner et al.,
MICCAI 2021; Jaeger et al., ML4H 2019)."""
BOX_METRICS = ("map_50", "map", "map_10", "centre_ap", "froc")


def tabulate_lesions(cases: Sequence[DetectionCase], classes: Sequence[str]) -> Floats:
    """(cases, classes, 4) counts."""
    return np.array([[case.lesions[name].to_list() for name in classes] for case in cases], dtype=np.float64)


def _make_lesion_estimator(table: Floats) -> Estimator:
    return lambda weights: lesion_rates(np.einsum("dn,nkc->dkc", weights, table))


def _make_box_estimator(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> Estimator:
    """map_50, map, map_10, centre_ap and froc, each (draws, classes)."""
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
    """The figures of a map of one level everywhere."""
    tables = stack_pixel_counts([case.pixels for case in cases if case.pixels is not None])
    n_abnormal, n_normal = tables.abnormal.sum(), tables.normal.sum()
    prevalence = n_abnormal / max(n_abnormal + n_normal, 1.0)
    return {
        "pixel_auroc": np.array(0.5),
        "pixel_ap": np.array(prevalence),
        "pro": np.array(MAX_FALSE_POSITIVE_RATE / 2),
    }


def make_estimators(cases: Sequence[DetectionCase], classes: Sequence[str], froc_iou: float) -> list[Estimator]:
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
    return lambda weights: {name: value for one in estimators for name, value in one(weights).items()}


def baseline_figures(
    cases: Sequence[DetectionCase],
    classes: Sequence[str],
    baseline_cases: Sequence[DetectionCase] | None,
    froc_iou: float,
) -> dict[str, Floats]:
    """The best of: nothing marked, everything marked (lesions), and the given image-blind answer."""
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
    """The answers behind `baseline_figures` whose figures depend on the cases, as estimators."""
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
