"""Training of the adapters on k examples, for a number of epochs or until the time is used up; selection on validation cases."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m3b.training.detection.fewshot.data import PictureCases
from m3b.training.detection.fewshot.model import FewshotModel
from m3b.training.detection.fewshot.scoring import (
    Signals,
    build_banks,
    calibrate,
    combine_signals,
    compute_own_signals,
    compute_signals,
    to_probabilities,
)
from m3b.training.detection.fewshot.selection import HeldOutScores
from m3b.training.detection.fewshot.stored_adapters import describe_adapters, zero_shot_config
from m3b.training.detection.fewshot.views import augment_eleven_times, augment_pictures
from m3b.training.ranking_metrics import auroc

VALIDATION_COUNT = 8
"""Number of validations during a training."""


@dataclass
class Fitted:
    """A trained detector.

    Args:
        banks: (rows, width) features of normal patches for each depth.
        config: calibration of signals to predictions (`scoring.calibrate`).
        valid: AUROC of images on its validation cases; NaN without any.
        seconds: of the training.
        held_out_scores: scores of cases that it, or others of its kind, were not trained with.
    """

    model: FewshotModel
    banks: list[torch.Tensor]
    config: dict[str, Any]
    valid: float
    epochs: int
    seconds: float
    held_out_scores: HeldOutScores | None = None


def fit(
    model: FewshotModel,
    train: PictureCases,
    valid: PictureCases | None,
    plan: Mapping[str, Any],
    seconds: float,
    with_calibration: bool = True,
) -> Fitted:
    """Train on `train`; keep the state with the best AUROC on `valid`, the last one without `valid`.

    Without an abnormal case nothing is trained: predictions come from the memory of normal patches of the backbone, and from the
    text features of adapters of other sets if available.

    Args:
        with_calibration: whether to fit the calibration too; cross-fitting fits it on left-out cases.
    """
    started = time.monotonic()
    settings = plan["fewshot"]
    normal_only = not bool(train.abnormal.any())
    has_adapters = bool(settings.get("adapters"))
    model.pixels = has_adapters and model.pixels if normal_only else train.masked or model.pixels
    model.adapting = not normal_only or has_adapters
    best_auroc, best_state, epochs = -1.0, None, 0
    if not normal_only:
        optimiser = torch.optim.Adam(model.adapters(train.masked), lr=float(settings["lr"]), betas=(0.5, 0.999))
        validation_interval = max(1, int(settings["epochs"]) // VALIDATION_COUNT)
        for epochs in range(1, int(settings["epochs"]) + 1):
            train_epoch(model, train, plan, optimiser)
            is_over = time.monotonic() - started > seconds
            if valid is not None and (epochs % validation_interval == 0 or is_over):
                value = _validation_auroc(model, valid)
                if value >= best_auroc:  # of equal states the last one
                    best_auroc = value
                    best_state = {k: v.clone() for k, v in model.state_dict().items() if not _frozen(k)}
            if is_over:
                break
        if best_state is not None:
            model.load_state_dict(best_state, strict=False)
    if with_calibration:
        banks, config, scores = fit_calibration(model, train, valid)
    else:
        banks, config, scores = build_memory(model, train), {}, None
    valid_auroc = auroc(scores.truth, scores.value) if scores is not None else float("nan")
    return Fitted(model, banks, config, valid_auroc, epochs, time.monotonic() - started, scores)


def fit_zero_shot(model: FewshotModel, plan: Mapping[str, Any]) -> Fitted:
    """Return a zero-shot detector (k = 0): the adapters of other sets, without examples of this one."""
    model.adapting = True
    return Fitted(model, [], zero_shot_config(describe_adapters(plan["fewshot"]["adapters"])), float("nan"), 0, 0.0)


def _frozen(name: str) -> bool:
    return name.startswith("vision.")


def train_epoch(
    model: FewshotModel, train: PictureCases, plan: Mapping[str, Any], optimiser: torch.optim.Optimizer
) -> float:
    """Train once over the cases in random order; return the mean loss."""
    model.train()
    images, labels = train.pictures, train.truths
    if model.paper:
        images, labels = augment_eleven_times(images, labels)
    batch = 1 if model.paper else int(plan["batch"])
    losses = []
    for rows in torch.randperm(len(images)).split(batch):
        pictures, truth = images[rows], labels[rows]
        if not model.paper:
            pictures, truth = augment_pictures(pictures, truth)
        loss = model(pictures, truth)["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    model.eval()
    return float(np.mean(losses))


@torch.no_grad()
def _validation_auroc(model: FewshotModel, valid: PictureCases) -> float:
    """Return AUROC of images by text similarity alone, which is what is trained."""
    model.eval()
    signals = compute_signals(model, valid.pictures, [])
    score = signals["map"].reshape(len(valid), -1).max(axis=1) if model.pixels else signals["image"]
    value = auroc(valid.abnormal.numpy(), score)
    return value if np.isfinite(value) else 0.0


def build_memory(model: FewshotModel, train: PictureCases) -> list[torch.Tensor]:
    """Return the memory of the normal images of a training part; with the published protocol of eleven augmented versions of each."""
    model.eval()
    normal_images = train.pictures[~train.abnormal]
    if model.paper and len(normal_images):
        normal_images = augment_eleven_times(normal_images, torch.zeros(len(normal_images), 1))[0]
    return build_banks(model, normal_images, model.pixels) if len(normal_images) else []


def fit_calibration(
    model: FewshotModel, train: PictureCases, valid: PictureCases | None
) -> tuple[list[torch.Tensor], dict[str, Any], HeldOutScores | None]:
    """Return the memory of the training part's normal images, the calibration, and scores of validation cases."""
    banks = build_memory(model, train)
    if valid is not None:
        signals, abnormal = compute_signals(model, valid.pictures, banks), valid.abnormal.numpy()
    else:
        signals = compute_own_signals(model, train.pictures, ~train.abnormal, model.pixels)
        abnormal = train.abnormal.numpy()
    config = calibrate(model, signals, abnormal, bool(banks))
    scores = HeldOutScores(valid.people(), abnormal, combine_signals(signals, config)[0]) if valid is not None else None
    return banks, config, scores


def predict_images(fitted: Fitted, images: torch.Tensor) -> tuple[np.ndarray, np.ndarray, Signals]:
    """Return (N,) scores from 0 to 1, (N, S, S) maps in deviations above normal, and the signals."""
    fitted.model.eval()
    signals = compute_signals(fitted.model, images, fitted.banks)
    image_scores, maps = combine_signals(signals, fitted.config)
    return to_probabilities(image_scores, fitted.config), maps, signals
