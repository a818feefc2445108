"""Weighted cross-entropy for one label a case, weighted binary cross-entropy for several."""

from __future__ import annotations

from collections.abc import Mapping
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
        """(B, K) and (B, K) multi-hot to a scalar."""
        weights = self.get_buffer("weights")
        if self.multi_label:
            soft = labels * (1 - self.smoothing) + self.smoothing / 2
            return functional.binary_cross_entropy_with_logits(logits.float(), soft, pos_weight=weights)
        soft = labels / labels.sum(1, keepdim=True).clamp_min(1.0)
        case = (soft * weights).sum(1)
        soft = soft * (1 - self.smoothing) + self.smoothing / labels.shape[1]
        losses = -(soft * functional.log_softmax(logits.float(), dim=1)).sum(1)
        return (losses * case).sum() / case.sum().clamp_min(1e-6)


def build_loss(plan: Mapping[str, Any]) -> ClassLoss:
    """The loss that plan.json describes."""
    weights = plan.get("class_weights") or [1.0] * len(plan["classes"])
    return ClassLoss([float(v) for v in weights], bool(plan["multi_label"]), float(plan.get("label_smoothing") or 0))
