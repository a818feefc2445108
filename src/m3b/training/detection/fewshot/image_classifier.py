"""The ordinary network for images of which it is only known whether they are abnormal: trained from random weights."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.detection.boxes import apply_logistic, fit_logistic, logit
from m3b.training.detection.fewshot.combination import raw
from m3b.training.detection.fewshot.data import Cases
from m3b.training.detection.fewshot.fitting import CHECKS
from m3b.training.detection.fewshot.scoring import SURE
from m3b.training.detection.fewshot.selection import Held
from m3b.training.detection.fewshot.views import changed
from m3b.training.ranking_metrics import auroc


@dataclass
class FittedImage:
    """The network, how its chances are calibrated, and AUROC on the cases that it was chosen on.

    Args:
        held: what it, or others of its kind, say of cases that they were not taught with, as logits.
        copies: networks that were taught with parts of the cases, where parts were crossed.
    """

    model: nn.Module
    calibration: list[float]
    valid: float
    epochs: int
    seconds: float
    held: Held | None = None
    copies: list[nn.Module] = field(default_factory=list)

    @torch.no_grad()
    def answers(self, images: torch.Tensor, batch: int = 32) -> np.ndarray:
        """(N,) anomaly scores from 0 to 1."""
        return apply_logistic(raw(self.model, images, batch), self.calibration)


def fit_image(
    model: nn.Module, train: Cases, valid: Cases | None, plan: Mapping[str, Any], seconds: float
) -> FittedImage:
    """AdamW for the plan's epochs or seconds; the state with the best AUROC on `valid` is kept, else the last.

    Raises:
        SystemExit: training cases of one state alone, from which such a network learns nothing.
    """
    if not bool(train.abnormal.any()) or bool(train.abnormal.all()):
        raise SystemExit(
            "all training cases are normal, or all are not: this needs a backbone that was trained before (backbone=FOLDER "
            "in plan.py --set), which knows images without having seen any abnormal one"
        )
    started, ordinary = time.monotonic(), plan["ordinary"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=float(ordinary["lr"]), weight_decay=0.02)
    epochs, best, kept = 0, -1.0, None
    most = int(ordinary["epochs"])
    for epochs in range(1, most + 1):
        _epoch(model, train, int(plan["batch"]), optimiser)
        late = time.monotonic() - started > seconds
        if valid is not None and (epochs % max(1, most // CHECKS) == 0 or late):
            value = auroc(valid.abnormal.numpy(), raw(model, valid.pictures))
            if value >= best:
                best, kept = value, {name: one.clone() for name, one in model.state_dict().items()}
        if late:
            break
    if kept is not None:
        model.load_state_dict(kept)
    fitted = FittedImage(model, [1.0, 0.0], float("nan"), epochs, time.monotonic() - started)
    if valid is not None:
        truth, found = valid.abnormal.numpy(), raw(model, valid.pictures)
        fitted.valid, fitted.held = auroc(truth, found), Held(valid.people(), truth, logit(found))
        if min(truth.sum(), (~truth).sum()) >= SURE:
            fitted.calibration = list(fit_logistic(found, truth))
    return fitted


def _epoch(model: nn.Module, train: Cases, batch: int, optimiser: torch.optim.Optimizer) -> None:
    model.train()
    for rows in torch.randperm(len(train)).split(batch):
        shown, truth = changed(train.pictures[rows], train.truths[rows])
        loss = model(shown, truth)["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
