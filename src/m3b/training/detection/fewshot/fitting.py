"""Training of the adapters on frozen features, for a number of epochs or until the time is used up; selection on validation cases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m3b.training.detection.fewshot.data import PictureCases
from m3b.training.detection.fewshot.model import FewshotModel, NetworkInput
from m3b.training.detection.fewshot.scoring import (
    OwnImages,
    Signals,
    build_banks,
    calibrate,
    combine_signals,
    compute_signals,
    to_probabilities,
)
from m3b.training.detection.fewshot.selection import HeldOutScores
from m3b.training.detection.fewshot.stored_adapters import describe_adapters, zero_shot_config
from m3b.training.detection.fewshot.views import augment_eleven_times
from m3b.training.ranking_metrics import auroc

VALIDATION_COUNT = 8
"""Number of validations during a training."""


@dataclass
class Fitted:
    """A trained detector.

    Args:
        banks: (rows, width) features of patches for each depth (`build_memory`).
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
    losses = []
    for inputs, labels in _iterate_steps(model, train, int(plan["batch"])):
        loss = model(inputs, labels)["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    model.eval()
    return float(np.mean(losses))


def _iterate_steps(model: FewshotModel, train: PictureCases, batch: int) -> Iterator[tuple[NetworkInput, torch.Tensor]]:
    """Yield inputs and labels of each step; the published protocol takes eleven augmented versions of each picture, one a step."""
    if not model.paper:
        for rows in torch.randperm(len(train)).split(batch):
            yield train.inputs(rows.tolist()), train.labels(rows.tolist())
        return
    all_rows = range(len(train))
    pictures, labels = augment_eleven_times(train.cache.pictures(train.cache_rows), train.labels(all_rows))
    for row in torch.randperm(len(pictures)).split(1):
        yield pictures[row], labels[row]


@torch.no_grad()
def _validation_auroc(model: FewshotModel, valid: PictureCases) -> float:
    """Return AUROC of images by text similarity alone, which is what is trained."""
    model.eval()
    signals = compute_signals(model, valid.input_batches(), [])
    score = signals["map"].reshape(len(valid), -1).max(axis=1) if model.pixels else signals["image"]
    value = auroc(valid.abnormal.numpy(), score)
    return value if np.isfinite(value) else 0.0


def build_memory(model: FewshotModel, train: PictureCases) -> list[torch.Tensor]:
    """Return the memory of a training part: patches of normal images for each depth.

    For states with both kinds of examples it holds frozen features, and then those of abnormal images. With the published protocol it
    holds eleven augmented versions of each normal image.
    """
    model.eval()
    is_frozen = has_two_sided_memory(model, train)
    banks: list[torch.Tensor] = []
    for state in (False, True) if is_frozen else (False,):
        rows = torch.where(train.abnormal == state)[0].tolist()
        part = train.part(rows)
        batches = part.input_batches()
        if model.paper and rows:
            augmented, _ = augment_eleven_times(part.cache.pictures(part.cache_rows), torch.zeros(len(rows), 1))
            batches = iter(augmented.split(1))
        banks += build_banks(model, batches, len(rows), is_frozen)
    return banks


def has_two_sided_memory(model: FewshotModel, train: PictureCases) -> bool:
    """Return whether the memory holds abnormal patches: not those of masked images, of which most patches are normal."""
    return not model.paper and not train.masked and bool(train.abnormal.any()) and not bool(train.abnormal.all())


def compute_own_signals(model: FewshotModel, cases: PictureCases) -> Signals:
    """Return signals of the cases of a memory: each image is compared with the others."""
    is_frozen = has_two_sided_memory(model, cases)
    rows_of_states = [torch.where(cases.abnormal == state)[0].tolist() for state in (False, True)]
    state_parts = [cases.part(rows) for rows in rows_of_states]
    banks: list[torch.Tensor] = []
    for part in state_parts if is_frozen else state_parts[:1]:
        banks += build_banks(model, part.input_batches(), len(part), is_frozen)
    signals: list[Signals] = []
    for part, is_abnormal in zip(state_parts, (False, True), strict=True):
        if len(part):
            own = OwnImages(len(part), is_abnormal) if is_frozen or not is_abnormal else None
            signals.append(compute_signals(model, part.input_batches(), banks, own))
    order = np.argsort(np.concatenate(rows_of_states))
    return {name: np.concatenate([of_state[name] for of_state in signals])[order] for name in signals[0]}


def fit_calibration(
    model: FewshotModel, train: PictureCases, valid: PictureCases | None
) -> tuple[list[torch.Tensor], dict[str, Any], HeldOutScores | None]:
    """Return the memory of the training part's normal images, the calibration, and scores of validation cases."""
    banks = build_memory(model, train)
    if valid is not None:
        signals, abnormal = compute_signals(model, valid.input_batches(), banks), valid.abnormal.numpy()
    else:
        signals, abnormal = compute_own_signals(model, train), train.abnormal.numpy()
    config = calibrate(model, signals, abnormal, bool(banks))
    scores = HeldOutScores(valid.people(), abnormal, combine_signals(signals, config)[0]) if valid is not None else None
    return banks, config, scores


def predict_images(fitted: Fitted, cases: PictureCases) -> tuple[np.ndarray, np.ndarray, Signals]:
    """Return (N,) scores from 0 to 1, (N, M, M) maps in deviations above normal, and the signals."""
    fitted.model.eval()
    signals = compute_signals(fitted.model, cases.input_batches(), fitted.banks)
    image_scores, maps = combine_signals(signals, fitted.config)
    return to_probabilities(image_scores, fitted.config), maps, signals
