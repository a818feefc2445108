"""Loss of reports: tokens (label-smoothed), findings (balanced), and optionally the match of image and report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Pair = tuple[torch.Tensor, torch.Tensor]


class ReportLoss(nn.Module):
    """`parts` to {"loss", "text_loss"?, "findings_loss"?}; weights are plan.json's `findings_weight` and `contrastive`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.smoothing = float(plan["label_smoothing"])
        self.findings_weight, self.match_weight = float(plan["findings_weight"]), float(plan.get("contrastive") or 0.0)
        shares = torch.tensor([float(v) for v in plan["shares"]])
        # the square root: rare findings weigh more, and probabilities stay near the true ones
        self.register_buffer("weight", ((1 - shares) / shares.clamp_min(0.01)).clamp(0.1, 10) ** 0.5, persistent=False)

    def forward(self, parts: Mapping[str, Pair]) -> dict[str, torch.Tensor]:
        losses: dict[str, torch.Tensor] = {}
        if "findings" in parts:
            logits, truth = parts["findings"]
            losses["findings_loss"] = logits.sum() * 0.0
            if logits.shape[1]:
                losses["findings_loss"] = functional.binary_cross_entropy_with_logits(
                    logits.float(), truth, pos_weight=self.weight
                )
        if "text" not in parts:
            return {"loss": losses["findings_loss"]}
        logits_of_text, targets = parts["text"]
        smoothing = self.smoothing if self.training else 0.0
        text = functional.cross_entropy(
            logits_of_text.float().flatten(0, 1), targets.flatten(), label_smoothing=smoothing
        )
        loss = text + self.findings_weight * losses.get("findings_loss", torch.zeros_like(text))
        if "match" in parts and self.match_weight:
            loss = loss + self.match_weight * match_loss(*parts["match"])
        return {"loss": loss, "text_loss": text.detach(), **{key: value.detach() for key, value in losses.items()}}


def match_loss(images: torch.Tensor, reports: torch.Tensor, temperature: float = 0.1) -> torch.Tensor:
    """Return the contrastive loss (Radford et al., 2021) between the images and reports of a batch."""
    images, reports = functional.normalize(images.float(), dim=1), functional.normalize(reports.float(), dim=1)
    similarity = images @ reports.T / temperature
    indices = torch.arange(len(similarity), device=similarity.device)
    return (functional.cross_entropy(similarity, indices) + functional.cross_entropy(similarity.T, indices)) / 2
