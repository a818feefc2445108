"""A small convolutional backbone: four stages, each half the resolution; trained on a CPU in minutes.

It is used if there is no vision-language model on the machine: trained on other images it is a backbone without text, untrained it
is the ordinary network for comparison with few-shot detectors.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

KIND = "m3b-conv"
STAGES = 4


class Stage(nn.Module):
    """Two 3-wide convolutions with a shortcut; the first one halves the image."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        groups = next(n for n in (8, 4, 2, 1) if out_channels % n == 0)
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, 2, 1, bias=False),
            nn.GroupNorm(groups, out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False),
            nn.GroupNorm(groups, out_channels),
        )
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ConvNet(nn.Module):
    """(B, 3, S, S) to (B, 8 width, S / 16, S / 16)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [3, *(width * 2**k for k in range(STAGES))]
        self.stages = nn.ModuleList(Stage(a, b) for a, b in pairwise(widths))
        self.width = widths[-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


class Classifier(nn.Module):
    """ConvNet with a linear layer over mean and maximum of its last map: (B, 3, S, S) to (B, outputs)."""

    def __init__(self, width: int, outputs: int = 1) -> None:
        super().__init__()
        self.net = ConvNet(width)
        self.head = nn.Linear(2 * self.net.width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.net(x).flatten(2)
        result: torch.Tensor = self.head(torch.cat([features.mean(dim=2), features.amax(dim=2)], dim=1))
        return result
