"""Losses: weighted cross-entropy for classes, binary for several labels, cumulative for grades; smooth L1 for numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class ClassLoss(nn.Module):
    """`weights`: one a class; for multi-label the weight of the positive cases."""

    def __init__(self, weights: list[float], multi_label: bool, smoothing: float = 0.0) -> None:
        super().__init__()
        self.multi_label, self.smoothing = multi_label, smoothing
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32), persistent=False)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of (B, K) logits and (B, K) multi-hot labels; NaN labels (multi-label) are unknown and have no loss."""
        weights = self.get_buffer("weights")
        if self.multi_label:
            is_known = ~labels.isnan()
            smoothed = labels.nan_to_num() * (1 - self.smoothing) + self.smoothing / 2
            losses = functional.binary_cross_entropy_with_logits(
                logits.float(), smoothed, pos_weight=weights, reduction="none"
            )
            return (losses * is_known).sum() / is_known.sum().clamp_min(1)
        smoothed = labels / labels.sum(1, keepdim=True).clamp_min(1.0)
        case_weights = (smoothed * weights).sum(1)
        smoothed = smoothed * (1 - self.smoothing) + self.smoothing / labels.shape[1]
        losses = -(smoothed * functional.log_softmax(logits.float(), dim=1)).sum(1)
        return (losses * case_weights).sum() / case_weights.sum().clamp_min(1e-6)


class GradeLoss(nn.Module):
    """Ordinal loss: cross-entropy of the cumulative probability at each step of the scale.

    A grade that is two steps off costs two steps; outputs remain the logits of a softmax. `weights`: one a grade.
    """

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32), persistent=False)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of (B, K) logits and (B, K) one-hot labels."""
        logs = functional.log_softmax(logits.float(), dim=1)
        below = logs.logcumsumexp(dim=1)[:, :-1]  # log P(grade <= k)
        above = logs.flip(1).logcumsumexp(dim=1).flip(1)[:, 1:]  # log P(grade > k)
        is_below = labels.cumsum(dim=1)[:, :-1]
        losses = -(is_below * below + (1 - is_below) * above).mean(dim=1)
        case_weights = (labels * self.get_buffer("weights")).sum(dim=1)
        return (losses * case_weights).sum() / case_weights.sum().clamp_min(1e-6)


class NumberLoss(nn.Module):
    """Absolute error of a standardised number, smooth close to 0."""

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of (B, 1) outputs and (B, 1) labels."""
        return functional.smooth_l1_loss(outputs.float(), labels, beta=0.3)


class HazardLoss(nn.Module):
    """Survival likelihood in discrete intervals (Gensheimer and Narasimhan, 2019).

    `edges`: the ends of the intervals. Labels are (B, 2): time, event. A censored case survived the intervals of which it was followed
    for half or more.
    """

    def __init__(self, edges: list[float]) -> None:
        super().__init__()
        ends = torch.tensor(edges, dtype=torch.float32)
        self.register_buffer("ends", ends, persistent=False)
        self.register_buffer("starts", torch.cat([torch.zeros(1), ends[:-1]]), persistent=False)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of (B, K) logits of hazards and (B, 2) labels."""
        ends, starts = self.get_buffer("ends"), self.get_buffer("starts")
        time, event = labels[:, :1], labels[:, 1:] > 0.5
        has_event = event & (time <= ends) & ((time > starts) | (starts == 0))
        is_survived = torch.where(event, time > ends, time >= (starts + ends) / 2)
        logits = logits.float()
        losses = is_survived * functional.softplus(logits) + has_event * functional.softplus(-logits)
        return losses.sum(dim=1).mean()


def build_loss(plan: Mapping[str, Any]) -> nn.Module:
    """Build the loss of plan.json."""
    return LOSSES[str(plan["task"])](plan)


def _build_class_loss(plan: Mapping[str, Any]) -> nn.Module:
    return ClassLoss(_class_weights(plan), bool(plan["multi_label"]), float(plan.get("label_smoothing") or 0))


def _class_weights(plan: Mapping[str, Any]) -> list[float]:
    return [float(v) for v in plan.get("class_weights") or [1.0] * len(plan["classes"])]


LOSSES: dict[str, Callable[[Mapping[str, Any]], nn.Module]] = {
    "diagnosis": _build_class_loss,
    "grading": lambda plan: GradeLoss(_class_weights(plan)),
    "regression": lambda plan: NumberLoss(),
    "survival": lambda plan: HazardLoss([float(edge) for edge in plan["edges"]]),
}
"""Task of the plan -> its loss."""
