"""A small convolutional network whose heat map gives the point by its centre of mass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


class Network(nn.Module):
    """(N, 1, H, W) pixels -> (N, 2) points as shares of width and height, `logits`; with `labels` also the `loss`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 8, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 1, 5, padding=2),
        )

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        heat = self.layers(pixel_values)[:, 0]
        weight = torch.softmax(heat.flatten(1), dim=1).view_as(heat)
        height, width = heat.shape[1:]
        x = (weight.sum(dim=1) * (torch.arange(width, device=heat.device) + 0.5)).sum(dim=1) / width
        y = (weight.sum(dim=2) * (torch.arange(height, device=heat.device) + 0.5)).sum(dim=1) / height
        points = torch.stack([x, y], dim=1)
        if labels is None:
            return {"logits": points}
        from Loss.loss import loss

        return {"logits": points, "loss": loss(points, labels)}


def build_model(plan: Mapping[str, Any]) -> nn.Module:
    """Build the network of a plan."""
    return Network()
