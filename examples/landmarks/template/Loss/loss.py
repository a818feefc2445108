"""How far the points are from where they should be."""

from __future__ import annotations

import torch


def loss(points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean distance, as a share of the picture."""
    distance: torch.Tensor = (points - labels).norm(dim=1).mean()
    return distance
