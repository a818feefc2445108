"""What is settled at the end: whether predictions are mirrored, thresholds and least sizes, calibration, and the figures.

Each case is asked of the network that was trained without it; the cases of all networks choose together. Thresholds that are
fitted to the cases they are measured on flatter: the figures of masks are cross-fitted, each half of the patients as the other
half chose.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from m3b.training.detection.boxes import apply_logistic, average_precision, fit_logistic, image_score, rank_images
from m3b.training.detection.dataset import Patches
from m3b.training.detection.index import patient_of
from m3b.training.detection.inference import find_boxes, mask_probabilities
from m3b.training.detection.plan_cost import MIRRORED
from m3b.training.detection.scoring import MIN_SIZES, SURE, THRESHOLDS, box_figures, choose_settings, sweep
from m3b.training.lesions import components, lesion_f1, mean_figure
from m3b.training.ranking_metrics import auroc
from m3b.training.step_cost import micro_batch

TOP = 10
"""So many of the surest voxels make an image's anomaly score."""
ENOUGH = 10
"""Cases on which it is decided whether predictions are mirrored."""
DRAWS = 200


@dataclass
class Case:
    """A held-out case: what the network that has not seen it answers, plain, and mirrored where it was tried.

    Args:
        record: of train.json.
        fold: of its network.
        truth: (boxes, labels), or of masks the sizes of the true lesions of each class.
        answers: plain, then perhaps mirrored. Of boxes (boxes, scores, labels); of masks (counts, Dice, anomaly score), see
            `sweep`, with a first axis of classes.
        abnormal: whether anything is to be found.
    """

    record: dict[str, Any]
    fold: int
    truth: Any
    answers: list[Any] = field(default_factory=list)
    abnormal: bool = False

    def answer(self, mirrored: bool) -> Any:
        """The mirrored one where it is wanted and there."""
        return self.answers[-1] if mirrored else self.answers[0]


def candidates(plan: Mapping[str, Any]) -> list[str]:
    """Axes along which predictions may be mirrored: where that is left to the validation, those of the training."""
    return list(plan["augment"].get("flip") or []) if plan.get("mirror") == "auto" else []


def ask(
    model: torch.nn.Module, valid: Patches, plan: Mapping[str, Any], device: torch.device, rows: list[int], fold: int
) -> list[Case]:
    """The network on its held-out cases; mirrored in a random order, as far as that share of the minutes goes."""
    cases, axes, start = [], candidates(plan), time.monotonic()
    for row in rows:
        one = Case(valid.cases.records[row], fold, _truth(valid, row, plan))
        one.abnormal = bool(valid.cases.counts[row].sum() > 0)
        one.answers.append(_answer(model, valid, row, plan, device))
        cases.append(one)
    price = 2 ** len(axes) * (time.monotonic() - start) / max(1, len(rows))
    limit, start = MIRRORED * 60 * float(plan["minutes"]), time.monotonic()
    if axes and price * min(ENOUGH, len(rows)) <= limit:
        for place in np.random.default_rng(0).permutation(len(rows)):
            if time.monotonic() - start > limit:
                break
            cases[int(place)].answers.append(_answer(model, valid, rows[int(place)], {**plan, "mirror": axes}, device))
    return cases


def _truth(valid: Patches, row: int, plan: Mapping[str, Any]) -> Any:
    if plan["target"] == "boxes":
        boxes = valid.cases.boxes[row]
        return boxes[:, :-1], boxes[:, -1].astype(int)
    truth = np.asarray(valid.cases.volumes.mask(row)) > 0
    return [np.bincount(components(one)[0].ravel())[1:].tolist() for one in truth]


def _answer(model: torch.nn.Module, valid: Patches, row: int, plan: Mapping[str, Any], device: torch.device) -> Any:
    image, batch = valid.cases.image(row), micro_batch(plan)
    if plan["target"] == "boxes":
        return find_boxes(model, image, plan, device, batch)
    chances = mask_probabilities(model, image, plan, device, batch)
    truth = np.asarray(valid.cases.volumes.mask(row)) > 0
    swept = [sweep(chance, wanted) for chance, wanted in zip(chances, truth, strict=True)]
    return np.stack([one for one, _ in swept]), np.stack([one for _, one in swept]), anomaly_of(chances)


def anomaly_of(chances: np.ndarray) -> float:
    """Mean of the surest voxels of an image's (K, *image) probabilities."""
    flat = chances.reshape(-1)
    top = min(TOP, flat.size)
    return float(np.partition(flat, flat.size - top)[-top:].mean())


def settle(plan: Mapping[str, Any], cases: Sequence[Case]) -> dict[str, Any]:
    """`figures`, `by_class`, `config` for the deliverable, and `rows` of valid_predictions.json."""
    mirrored = choose_mirror(plan, cases)
    final = (_boxes if plan["target"] == "boxes" else _masks)(plan, cases, mirrored)
    axes = candidates(plan) if plan.get("mirror") == "auto" else list(plan.get("mirror") or [])
    final["config"]["mirror"] = axes if mirrored or plan.get("mirror") != "auto" else []
    return final


def choose_mirror(plan: Mapping[str, Any], cases: Sequence[Case]) -> bool:
    """Whether mirrored predictions are better by more than the standard error, on the cases where both are there."""
    both = [case for case in cases if len(case.answers) > 1]
    if len(both) < ENOUGH:
        return False
    if plan["target"] == "boxes":
        return _gain(plan, both) > 0
    middle = THRESHOLDS.index(0.5)
    dices = np.array([[answer[1][:, middle, 0] for answer in case.answers] for case in both])
    told = ~np.isnan(dices).all(axis=2).any(axis=1)
    if told.sum() < ENOUGH:
        return False
    change = np.nanmean(dices[told, 1] - dices[told, 0], axis=1)
    return bool(np.nanmean(change) > np.nanstd(change, ddof=1) / np.sqrt(len(change)))


def _gain(plan: Mapping[str, Any], cases: Sequence[Case]) -> float:
    """What mirroring adds to mAP at 0.5, less its standard error over draws of the cases."""
    rng, classes, found = np.random.default_rng(0), len(plan["classes"]), []
    for draw in range(DRAWS):
        some = cases if not draw else [cases[int(k)] for k in rng.integers(0, len(cases), len(cases))]
        truths = [case.truth for case in some]
        pair = [rank_images([case.answer(side) for case in some], truths, classes) for side in (False, True)]
        plain, other = (mean_figure([average_precision(*column) for column in table]) for table in pair)
        found.append(other - plain)
    return float(found[0] - np.nanstd(found[1:]))


def _boxes(plan: Mapping[str, Any], cases: Sequence[Case], mirrored: bool) -> dict[str, Any]:
    answers, truths = [case.answer(mirrored) for case in cases], [case.truth for case in cases]
    classes = len(plan["classes"])
    table = rank_images(answers, truths, classes)
    fit = fit_logistic(np.concatenate([c[0] for c in table]), np.concatenate([c[1] for c in table]))
    calibrated = [(boxes, apply_logistic(scores, fit), labels) for boxes, scores, labels in answers]
    anomaly = np.array([image_score(scores) for _, scores, _ in calibrated])
    image_fit = fit_logistic(anomaly, np.array([case.abnormal for case in cases]))
    per_class = {name: average_precision(*column) for name, column in zip(plan["classes"], table, strict=True)}
    rows = [
        {**_row(case, score), "boxes": len(case.truth[1]), "boxes_found": int(sum(scores >= 0.5))}
        for case, score, (_, scores, _) in zip(cases, apply_logistic(anomaly, image_fit), calibrated, strict=True)
    ]
    return {
        "figures": box_figures(calibrated, truths, classes),
        "by_class": {"map_50": per_class},
        "config": {"calibration": list(fit), "image_calibration": list(image_fit)},
        "rows": rows,
    }


def _row(case: Case, score: float) -> dict[str, Any]:
    return {
        "image": case.record["image_path"],
        "patient": case.record.get("patient"),
        "fold": case.fold,
        "abnormal": case.abnormal,
        "anomaly_score": round(float(score), 5),
    }


def _masks(plan: Mapping[str, Any], cases: Sequence[Case], mirrored: bool) -> dict[str, Any]:
    """The threshold and the least lesion size of each class are those of the best F1 plus Dice, over all classes together for
    a class that few validation cases have."""
    classes = list(plan["classes"])
    counts, overlap, anomaly = zip(*[case.answer(mirrored) for case in cases], strict=True)
    table, dices = np.stack(counts), np.stack(overlap)
    chosen = choose_settings(table, dices, _sizes(cases, len(classes)))
    fair = cross_fitted(table, dices, cases)
    ill, scores = np.array([case.abnormal for case in cases]), np.array(anomaly)
    image_fit = fit_logistic(scores, ill)
    n = np.arange(len(cases))
    own = {name: dices[n, k, fair[:, k, 0], fair[:, k, 1]] for k, name in enumerate(classes)}
    found = {name: table[n, k, fair[:, k, 0], fair[:, k, 1]].sum(axis=0) for k, name in enumerate(classes)}
    per_dice = {name: mean_figure(values) for name, values in own.items()}
    per_f1 = {name: lesion_f1(values) for name, values in found.items()}
    figures = {"dice": mean_figure(list(per_dice.values())), "lesion_f1": mean_figure(list(per_f1.values()))}
    chance = auroc(ill, scores)
    figures |= {"image_auroc": chance} if np.isfinite(chance) else {}
    rows = [
        {**_row(case, score), "dice": {name: _number(values[at]) for name, values in own.items()}}
        for at, (case, score) in enumerate(zip(cases, apply_logistic(scores, image_fit), strict=True))
    ]
    return {
        "figures": figures,
        "by_class": {"dice": per_dice, "lesion_f1": per_f1},
        "config": {
            "thresholds": [THRESHOLDS[t] for t, _ in chosen],
            "least_sizes": [MIN_SIZES[s] for _, s in chosen],
            "image_calibration": list(image_fit),
        },
        "rows": rows,
    }


def _sizes(cases: Sequence[Case], classes: int) -> list[list[int]]:
    """Sizes of the true lesions of each class."""
    return [[size for case in cases for size in case.truth[k]] for k in range(classes)]


def cross_fitted(counts: np.ndarray, overlap: np.ndarray, cases: Sequence[Case]) -> np.ndarray:
    """(N, K, 2) places of threshold and least size for each case and class, as the other half of the patients chose; as all
    chose where a half has fewer than `SURE` cases with anything to find.

    Args:
        counts: (N, K, thresholds, sizes, 3), and `overlap`: (N, K, thresholds, sizes).
    """
    people, classes = [patient_of(case.record) for case in cases], counts.shape[1]
    place = {name: number for number, name in enumerate(dict.fromkeys(people))}
    half = np.random.default_rng(0).permutation(len(place))[[place[name] for name in people]] % 2
    ill = np.array([case.abnormal for case in cases])
    result = np.zeros((len(cases), classes, 2), np.int64)
    few = min(int(ill[half == side].sum()) for side in (0, 1)) < SURE
    for side in (0, 1):
        others = np.ones(len(cases), bool) if few else half != side
        sizes = _sizes([case for case, other in zip(cases, others, strict=True) if other], classes)
        result[half == side] = np.array(choose_settings(counts[others], overlap[others], sizes))
    return result


def _number(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
