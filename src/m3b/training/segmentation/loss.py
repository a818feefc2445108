"""Dice with cross-entropy (or focal loss, or Tversky: plan.json "loss"), at several resolutions of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.losses import build_mask_loss, supervised
from m3b.training.segmentation.ordered_structures import MIDDLE, NUMBER, middles, tables


class SegmentationLoss(nn.Module):
    """`forward(outputs from fine to coarse, mask) -> scalar`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.one: nn.Module = OrderedLoss(plan) if plan.get("chains") else build_mask_loss(plan)

    def forward(self, outputs: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
        return supervised(self.one, outputs, mask)


class OrderedLoss(nn.Module):
    """For classes that are told apart by order (`ordered_structures`): the mask loss of what they have in common, and smooth L1
    of their numbers and middles where they are."""

    NUMBERS, MIDDLES = 2.0, 2.0
    """Weights beside the mask loss; where the two become linear."""
    BENT = 0.1, 0.1

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.patch = [int(n) for n in plan["patch"]]
        self.channel: torch.Tensor
        self.number: torch.Tensor
        self.axis: torch.Tensor
        self.pitch: torch.Tensor
        for name, table in zip(("channel", "number", "axis", "pitch"), tables(plan), strict=True):
            self.register_buffer(name, table, persistent=False)
        self.axes = sorted({int(axis) for axis in self.axis} - {-1})
        self.mask = build_mask_loss({**plan, "loss": {**(plan.get("loss") or {}), "weights": self.weights(plan)}})

    def weights(self, plan: Mapping[str, Any]) -> list[float] | None:
        """Of the channels: a class that is in no row has its own, a row 1."""
        given = (plan.get("loss") or {}).get("weights")
        if not given:
            return None
        found = [1.0] * int(self.channel.max())
        for place, weight in enumerate(given, start=1):
            if self.axis[place] < 0:
                found[int(self.channel[place]) - 1] = float(weight)
        return found

    def forward(self, logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(B, C, *shape) as the network gives them and (B, *shape) places of classes to a scalar."""
        mask, logits = mask.long(), logits.float()
        loss: torch.Tensor = self.mask(logits[:, :NUMBER], self.channel[mask])
        inside = self.axis[mask] >= 0
        count = inside.sum().clamp_min(1)  # nothing is picked out: that would wait for a GPU, in every step
        scale = [whole / have for whole, have in zip(self.patch, mask.shape[1:], strict=True)]
        wanted = self.number[mask], middles(mask, self.axis, self.pitch, scale, self.axes)
        for place, truth, weight, bent in zip(
            (NUMBER, MIDDLE), wanted, (self.NUMBERS, self.MIDDLES), self.BENT, strict=True
        ):
            far = functional.smooth_l1_loss(logits[:, place], truth.to(logits.dtype), beta=bent, reduction="none")
            loss = loss + weight * torch.where(inside, far, torch.zeros_like(far)).sum() / count
        return loss


def build_loss(plan: Mapping[str, Any]) -> SegmentationLoss:
    """The loss that plan.json describes."""
    return SegmentationLoss(plan)
