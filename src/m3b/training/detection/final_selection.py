"""Final choices on the validation cases: mirrored predictions, thresholds and minimum sizes, calibration; and the metrics.

Each case is predicted by the fold that did not train on it; the cases of all folds choose together. Thresholds are biased on the
cases they were fitted to: metrics of masks are cross-fitted, each half of the patients with the choice of the other half.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from m3b.training.detection.boxes import apply_logistic, average_precision, fit_logistic, image_score, rank_boxes
from m3b.training.detection.dataset import Patches
from m3b.training.detection.index import patient_of
from m3b.training.detection.inference import find_boxes, mask_probabilities
from m3b.training.detection.plan_cost import MAX_MIRRORING_SHARE
from m3b.training.detection.scoring import (
    MIN_CLASS_CASES,
    MIN_SIZES,
    THRESHOLDS,
    box_metrics,
    choose_settings,
    score_settings,
)
from m3b.training.lesions import label_lesions, lesion_f1, mean_defined
from m3b.training.ranking_metrics import auroc
from m3b.training.step_cost import micro_batch

TOP_VOXELS = 10
"""Voxels with the highest probability that make an image's anomaly score."""
MIN_MIRROR_CASES = 10
"""Minimum cases to decide about mirrored predictions."""
BOOTSTRAP_SAMPLES = 200


@dataclass
class HeldOutCase:
    """A held-out case with predictions of the fold that has not seen it: plain, and mirrored if tried.

    Args:
        record: of train.json.
        fold: of its network.
        truth: (boxes, labels), or for masks the sizes of the true lesions of each class.
        answers: plain, then possibly mirrored. Boxes: (boxes, scores, labels); masks: (counts, Dice, anomaly score), see
            `score_settings`, with a first axis of classes.
        abnormal: whether there is anything to find.
    """

    record: dict[str, Any]
    fold: int
    truth: Any
    answers: list[Any] = field(default_factory=list)
    abnormal: bool = False

    def answer(self, mirrored: bool) -> Any:
        """Return the mirrored prediction if wanted and available, else the plain one."""
        return self.answers[-1] if mirrored else self.answers[0]


def mirror_candidates(plan: Mapping[str, Any]) -> list[str]:
    """Return the axes of mirrored predictions that validation may choose: those of the training."""
    return list(plan["augment"].get("flip") or []) if plan.get("mirror") == "auto" else []


def predict_held_out(
    model: torch.nn.Module, valid: Patches, plan: Mapping[str, Any], device: torch.device, rows: list[int], fold: int
) -> list[HeldOutCase]:
    """Predict held-out cases; mirrored in random order, as far as its share of the minutes allows."""
    cases, axes, start = [], mirror_candidates(plan), time.monotonic()
    for row in rows:
        case = HeldOutCase(valid.cases.records[row], fold, _true_target(valid, row, plan))
        case.abnormal = bool(valid.cases.counts[row].sum() > 0)
        case.answers.append(_predict_target(model, valid, row, plan, device))
        cases.append(case)
    mirrored_seconds = 2 ** len(axes) * (time.monotonic() - start) / max(1, len(rows))
    limit, start = MAX_MIRRORING_SHARE * 60 * float(plan["minutes"]), time.monotonic()
    if axes and mirrored_seconds * min(MIN_MIRROR_CASES, len(rows)) <= limit:
        for index in np.random.default_rng(0).permutation(len(rows)):
            if time.monotonic() - start > limit:
                break
            mirrored = _predict_target(model, valid, rows[int(index)], {**plan, "mirror": axes}, device)
            cases[int(index)].answers.append(mirrored)
    return cases


def _true_target(valid: Patches, row: int, plan: Mapping[str, Any]) -> Any:
    if plan["target"] == "boxes":
        boxes = valid.cases.boxes[row]
        return boxes[:, :-1], boxes[:, -1].astype(int)
    truth = np.asarray(valid.cases.volumes.mask(row)) == 1
    return [np.bincount(label_lesions(class_mask)[0].ravel())[1:].tolist() for class_mask in truth]


def _predict_target(
    model: torch.nn.Module, valid: Patches, row: int, plan: Mapping[str, Any], device: torch.device
) -> Any:
    image, batch = np.asarray(valid.cases.image(row)), micro_batch(plan)
    if plan["target"] == "boxes":
        return find_boxes(model, image, plan, device, batch)
    probabilities = mask_probabilities(model, image, plan, device, batch)
    masks = np.asarray(valid.cases.volumes.mask(row))
    scored = [score_settings(probability, mask) for probability, mask in zip(probabilities, masks, strict=True)]
    counts, overlaps = (np.stack(values) for values in zip(*scored, strict=True))
    return counts, overlaps, anomaly_score(probabilities)


def anomaly_score(probabilities: np.ndarray) -> float:
    """Return the mean of the highest voxels of an image's (K, *image) probabilities."""
    flat = probabilities.reshape(-1)
    voxels = min(TOP_VOXELS, flat.size)
    return float(np.partition(flat, flat.size - voxels)[-voxels:].mean())


def select_settings(plan: Mapping[str, Any], cases: Sequence[HeldOutCase]) -> dict[str, Any]:
    """Return `figures`, `by_class`, `config` for the deliverable, and `rows` of valid_predictions.json."""
    is_mirrored = is_mirroring_better(plan, cases)
    result = (_evaluate_boxes if plan["target"] == "boxes" else _evaluate_masks)(plan, cases, is_mirrored)
    axes = mirror_candidates(plan) if plan.get("mirror") == "auto" else list(plan.get("mirror") or [])
    result["config"]["mirror"] = axes if is_mirrored or plan.get("mirror") != "auto" else []
    return result


def is_mirroring_better(plan: Mapping[str, Any], cases: Sequence[HeldOutCase]) -> bool:
    """Return whether mirrored predictions are better by more than the standard error, on cases with both."""
    cases_with_both = [case for case in cases if len(case.answers) > 1]
    if len(cases_with_both) < MIN_MIRROR_CASES:
        return False
    if plan["target"] == "boxes":
        return _mirroring_gain(plan, cases_with_both) > 0
    default_threshold = THRESHOLDS.index(0.5)
    dices = np.array([[answer[1][:, default_threshold, 0] for answer in case.answers] for case in cases_with_both])
    is_defined = ~np.isnan(dices).all(axis=2).any(axis=1)
    if is_defined.sum() < MIN_MIRROR_CASES:
        return False
    gains = np.nanmean(dices[is_defined, 1] - dices[is_defined, 0], axis=1)
    return bool(np.nanmean(gains) > np.nanstd(gains, ddof=1) / np.sqrt(len(gains)))


def _mirroring_gain(plan: Mapping[str, Any], cases: Sequence[HeldOutCase]) -> float:
    """Return what mirroring adds to mAP at 0.5, minus its standard error over bootstrap samples of the cases."""
    rng, classes, gains = np.random.default_rng(0), len(plan["classes"]), []
    for number in range(BOOTSTRAP_SAMPLES):
        sample = cases if not number else [cases[int(k)] for k in rng.integers(0, len(cases), len(cases))]
        truths = [case.truth for case in sample]
        pair = [
            rank_boxes([case.answer(is_mirrored) for case in sample], truths, classes) for is_mirrored in (False, True)
        ]
        plain_map, mirrored_map = (mean_defined([average_precision(*column) for column in table]) for table in pair)
        gains.append(mirrored_map - plain_map)
    return float(gains[0] - np.nanstd(gains[1:]))


def _evaluate_boxes(plan: Mapping[str, Any], cases: Sequence[HeldOutCase], is_mirrored: bool) -> dict[str, Any]:
    predictions, truths = [case.answer(is_mirrored) for case in cases], [case.truth for case in cases]
    classes = len(plan["classes"])
    table = rank_boxes(predictions, truths, classes)
    calibration = fit_logistic(*(np.concatenate([column[part] for column in table]) for part in (0, 1)))
    calibrated = [(boxes, apply_logistic(scores, calibration), labels) for boxes, scores, labels in predictions]
    anomaly = np.array([image_score(scores) for _, scores, _ in calibrated])
    image_fit = fit_logistic(anomaly, np.array([case.abnormal for case in cases]))
    per_class = {name: average_precision(*column) for name, column in zip(plan["classes"], table, strict=True)}
    rows = [
        {**_row(case, score), "boxes": len(case.truth[1]), "boxes_found": int(sum(scores >= 0.5))}
        for case, score, (_, scores, _) in zip(cases, apply_logistic(anomaly, image_fit), calibrated, strict=True)
    ]
    return {
        "figures": box_metrics(calibrated, truths, classes),
        "by_class": {"map_50": per_class},
        "config": {"calibration": list(calibration), "image_calibration": list(image_fit)},
        "rows": rows,
    }


def _row(case: HeldOutCase, score: float) -> dict[str, Any]:
    return {
        "image": case.record["image_path"],
        "patient": case.record.get("patient"),
        "fold": case.fold,
        "abnormal": case.abnormal,
        "anomaly_score": round(float(score), 5),
    }


def _evaluate_masks(plan: Mapping[str, Any], cases: Sequence[HeldOutCase], is_mirrored: bool) -> dict[str, Any]:
    """Evaluate masks; threshold and minimum lesion size of a class have the best F1 plus Dice, of all classes for a rare class."""
    classes = list(plan["classes"])
    counts, overlap, anomaly = zip(*[case.answer(is_mirrored) for case in cases], strict=True)
    table, dices = np.stack(counts), np.stack(overlap)
    settings = choose_settings(table, dices, _lesion_sizes(cases, len(classes)))
    fitted_settings = cross_fit_settings(table, dices, cases)
    is_abnormal, scores = np.array([case.abnormal for case in cases]), np.array(anomaly)
    image_fit = fit_logistic(scores, is_abnormal)
    n, (thresholds, sizes) = np.arange(len(cases)), np.moveaxis(fitted_settings, -1, 0)
    class_dice = {name: dices[n, k, thresholds[:, k], sizes[:, k]] for k, name in enumerate(classes)}
    lesion_totals = {name: table[n, k, thresholds[:, k], sizes[:, k]].sum(0) for k, name in enumerate(classes)}
    per_dice = {name: mean_defined(values) for name, values in class_dice.items()}
    per_f1 = {name: lesion_f1(values) for name, values in lesion_totals.items()}
    figures = {"dice": mean_defined(list(per_dice.values())), "lesion_f1": mean_defined(list(per_f1.values()))}
    auroc_value = auroc(is_abnormal, scores)
    figures |= {"image_auroc": auroc_value} if np.isfinite(auroc_value) else {}
    rows = [
        {**_row(case, score), "dice": {name: _round_finite(values[case_index]) for name, values in class_dice.items()}}
        for case_index, (case, score) in enumerate(zip(cases, apply_logistic(scores, image_fit), strict=True))
    ]
    return {
        "figures": figures,
        "by_class": {"dice": per_dice, "lesion_f1": per_f1},
        "config": {
            "thresholds": [THRESHOLDS[threshold] for threshold, _ in settings],
            "least_sizes": [MIN_SIZES[size] for _, size in settings],
            "image_calibration": list(image_fit),
        },
        "rows": rows,
    }


def _lesion_sizes(cases: Sequence[HeldOutCase], classes: int) -> list[list[int]]:
    """Return the sizes of the true lesions of each class."""
    return [[size for case in cases for size in case.truth[k]] for k in range(classes)]


def cross_fit_settings(counts: np.ndarray, overlap: np.ndarray, cases: Sequence[HeldOutCase]) -> np.ndarray:
    """Return (N, K, 2) indices of threshold and minimum size for each case and class, chosen by the other half of the patients.

    All cases choose if a half has fewer than `MIN_CLASS_CASES` abnormal cases.

    Args:
        counts: (N, K, thresholds, sizes, 3), and `overlap`: (N, K, thresholds, sizes).
    """
    patients, classes = [patient_of(case.record) for case in cases], counts.shape[1]
    patient_index = {name: number for number, name in enumerate(dict.fromkeys(patients))}
    half = np.random.default_rng(0).permutation(len(patient_index))[[patient_index[name] for name in patients]] % 2
    is_abnormal = np.array([case.abnormal for case in cases])
    result = np.zeros((len(cases), classes, 2), np.int64)
    is_small = min(int(is_abnormal[half == part].sum()) for part in (0, 1)) < MIN_CLASS_CASES
    for part in (0, 1):
        fitting_cases = np.ones(len(cases), bool) if is_small else half != part
        fitting = [case for case, is_fitting in zip(cases, fitting_cases, strict=True) if is_fitting]
        sizes = _lesion_sizes(fitting, classes)
        result[half == part] = np.array(choose_settings(counts[fitting_cases], overlap[fitting_cases], sizes))
    return result


def _round_finite(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
