"""Losses for segmentation masks: Dice or Tversky with cross-entropy or focal loss, and deep supervision.

`exclusive` masks have one class per voxel (softmax over background and K classes); other masks have one 0/1 channel per class
(sigmoid). A class that no mask of the batch contains has no Dice and is left out of the mean; cross-entropy alone then penalises
false positives. Voxels with `IGNORE` have neither a loss nor a gradient; means are over the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.ignored_voxels import IGNORE

MIN_CHANNELS_BY_ROWS = 16
"""Minimum channels of the logits for which the loss is computed by rows of voxels, if they lie in memory like this."""


class MaskLoss(nn.Module):
    """Overlap term plus voxel term.

    Args:
        exclusive: True: softmax over K + 1 channels, masks are ids. False: sigmoid over K channels, masks are 0/1 channels.
        voxel: "ce" or "focal" (Lin et al., 2017, gamma 2).
        alpha: weight of false positives. beta: weight of false negatives. 0.5 and 0.5 is Dice, other values are Tversky
            (Salehi et al., 2017).
        weights: one per class, for the voxel term (background has 1).
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
        """Return the scalar loss of (B, C, ...) logits and (B, ...) ids or (B, K, ...) channels."""
        if self.exclusive and _has_voxel_rows(logits):
            return self._loss_by_rows(logits, mask)
        logits, labelled = logits.float(), mask != IGNORE
        mask = torch.where(labelled, mask, torch.zeros_like(mask))
        if self.exclusive:
            mask = mask.long()
            log_probabilities = functional.log_softmax(logits, dim=1)
            probabilities = log_probabilities.exp()
            truth = torch.zeros_like(log_probabilities).scatter_(1, mask[:, None], 1.0)
            voxel_loss = functional.nll_loss(log_probabilities, mask, weight=self.weights, reduction="none")
            if self.voxel == "focal":
                voxel_loss = voxel_loss * (1 - probabilities.gather(1, mask[:, None])[:, 0]).square()
            is_counted = labelled[:, None]
            return _mean(voxel_loss, labelled) + self.overlap(
                probabilities[:, 1:] * is_counted, truth[:, 1:] * is_counted
            )
        truth = mask.float()
        voxel_loss = functional.binary_cross_entropy_with_logits(logits, truth, reduction="none")
        probabilities = logits.sigmoid()
        if self.voxel == "focal":
            voxel_loss = voxel_loss * (truth - probabilities).square()
        if self.weights is not None:
            voxel_loss = voxel_loss * (1 + truth * (self.weights.view(1, -1, *(1,) * (logits.ndim - 2)) - 1))
        return _mean(voxel_loss, labelled) + self.overlap(probabilities * labelled, truth)

    def overlap(self, probabilities: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """Return 1 - Tversky index over the whole batch, averaged over the classes that occur; both (B, K, ...)."""
        axes = [0, *range(2, truth.ndim)]
        return self._tversky_loss((probabilities * truth).sum(axes), probabilities.sum(axes), truth.sum(axes))

    def _loss_by_rows(self, logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Compute the loss on (N, C) rows as they lie in memory, without a 0/1 layer for each class."""
        rows, ids = logits.movedim(1, -1).flatten(0, -2).float(), mask.long().flatten()
        if not (labelled := ids != IGNORE).all():
            rows, ids = rows[labelled], ids[labelled]
        log_probabilities = functional.log_softmax(rows, dim=1)
        true_log_probability = log_probabilities.gather(1, ids[:, None])[:, 0]
        voxel_loss = -true_log_probability if self.weights is None else -true_log_probability * self.weights[ids]
        if self.voxel == "focal":
            voxel_loss = voxel_loss * (1 - true_log_probability.exp()).square()
        true_positives = rows.new_zeros(rows.shape[1]).index_add(0, ids, true_log_probability.exp())
        predicted = log_probabilities.exp().sum(0)
        true_voxels = torch.bincount(ids, minlength=rows.shape[1]).to(rows.dtype)
        return voxel_loss.sum() / max(1, len(ids)) + self._tversky_loss(
            true_positives[1:], predicted[1:], true_voxels[1:]
        )

    def _tversky_loss(
        self, true_positives: torch.Tensor, predicted: torch.Tensor, true_voxels: torch.Tensor
    ) -> torch.Tensor:
        """Return 1 - Tversky index, averaged over the classes that occur.

        Args:
            true_positives: (K,) sum of the probabilities on true voxels. predicted: on all voxels. true_voxels: (K,) counts.
        """
        wrong = self.alpha * (predicted - true_positives) + self.beta * (true_voxels - true_positives)
        index = (true_positives + 1e-5) / (true_positives + wrong + 1e-5)
        present = (true_voxels > 0).float()
        return ((1 - index) * present).sum() / present.sum().clamp_min(1.0)


def _mean(voxel_loss: torch.Tensor, labelled: torch.Tensor) -> torch.Tensor:
    """Return the mean over the labelled voxels; no indexing by a mask, which would synchronise with a GPU."""
    return (voxel_loss * labelled).sum() / labelled.sum().clamp_min(1)


def _has_voxel_rows(logits: torch.Tensor) -> bool:
    """Return whether the logits of a voxel lie side by side (channels last) on a CPU and are many.

    Sums by rows then take a third of the time; with few classes they take longer (56 x 56 x 56 voxels, 36 and 4 channels).
    """
    return bool(logits.device.type == "cpu" and logits.shape[1] >= MIN_CHANNELS_BY_ROWS and logits.stride(1) == 1)


def build_mask_loss(plan: Mapping[str, Any]) -> MaskLoss:
    """Return the loss of plan["loss"]: {"voxel", "alpha", "beta", "weights"}, each with a default; plan["overlap"] means sigmoid."""
    settings = plan.get("loss") or {}
    return MaskLoss(
        not plan.get("overlap"),
        str(settings.get("voxel", "ce")),
        float(settings.get("alpha", 0.5)),
        float(settings.get("beta", 0.5)),
        settings.get("weights"),
    )


def deep_supervision_loss(loss: nn.Module, outputs: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    """Return the weighted mean loss of outputs from fine to coarse; each weighs half of the previous one, masks are subsampled."""
    total, weight, weight_sum = outputs[0].new_zeros((), dtype=torch.float32), 1.0, 0.0
    for output in outputs:
        total = total + weight * loss(output, _subsample_mask(mask, output.shape[2:]))
        weight_sum, weight = weight_sum + weight, weight / 2
    return total / weight_sum


def _subsample_mask(mask: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """Return (B, ...) or (B, K, ...) masks with every n-th voxel along the last axes."""
    for axis, target in zip(range(mask.ndim - len(size), mask.ndim), size, strict=True):
        length = mask.shape[axis]
        if length != target:
            positions = ((torch.arange(target, device=mask.device) + 0.5) * length / target).long()
            mask = mask.index_select(axis, positions)
    return mask
