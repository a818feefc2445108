"""Dice with cross-entropy (or focal loss, or Tversky: "loss" of plan.json) at several resolutions of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.ignored_voxels import IGNORE
from m3b.training.losses import build_mask_loss, deep_supervision_loss
from m3b.training.segmentation.box_loss import BoxLoss
from m3b.training.segmentation.ordered_structures import MIDDLE, NUMBER, class_tables, middle_distances


class SegmentationLoss(nn.Module):
    """`forward(outputs from fine to coarse, mask) -> scalar`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.mask_loss: nn.Module = OrderedLoss(plan) if plan.get("chains") else build_mask_loss(plan)
        if plan.get("boxes"):
            self.mask_loss = BoxLoss(self.mask_loss, bool(plan["overlap"]))

    def forward(self, outputs: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
        return deep_supervision_loss(self.mask_loss, outputs, mask)


class OrderedLoss(nn.Module):
    """Loss for classes that are distinguished by their order (`ordered_structures`).

    The mask loss of the common channels, and smooth L1 of numbers and middles inside the structures.
    """

    NUMBER_WEIGHT, MIDDLE_WEIGHT = 2.0, 2.0
    """Weights relative to the mask loss."""
    SMOOTH_L1_BETAS = 0.1, 0.1
    """Errors of number and middle above which their loss is linear."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.patch = [int(n) for n in plan["patch"]]
        self.channel: torch.Tensor
        self.number: torch.Tensor
        self.axis: torch.Tensor
        self.pitch: torch.Tensor
        for name, table in zip(("channel", "number", "axis", "pitch"), class_tables(plan), strict=True):
            self.register_buffer(name, table, persistent=False)
        self.axes = sorted({int(axis) for axis in self.axis} - {-1})
        self.mask = build_mask_loss({**plan, "loss": {**(plan.get("loss") or {}), "weights": self.weights(plan)}})

    def weights(self, plan: Mapping[str, Any]) -> list[float] | None:
        """Return the weights of the channels: a class outside all rows has its own, a row has 1."""
        class_weights = (plan.get("loss") or {}).get("weights")
        if not class_weights:
            return None
        channel_weights = [1.0] * int(self.channel.max())
        for class_id, weight in enumerate(class_weights, start=1):
            if self.axis[class_id] < 0:
                channel_weights[int(self.channel[class_id]) - 1] = float(weight)
        return channel_weights

    def forward(self, logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the scalar loss of (B, C, *shape) outputs of the network and (B, *shape) class ids."""
        ignored, logits = mask == IGNORE, logits.float()
        mask = mask.long().masked_fill(ignored, 0)
        loss: torch.Tensor = self.mask(logits[:, :NUMBER], self.channel[mask].masked_fill(ignored, IGNORE))
        is_in_row = self.axis[mask] >= 0
        count = is_in_row.sum().clamp_min(1)  # no indexing by a mask: it would synchronise with the GPU in every step
        scale = [side / length for side, length in zip(self.patch, mask.shape[1:], strict=True)]
        targets = self.number[mask], middle_distances(mask, self.axis, self.pitch, scale, self.axes)
        for field, truth, weight, beta in zip(
            (NUMBER, MIDDLE), targets, (self.NUMBER_WEIGHT, self.MIDDLE_WEIGHT), self.SMOOTH_L1_BETAS, strict=True
        ):
            field_loss = functional.smooth_l1_loss(
                logits[:, field], truth.to(logits.dtype), beta=beta, reduction="none"
            )
            loss = loss + weight * torch.where(is_in_row, field_loss, torch.zeros_like(field_loss)).sum() / count
        return loss


def build_loss(plan: Mapping[str, Any]) -> SegmentationLoss:
    """Return the loss that plan.json describes."""
    return SegmentationLoss(plan)
