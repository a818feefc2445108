"""Losses for masks: Dice with cross-entropy, focal loss, Tversky; one for several resolutions (deep supervision).

`exclusive` masks hold one class a voxel (softmax over background and K classes); others one 0/1 channel a class
(sigmoid). A class that is nowhere in the batch has no Dice: it is left out of the mean, and cross-entropy alone then
punishes what is marked falsely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

MANY = 16
"""Channels of logits from which on a loss goes by rows of voxels, where they lie so."""


class MaskLoss(nn.Module):
    """Overlap term plus voxel term.

    Args:
        exclusive: softmax over K + 1 channels and ids, or sigmoid over K channels and 0/1 channels.
        voxel: "ce" or "focal" (Lin et al., 2017, gamma 2).
        alpha: weight of false positives; beta: of false negatives; 0.5 and 0.5 is Dice, others are Tversky
            (Salehi et al., 2017).
        weights: one a class, for the voxel term (background has 1).
    """

    def __init__(
        self,
        exclusive: bool = True,
        voxel: str = "ce",
        alpha: float = 0.5,
        beta: float = 0.5,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if voxel not in ("ce", "focal"):
            raise ValueError(f"voxel loss {voxel!r} in plan.json; known are ce and focal")
        self.exclusive, self.voxel, self.alpha, self.beta = exclusive, voxel, alpha, beta
        table = None if not weights else torch.tensor([1.0, *weights] if exclusive else list(weights))
        self.register_buffer("weights", table, persistent=False)

    def forward(self, logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(B, C, ...) logits and (B, ...) ids or (B, K, ...) channels to a scalar."""
        if self.exclusive and _by_place(logits):
            return self._in_rows(logits, mask)
        logits = logits.float()
        if self.exclusive:
            mask = mask.long()
            logs = functional.log_softmax(logits, dim=1)
            chances = logs.exp()
            truth = torch.zeros_like(logs).scatter_(1, mask[:, None], 1.0)
            voxels = functional.nll_loss(logs, mask, weight=self.weights, reduction="none")
            if self.voxel == "focal":
                voxels = voxels * (1 - chances.gather(1, mask[:, None])[:, 0]).square()
            return voxels.mean() + self.overlap(chances[:, 1:], truth[:, 1:])
        truth = mask.float()
        voxels = functional.binary_cross_entropy_with_logits(logits, truth, reduction="none")
        chances = logits.sigmoid()
        if self.voxel == "focal":
            voxels = voxels * (truth - chances).square()
        if self.weights is not None:
            voxels = voxels * (1 + truth * (self.weights.view(1, -1, *(1,) * (logits.ndim - 2)) - 1))
        return voxels.mean() + self.overlap(chances, truth)

    def overlap(self, chances: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """1 - Tversky index over the whole batch, mean of the classes that occur in it; (B, K, ...) each."""
        axes = [0, *range(2, truth.ndim)]
        return self._apart((chances * truth).sum(axes), chances.sum(axes), truth.sum(axes))

    def _in_rows(self, logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The same of a row a voxel, (N, C) as it lies in memory, and without a layer of 0/1 for each class."""
        rows, ids = logits.movedim(1, -1).flatten(0, -2).float(), mask.long().flatten()
        logs = functional.log_softmax(rows, dim=1)
        own = logs.gather(1, ids[:, None])[:, 0]
        voxels = -own if self.weights is None else -own * self.weights[ids]
        if self.voxel == "focal":
            voxels = voxels * (1 - own.exp()).square()
        hit = rows.new_zeros(rows.shape[1]).index_add(0, ids, own.exp())
        marked, real = logs.exp().sum(0), torch.bincount(ids, minlength=rows.shape[1]).to(rows.dtype)
        return voxels.mean() + self._apart(hit[1:], marked[1:], real[1:])

    def _apart(self, hit: torch.Tensor, marked: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """1 - Tversky index of (K,) chances on true voxels, on all, and true voxels; mean of the classes that occur."""
        index = (hit + 1e-5) / (hit + self.alpha * (marked - hit) + self.beta * (real - hit) + 1e-5)
        present = (real > 0).float()
        return ((1 - index) * present).sum() / present.sum().clamp_min(1.0)


def _by_place(logits: torch.Tensor) -> bool:
    """Whether many classes of a voxel lie side by side (channels last), on a processor: sums over voxels by classes apart
    then take a third of the time, of few classes more (56 x 56 x 56 voxels, 36 and 4 channels)."""
    return logits.device.type == "cpu" and logits.shape[1] >= MANY and logits.stride(1) == 1


def build_mask_loss(plan: Mapping[str, Any]) -> MaskLoss:
    """From plan["loss"]: {"voxel", "alpha", "beta", "weights"}, each with a default; plan["overlap"] means sigmoid."""
    rule = plan.get("loss") or {}
    return MaskLoss(
        not plan.get("overlap"),
        str(rule.get("voxel", "ce")),
        float(rule.get("alpha", 0.5)),
        float(rule.get("beta", 0.5)),
        rule.get("weights"),
    )


def supervised(loss: nn.Module, outputs: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    """The loss of outputs from fine to coarse, each weighing half of the one before; masks are thinned to their size."""
    total, weight, whole = outputs[0].new_zeros((), dtype=torch.float32), 1.0, 0.0
    for output in outputs:
        total = total + weight * loss(output, _thin(mask, output.shape[2:]))
        whole, weight = whole + weight, weight / 2
    return total / whole


def _thin(mask: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """Every n-th voxel of (B, ...) or (B, K, ...) along the last axes."""
    for axis, want in zip(range(mask.ndim - len(size), mask.ndim), size, strict=True):
        have = mask.shape[axis]
        if have != want:
            places = ((torch.arange(want, device=mask.device) + 0.5) * have / want).long()
            mask = mask.index_select(axis, places)
    return mask
