"""Dice with cross-entropy (or focal loss, or Tversky: plan.json "loss"), at several resolutions of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from Utils.losses import build_mask_loss, supervised


class SegmentationLoss(nn.Module):
    """`forward(outputs from fine to coarse, mask) -> scalar`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.one = build_mask_loss(plan)

    def forward(self, outputs: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
        return supervised(self.one, outputs, mask)


def build_loss(plan: Mapping[str, Any]) -> SegmentationLoss:
    """The loss that plan.json describes."""
    return SegmentationLoss(plan)
