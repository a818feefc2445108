"""The residual block of the small networks, in 2D and 3D."""

from __future__ import annotations

import torch
from torch import nn

CONV = {2: nn.Conv2d, 3: nn.Conv3d}
NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class Block(nn.Module):
    """Two 3-wide convolutions with a shortcut (He et al., 2016)."""

    def __init__(self, dims: int, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        conv, norm = CONV[dims], NORM[dims]
        self.body = nn.Sequential(
            conv(inside, outside, 3, stride, 1, bias=False),
            norm(outside),
            nn.ReLU(inplace=True),
            conv(outside, outside, 3, 1, 1, bias=False),
            norm(outside),
        )
        same = stride == 1 and inside == outside
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(conv(inside, outside, 1, stride, bias=False), norm(outside))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))
