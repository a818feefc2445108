"""Training the adapters on k examples, for a number of epochs or until the clock says so; the model is chosen on validation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m3b.training.detection.fewshot.data import Cases
from m3b.training.detection.fewshot.model import FewshotModel
from m3b.training.detection.fewshot.scoring import Looks, calibrate, chances, combined, look, look_at_own, memories
from m3b.training.detection.fewshot.selection import Held
from m3b.training.detection.fewshot.stored_adapters import describe_adapters, known
from m3b.training.detection.fewshot.views import changed, eleven
from m3b.training.ranking_metrics import auroc

CHECKS = 8
"""Times at which a training is looked at on validation cases."""


@dataclass
class Fitted:
    """A detector and how it was made.

    Args:
        banks: (rows, width) of normal patches, a depth each.
        config: what turns looks into answers (`scoring.calibrate`).
        valid: AUROC of images on the cases that it was chosen on; NaN where there were none.
        seconds: that the training took.
        held: what it, or others of its kind, say of cases that they were not taught with.
    """

    model: FewshotModel
    banks: list[torch.Tensor]
    config: dict[str, Any]
    valid: float
    epochs: int
    seconds: float
    held: Held | None = None


def fit(
    model: FewshotModel,
    train: Cases,
    valid: Cases | None,
    plan: Mapping[str, Any],
    seconds: float,
    settled: bool = True,
) -> Fitted:
    """Train on `train`; keep the state with the best AUROC on `valid`, the last one where there is no such part.

    Without an abnormal case nothing is trained: the memory of normal patches of the backbone itself answers, with the language of
    adapters of other sets where there are some.

    Args:
        settled: whether what turns looks into answers is made too; who crosses parts makes it of cases that were left out.
    """
    started = time.monotonic()
    few = plan["fewshot"]
    normal_only = not bool(train.abnormal.any())
    model.pixels = (train.masked or model.pixels) if not normal_only else bool(few.get("adapters")) and model.pixels
    model.adapting = not normal_only or bool(few.get("adapters"))
    best, kept, epochs = -1.0, None, 0
    if not normal_only:
        optimiser = torch.optim.Adam(model.adapters(train.masked), lr=float(few["lr"]), betas=(0.5, 0.999))
        every = max(1, int(few["epochs"]) // CHECKS)
        for epochs in range(1, int(few["epochs"]) + 1):
            one_epoch(model, train, plan, optimiser)
            late = time.monotonic() - started > seconds
            if valid is not None and (epochs % every == 0 or late):
                value = _figure(model, valid)
                if value >= best:  # of equal ones the longest trained
                    best, kept = value, {k: v.clone() for k, v in model.state_dict().items() if not _frozen(k)}
            if late:
                break
        if kept is not None:
            model.load_state_dict(kept, strict=False)
    banks, config, held = finish(model, train, valid) if settled else (bank(model, train), {}, None)
    figure = auroc(held.truth, held.value) if held is not None else float("nan")
    return Fitted(model, banks, config, figure, epochs, time.monotonic() - started, held)


def zero_shot(model: FewshotModel, plan: Mapping[str, Any]) -> Fitted:
    """k = 0: the adapters of other sets as they are, which see no example of this one."""
    model.adapting = True
    return Fitted(model, [], known(describe_adapters(plan["fewshot"]["adapters"])), float("nan"), 0, 0.0)


def _frozen(name: str) -> bool:
    return name.startswith("vision.")


def one_epoch(model: FewshotModel, train: Cases, plan: Mapping[str, Any], optimiser: torch.optim.Optimizer) -> float:
    """Once over the training cases in random order; the mean loss."""
    model.train()
    images, labels = train.pictures, train.truths
    if model.paper:
        images, labels = eleven(images, labels)
    batch = 1 if model.paper else int(plan["batch"])
    losses = []
    for rows in torch.randperm(len(images)).split(batch):
        shown, truth = images[rows], labels[rows]
        if not model.paper:
            shown, truth = changed(shown, truth)
        loss = model(shown, truth)["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    model.eval()
    return float(np.mean(losses))


@torch.no_grad()
def _figure(model: FewshotModel, valid: Cases) -> float:
    """AUROC of images by language alone, which is what is trained."""
    model.eval()
    looks = look(model, valid.pictures, [])
    score = looks["map"].reshape(len(valid), -1).max(axis=1) if model.pixels else looks["image"]
    value = auroc(valid.abnormal.numpy(), score)
    return value if np.isfinite(value) else 0.0


def bank(model: FewshotModel, train: Cases) -> list[torch.Tensor]:
    """The memory of the normal images of a training part, each once; with the published protocol of eleven changes of each."""
    model.eval()
    shown = train.pictures[~train.abnormal]
    if model.paper and len(shown):
        shown = eleven(shown, torch.zeros(len(shown), 1))[0]
    return memories(model, shown, model.pixels) if len(shown) else []


def finish(
    model: FewshotModel, train: Cases, valid: Cases | None
) -> tuple[list[torch.Tensor], dict[str, Any], Held | None]:
    """The memory of the training part's normal images, each once, and the calibration; and scores of validation cases."""
    banks = bank(model, train)
    if valid is not None:
        looks, abnormal = look(model, valid.pictures, banks), valid.abnormal.numpy()
    else:
        looks, abnormal = look_at_own(model, train.pictures, ~train.abnormal, model.pixels), train.abnormal.numpy()
    config = calibrate(model, looks, abnormal, bool(banks))
    held = Held(valid.people(), abnormal, combined(looks, config)[0]) if valid is not None else None
    return banks, config, held


def answers(fitted: Fitted, images: torch.Tensor) -> tuple[np.ndarray, np.ndarray, Looks]:
    """(N,) scores from 0 to 1, (N, S, S) maps in deviations above normal, and the looks they come from."""
    fitted.model.eval()
    looks = look(fitted.model, images, fitted.banks)
    image, shown = combined(looks, fitted.config)
    return chances(image, fitted.config), shown, looks
