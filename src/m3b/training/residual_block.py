"""Residual block of the small networks, in 2D and 3D."""

from __future__ import annotations

import torch
from torch import nn

CONV = {2: nn.Conv2d, 3: nn.Conv3d}
NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class ResidualBlock(nn.Module):
    """Two 3-wide convolutions with a shortcut (He et al., 2016)."""

    def __init__(self, dims: int, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        conv, norm = CONV[dims], NORM[dims]
        self.body = nn.Sequential(
            conv(in_channels, out_channels, 3, stride, 1, bias=False),
            norm(out_channels),
            nn.ReLU(inplace=True),
            conv(out_channels, out_channels, 3, 1, 1, bias=False),
            norm(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(conv(in_channels, out_channels, 1, stride, bias=False), norm(out_channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))
