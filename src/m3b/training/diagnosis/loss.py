"""Weighted cross-entropy for one label a case, binary for several, cumulated for grades; smooth L1 for a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class ClassLoss(nn.Module):
    """`weights`: one a class; for several labels the weight of the positive cases."""

    def __init__(self, weights: list[float], multi_label: bool, smoothing: float = 0.0) -> None:
        super().__init__()
        self.multi_label, self.smoothing = multi_label, smoothing
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32), persistent=False)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(B, K) and (B, K) multi-hot to a scalar; of several labels NaN is one that is not known, which has no loss."""
        weights = self.get_buffer("weights")
        if self.multi_label:
            known = ~labels.isnan()
            soft = labels.nan_to_num() * (1 - self.smoothing) + self.smoothing / 2
            losses = functional.binary_cross_entropy_with_logits(
                logits.float(), soft, pos_weight=weights, reduction="none"
            )
            return (losses * known).sum() / known.sum().clamp_min(1)
        soft = labels / labels.sum(1, keepdim=True).clamp_min(1.0)
        case = (soft * weights).sum(1)
        soft = soft * (1 - self.smoothing) + self.smoothing / labels.shape[1]
        losses = -(soft * functional.log_softmax(logits.float(), dim=1)).sum(1)
        return (losses * case).sum() / case.sum().clamp_min(1e-6)


class GradeLoss(nn.Module):
    """For grades: at each step of the scale, whether the case lies above it (cross-entropy of the cumulated probabilities).

    A grade that is two steps off costs two steps; outputs stay the logits of a softmax. `weights`: one a grade.
    """

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32), persistent=False)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(B, K) and (B, K) one-hot to a scalar."""
        logs = functional.log_softmax(logits.float(), dim=1)
        below = logs.logcumsumexp(dim=1)[:, :-1]  # log P(grade <= k)
        above = logs.flip(1).logcumsumexp(dim=1).flip(1)[:, 1:]  # log P(grade > k)
        is_below = labels.cumsum(dim=1)[:, :-1]
        losses = -(is_below * below + (1 - is_below) * above).mean(dim=1)
        case = (labels * self.get_buffer("weights")).sum(dim=1)
        return (losses * case).sum() / case.sum().clamp_min(1e-6)


class NumberLoss(nn.Module):
    """For a number in deviations: its absolute distance, smooth close to the truth."""

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(B, 1) and (B, 1) to a scalar."""
        return functional.smooth_l1_loss(outputs.float(), labels, beta=0.3)


class HazardLoss(nn.Module):
    """For survival: the likelihood of coming through intervals, and of the event in one (Gensheimer and Narasimhan, 2019).

    `edges`: the ends of the intervals. Labels are (B, 2): time, event. A censored case came through those of which it was followed
    for half or more.
    """

    def __init__(self, edges: list[float]) -> None:
        super().__init__()
        ends = torch.tensor(edges, dtype=torch.float32)
        self.register_buffer("ends", ends, persistent=False)
        self.register_buffer("starts", torch.cat([torch.zeros(1), ends[:-1]]), persistent=False)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(B, K) logits of hazards and (B, 2) to a scalar."""
        ends, starts = self.get_buffer("ends"), self.get_buffer("starts")
        time, event = labels[:, :1], labels[:, 1:] > 0.5
        inside = event & (time <= ends) & ((time > starts) | (starts == 0))
        through = torch.where(event, time > ends, time >= (starts + ends) / 2)
        logits = logits.float()
        losses = through * functional.softplus(logits) + inside * functional.softplus(-logits)
        return losses.sum(dim=1).mean()


def build_loss(plan: Mapping[str, Any]) -> nn.Module:
    """The loss that plan.json describes."""
    return LOSSES[str(plan["task"])](plan)


def _of_classes(plan: Mapping[str, Any]) -> nn.Module:
    return ClassLoss(_weights(plan), bool(plan["multi_label"]), float(plan.get("label_smoothing") or 0))


def _weights(plan: Mapping[str, Any]) -> list[float]:
    return [float(v) for v in plan.get("class_weights") or [1.0] * len(plan["classes"])]


LOSSES: dict[str, Callable[[Mapping[str, Any]], nn.Module]] = {
    "diagnosis": _of_classes,
    "grading": lambda plan: GradeLoss(_weights(plan)),
    "regression": lambda plan: NumberLoss(),
    "survival": lambda plan: HazardLoss([float(edge) for edge in plan["edges"]]),
}
"""Task of the plan -> its loss."""
