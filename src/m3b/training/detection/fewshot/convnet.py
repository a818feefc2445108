"""A small convolutional backbone: four stages, each half as fine as the one before; made on a processor in minutes.

It serves where no vision-language model lies on the machine: trained on other images (`Fewshot/pretrain.py`) it is a
backbone without text, untrained it is the ordinary network that few-shot detectors are compared with.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

KIND = "m3b-conv"
STAGES = 4


class Stage(nn.Module):
    """Two 3-wide convolutions with a shortcut; the first halves the image."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        groups = next(n for n in (8, 4, 2, 1) if outside % n == 0)
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, 2, 1, bias=False),
            nn.GroupNorm(groups, outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.GroupNorm(groups, outside),
        )
        self.shortcut = nn.Conv2d(inside, outside, 1, 2, bias=False)

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
    """The network with a linear layer over the mean and the maximum of its last map: (B, 3, S, S) to (B, outputs)."""

    def __init__(self, width: int, outputs: int = 1) -> None:
        super().__init__()
        self.net = ConvNet(width)
        self.head = nn.Linear(2 * self.net.width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.net(x).flatten(2)
        result: torch.Tensor = self.head(torch.cat([found.mean(dim=2), found.amax(dim=2)], dim=1))
        return result
