"""Choices on few examples without holding any out: each part is predicted by a detector trained with the other parts.

Predictions of left-out cases determine the weight of the memory, the scale of scores and the quality of an engine; the kept
detector is trained with all cases. Ordinary networks that were trained with parts are kept as ensemble members.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.detection.boxes import apply_logistic, fit_logistic, logit
from m3b.training.detection.fewshot.build import build_network
from m3b.training.detection.fewshot.combination import (
    combine_scores,
    ensemble_probabilities,
    expected_ratio,
    fit_combination,
    mean_logit,
    predict_probabilities,
)
from m3b.training.detection.fewshot.data import PictureCases
from m3b.training.detection.fewshot.fitting import Fitted, fit, predict_images
from m3b.training.detection.fewshot.image_classifier import FittedImage, fit_image
from m3b.training.detection.fewshot.scoring import MIN_CASES_PER_STATE, calibrate, combine_signals, compute_signals
from m3b.training.detection.fewshot.selection import HeldOutScores
from m3b.training.detection.index import patient_of
from m3b.training.ranking_metrics import auroc

MAX_PARTS = 3
FittedDetector = Fitted | FittedImage


@dataclass
class FittedEnsemble:
    """A few-shot detector and the ordinary networks of the same cases; other fields as in both."""

    fewshot: Fitted
    copies: list[nn.Module]
    config: dict[str, Any]
    valid: float
    epochs: int
    seconds: float
    held_out_scores: HeldOutScores

    def predict(self, cases: PictureCases) -> np.ndarray:
        """Return (N,) anomaly scores from 0 to 1."""
        deviations, _ = combine_signals(predict_images(self.fewshot, cases)[2], self.fewshot.config)
        return ensemble_probabilities(deviations, mean_logit(self.copies, cases.small_batches()), self.config)


def build_ensemble(fewshot: Fitted, ordinary: FittedImage, backbone: Mapping[str, Any]) -> FittedEnsemble | None:
    """Return the ensemble, scaled on the held-out cases of both; None if they lack one of the states."""
    first, second = fewshot.held_out_scores, ordinary.held_out_scores
    if first is None or second is None or first.people != second.people or len(set(first.truth.tolist())) < 2:
        return None
    config = fit_combination(first.value, second.value, first.truth, expected_ratio(backbone))
    scores = HeldOutScores(first.people, first.truth, combine_scores(first.value, second.value, config))
    valid, seconds = auroc(scores.truth, scores.value), fewshot.seconds + ordinary.seconds
    copies = [*ordinary.copies, ordinary.model]
    return FittedEnsemble(fewshot, copies, config, valid, fewshot.epochs, seconds, scores)


def split_parts(cases: PictureCases, seed: int, max_parts: int = MAX_PARTS) -> list[np.ndarray]:
    """Return rows of each part: patients are separate, and each part has both states; none if two such parts are impossible."""
    rng, part_of = np.random.default_rng(seed), dict[str, int]()
    names, abnormal = [patient_of(record) for record in cases.records], cases.abnormal.numpy()
    people = [list(dict.fromkeys(np.array(names)[abnormal == state].tolist())) for state in (False, True)]
    count = min(max_parts, *(len(state_patients) for state_patients in people))
    for state_patients in people:
        rng.shuffle(state_patients)
        for place, name in enumerate(patient for patient in state_patients if patient not in part_of):
            part_of[name] = place % max(count, 1)
    parts = [np.array([row for row, name in enumerate(names) if part_of[name] == part]) for part in range(count)]
    is_complete = all(len(set(abnormal[rows])) == 2 and len(set(np.delete(abnormal, rows))) == 2 for rows in parts)
    return parts if count > 1 and is_complete else []


def fit_cross(plan: Mapping[str, Any], cases: PictureCases, seconds: float, seed: int) -> FittedDetector:
    """Return a detector or ordinary network of all cases; `valid` is the AUROC of scores for cases left out of the training.

    Without two parts nothing is chosen: as `fit` without validation cases.
    """
    parts = split_parts(cases, seed)
    part_seconds, started = seconds / (len(parts) + 1), time.monotonic()
    part_detectors: list[FittedDetector] = []
    for rows in parts:
        torch.manual_seed(seed)
        train_rows = np.setdiff1d(np.arange(len(cases)), rows).tolist()
        part_detectors.append(_fit_one(plan, cases.part(train_rows), part_seconds, with_calibration=False))
    torch.manual_seed(seed)
    full = _fit_one(plan, cases, part_seconds, with_calibration=not parts)
    if parts:
        held_out = [cases.part(rows.tolist()) for rows in parts]
        calibrate_full = _calibrate_on_held_out if isinstance(full, Fitted) else _calibrate_image_on_held_out
        calibrate_full(full, part_detectors, held_out)
    full.seconds = time.monotonic() - started
    return full


def _fit_one(plan: Mapping[str, Any], cases: PictureCases, seconds: float, *, with_calibration: bool) -> FittedDetector:
    model: Any = build_network(plan)
    if plan["engine"] == "fewshot":
        return fit(model, cases, None, plan, seconds, with_calibration)
    return fit_image(model, cases, None, plan, seconds)


def _calibrate_on_held_out(full: Any, part_detectors: list[Any], held_out: list[PictureCases]) -> None:
    """Set scale, weight of the memory and calibration from predictions of left-out cases."""
    pairs = zip(part_detectors, held_out, strict=True)
    of_parts = [compute_signals(detector.model, cases.input_batches(), detector.banks) for detector, cases in pairs]
    signals = {name: np.concatenate([part[name] for part in of_parts]) for name in of_parts[0]}
    truth = _join_truth(held_out)
    full.config = calibrate(full.model, signals, truth, bool(full.banks))
    full.held_out_scores = HeldOutScores(_join_patients(held_out), truth, combine_signals(signals, full.config)[0])
    full.valid = auroc(truth, full.held_out_scores.value)


def _calibrate_image_on_held_out(full: Any, part_detectors: list[Any], held_out: list[PictureCases]) -> None:
    pairs = zip(part_detectors, held_out, strict=True)
    probabilities = np.concatenate([predict_probabilities(part.model, cases.small_batches()) for part, cases in pairs])
    truth = _join_truth(held_out)
    if min(truth.sum(), (~truth).sum()) >= MIN_CASES_PER_STATE:
        full.calibration = list(fit_logistic(probabilities, truth))
    full.valid = auroc(truth, apply_logistic(probabilities, full.calibration))
    full.held_out_scores = HeldOutScores(_join_patients(held_out), truth, logit(probabilities))
    full.copies = [detector.model for detector in part_detectors]


def _join_truth(held_out: list[PictureCases]) -> np.ndarray:
    return np.concatenate([cases.abnormal.numpy() for cases in held_out])


def _join_patients(held_out: list[PictureCases]) -> list[str]:
    return [name for cases in held_out for name in cases.people()]
