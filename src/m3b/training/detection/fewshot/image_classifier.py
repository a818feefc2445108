"""The ordinary network for images with a state (normal or abnormal): trained from random weights."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.detection.boxes import apply_logistic, fit_logistic, logit
from m3b.training.detection.fewshot.combination import predict_probabilities
from m3b.training.detection.fewshot.data import PictureCases
from m3b.training.detection.fewshot.fitting import VALIDATION_COUNT
from m3b.training.detection.fewshot.scoring import MIN_CASES_PER_STATE
from m3b.training.detection.fewshot.selection import HeldOutScores
from m3b.training.detection.fewshot.views import augment_pictures
from m3b.training.ranking_metrics import auroc


@dataclass
class FittedImage:
    """The network, its calibration, and AUROC on its validation cases.

    Args:
        held_out_scores: scores (logits) of cases that it, or others of its kind, were not trained with.
        copies: networks of a cross-fitting that were trained with parts of the cases.
    """

    model: nn.Module
    calibration: list[float]
    valid: float
    epochs: int
    seconds: float
    held_out_scores: HeldOutScores | None = None
    copies: list[nn.Module] = field(default_factory=list)

    def predict(self, cases: PictureCases) -> np.ndarray:
        """Return (N,) anomaly scores from 0 to 1."""
        return apply_logistic(predict_probabilities(self.model, cases.small_batches()), self.calibration)


def fit_image(
    model: nn.Module, train: PictureCases, valid: PictureCases | None, plan: Mapping[str, Any], seconds: float
) -> FittedImage:
    """Train with AdamW for the plan's epochs or seconds; keep the state with the best AUROC on `valid`, else the last.

    Raises:
        SystemExit: training cases of one state only, from which the network cannot learn.
    """
    if not bool(train.abnormal.any()) or bool(train.abnormal.all()):
        raise SystemExit(
            "all training cases have the same state: this needs a pretrained backbone (backbone=FOLDER in plan.py --set), which "
            "can detect anomalies without abnormal examples"
        )
    started, ordinary = time.monotonic(), plan["ordinary"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=float(ordinary["lr"]), weight_decay=0.02)
    epochs, best_auroc, best_state = 0, -1.0, None
    max_epochs = int(ordinary["epochs"])
    for epochs in range(1, max_epochs + 1):
        _train_epoch(model, train, int(plan["batch"]), optimiser)
        is_over = time.monotonic() - started > seconds
        if valid is not None and (epochs % max(1, max_epochs // VALIDATION_COUNT) == 0 or is_over):
            value = auroc(valid.abnormal.numpy(), predict_probabilities(model, valid.small_batches()))
            if value >= best_auroc:
                best_auroc, best_state = value, {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if is_over:
            break
    if best_state is not None:
        model.load_state_dict(best_state)
    fitted = FittedImage(model, [1.0, 0.0], float("nan"), epochs, time.monotonic() - started)
    if valid is not None:
        truth, probabilities = valid.abnormal.numpy(), predict_probabilities(model, valid.small_batches())
        fitted.valid, fitted.held_out_scores = (
            auroc(truth, probabilities),
            HeldOutScores(valid.people(), truth, logit(probabilities)),
        )
        if min(truth.sum(), (~truth).sum()) >= MIN_CASES_PER_STATE:
            fitted.calibration = list(fit_logistic(probabilities, truth))
    return fitted


def _train_epoch(model: nn.Module, train: PictureCases, batch: int, optimiser: torch.optim.Optimizer) -> None:
    model.train()
    for part in torch.randperm(len(train)).split(batch):
        rows = part.tolist()
        pictures, truth = augment_pictures(train.small_pictures(rows), train.labels(rows))
        loss = model(pictures, truth)["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
