"""Where views, and image and covariates, come together: the last layers of a network that is given several."""

from __future__ import annotations

import torch
from torch import nn

FEATURES, HIDDEN = 32, 32
QUICKER = 10.0
"""How many times the rate of the covariates' own layer is that of the rest: their inputs are few, and it starts at nothing."""


class Mix(nn.Module):
    """Logits of the image alone, plus those of the covariates alone, plus what both say together.

    `forward(image (B, outputs + FEATURES), covariates (B, width)) -> (B, outputs)`.
    """

    def __init__(self, outputs: int, width: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.direct = nn.Linear(width, outputs)
        self.both = nn.Sequential(nn.Linear(FEATURES + width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))
        nn.init.zeros_(self.direct.weight)
        nn.init.zeros_(self.direct.bias)

    def forward(self, image: torch.Tensor, covariates: torch.Tensor) -> torch.Tensor:
        covariates = covariates.to(image.dtype)
        logits, features = image[:, : self.outputs], image[:, self.outputs :]
        together = torch.cat([features.relu(), covariates], dim=1)
        return torch.as_tensor(logits + self.direct(covariates) + self.both(together))


def pooled(outputs: torch.Tensor, views: torch.Tensor) -> torch.Tensor:
    """(B, V, K + 1) outputs of each view and (B, V), 1 where it is there, to (B, K): their mean, weighted by what the last output of
    each says of how much it tells (attention pooling; Ilse et al., 2018)."""
    weight = outputs[..., -1].masked_fill(views < 0.5, -1e4).softmax(dim=1)
    return (weight.unsqueeze(-1) * outputs[..., :-1]).sum(dim=1)
