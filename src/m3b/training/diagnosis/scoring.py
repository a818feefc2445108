"""Predictions of the classifier on a validation part, and the figures that choose the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from m3b.training.diagnosis.targets import get_target
from m3b.training.diagnosis.tta import View, apply_view
from m3b.training.step_cost import micro_batch


@torch.no_grad()
def run_model(
    model: torch.nn.Module, cases: Any, device: torch.device, batch: int, views: Sequence[View] = ({},)
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return (N, K) logits (mean over `views`) and labels of a data set, and the mean loss (NaN without one)."""
    was_training, logits, labels, losses = model.training, [], [], []
    model.eval()
    for items in torch.utils.data.DataLoader(cases, batch_size=batch):
        pixels, truth = items["pixel_values"].to(device), items["labels"].to(device)
        extra = {key: items[key].to(device) for key in ("covariates", "views") if key in items}
        has_views = "views" in items
        outputs = [model(apply_view(pixels, view, has_views), truth, **extra) for view in views]
        logits.append(torch.stack([output["logits"].float() for output in outputs]).mean(0).cpu().numpy())
        labels.append(truth.cpu().numpy())
        losses.append(float(outputs[0].get("loss", torch.nan)) * len(truth))
    model.train(was_training)
    table = np.concatenate(labels)
    return np.concatenate(logits), table, sum(losses) / len(table)


def make_scorer(plan: Mapping[str, Any], valid: Any) -> Callable[[torch.nn.Module, torch.device], dict[str, float]]:
    """Return the scorer for the trainer: loss and figures of the validation part."""
    target = get_target(plan)

    def score(model: torch.nn.Module, device: torch.device) -> dict[str, float]:
        logits, labels, loss = run_model(model, valid, device, 2 * micro_batch(plan))
        return {"valid_loss": loss, **target.figures(logits, labels)}

    return score
