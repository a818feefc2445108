"""Distance of the predicted points to the true ones."""

from __future__ import annotations

import torch


def loss(points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean distance, as a share of the image size."""
    distance: torch.Tensor = (points - labels).norm(dim=1).mean()
    return distance
