"""The losses of the two heads, level by level.

Image head: binary cross-entropy of an image's chance. Pixel head: focal loss (gamma 2) and Dice on the abnormal channel.
`paper` keeps two traits of the published code: the chance goes through a sigmoid once more (`BCEWithLogits` of a
probability), and it is the plain mean over patches.
"""

from __future__ import annotations

import torch
from torch.nn import functional

TOP = 0.1
"""Share of an image's patches whose chances make the image's: findings are small."""


def image_logit(logits: torch.Tensor, paper: bool = False) -> torch.Tensor:
    """(B,) of an image from (B, patches, 2); with `paper` the mean probability of abnormal."""
    if paper:
        return logits.softmax(dim=-1)[..., 1].mean(dim=1)
    margin = logits[..., 1] - logits[..., 0]
    most = max(1, round(TOP * margin.shape[1]))
    return 0.5 * (margin.topk(most, dim=1).values.mean(dim=1) + margin.mean(dim=1))


def image_loss(logits: torch.Tensor, abnormal: torch.Tensor, paper: bool = False) -> torch.Tensor:
    """(B, patches, 2) against (B,) 0 or 1."""
    return functional.binary_cross_entropy_with_logits(image_logit(logits, paper), abnormal.float())


def pixel_loss(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, 2, H, W) against (B, H, W) 0 or 1: focal + Dice."""
    chances = logits.softmax(dim=1)
    return focal(chances, mask) + dice(chances[:, 1], mask)


def focal(chances: torch.Tensor, mask: torch.Tensor, gamma: float = 2.0) -> torch.Tensor:
    """Mean of -(1 - p)^gamma log p of the true state's chance p (Lin et al., ICCV 2017)."""
    p = torch.where(mask > 0.5, chances[:, 1], chances[:, 0]).clamp(1e-5, 1.0)
    return (-((1 - p) ** gamma) * p.log()).mean()


def dice(chance: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """1 - (2 overlap + 1) / (sum + 1), the mean over images."""
    chance, truth = chance.flatten(1), mask.float().flatten(1)
    overlap = (chance * truth).sum(dim=1)
    return (1 - (2 * overlap + 1) / (chance.sum(dim=1) + truth.sum(dim=1) + 1)).mean()
