"""What is minimised: words (label-smoothed), findings (balanced), and optionally the match of image and report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Pair = tuple[torch.Tensor, torch.Tensor]


class ReportLoss(nn.Module):
    """`parts` to {"loss", "text_loss"?, "findings_loss"?}; weights are plan.json's `findings_weight`, `contrastive`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.smoothing = float(plan["label_smoothing"])
        self.findings_weight, self.match_weight = float(plan["findings_weight"]), float(plan.get("contrastive") or 0.0)
        shares = torch.tensor([float(v) for v in plan["shares"]])
        # the square root: rare findings count for more, and probabilities stay near the truth
        self.register_buffer("weight", ((1 - shares) / shares.clamp_min(0.01)).clamp(0.1, 10) ** 0.5, persistent=False)

    def forward(self, parts: Mapping[str, Pair]) -> dict[str, torch.Tensor]:
        told: dict[str, torch.Tensor] = {}
        if "findings" in parts:
            logits, truth = parts["findings"]
            told["findings_loss"] = logits.sum() * 0.0
            if logits.shape[1]:
                told["findings_loss"] = functional.binary_cross_entropy_with_logits(
                    logits.float(), truth, pos_weight=self.weight
                )
        if "text" not in parts:
            return {"loss": told["findings_loss"]}
        said, targets = parts["text"]
        smoothing = self.smoothing if self.training else 0.0
        text = functional.cross_entropy(said.float().flatten(0, 1), targets.flatten(), label_smoothing=smoothing)
        loss = text + self.findings_weight * told.get("findings_loss", torch.zeros_like(text))
        if "match" in parts and self.match_weight:
            loss = loss + self.match_weight * match_loss(*parts["match"])
        return {"loss": loss, "text_loss": text.detach(), **{key: value.detach() for key, value in told.items()}}


def match_loss(images: torch.Tensor, reports: torch.Tensor, temperature: float = 0.1) -> torch.Tensor:
    """Contrastive (Radford et al., 2021): each image is to find its own report among those of the batch, and back."""
    images, reports = functional.normalize(images.float(), dim=1), functional.normalize(reports.float(), dim=1)
    table = images @ reports.T / temperature
    own = torch.arange(len(table), device=table.device)
    return (functional.cross_entropy(table, own) + functional.cross_entropy(table.T, own)) / 2
