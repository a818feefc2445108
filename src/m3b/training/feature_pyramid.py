"""Dense features from a backbone: its maps from coarse to fine, combined with plain convolutions of the input.

A top-down path as in U-Net and FPN (Ronneberger et al., MICCAI 2015; Lin et al., CVPR 2017). If the finest map of the backbone is
coarser than the result, as that of a vision transformer, plain convolutions of the input fill the levels between.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from m3b.training.pretrained.backbones import pad_to_multiple

CONV = {2: nn.Conv2d, 3: nn.Conv3d}


def conv_unit(dims: int, ins: int, outs: int, stride: Sequence[int] | int = 1) -> nn.Sequential:
    """Return convolution, group normalisation (suited to small batches) and leaky rectifier."""
    step = (stride,) * dims if isinstance(stride, int) else tuple(stride)
    groups = next(number for number in (8, 4, 2, 1) if outs % number == 0)
    return nn.Sequential(
        CONV[dims](ins, outs, 3, step, 1, bias=False), nn.GroupNorm(groups, outs), nn.LeakyReLU(0.01, inplace=True)
    )


def list_finer_steps(step: Sequence[int], first: Sequence[int]) -> list[list[int]]:
    """Return the strides from `step` up to below `first`, doubled from level to level."""
    levels, current = [], list(step)
    while any(a < b for a, b in zip(current, first, strict=True)):
        levels.append(current)
        current = [min(2 * a, b) if a < b else a for a, b in zip(current, first, strict=True)]
    return levels


class Pyramid(nn.Module):
    """`forward(x (B, C, *size)) -> (B, width, *ceil(size / step))`.

    Args:
        step: stride of the result along each axis; 1 is the resolution of the input.
        width: channels of the result; lower levels have twice as many.
    """

    def __init__(self, body: nn.Module, dims: int, channels: int, step: Sequence[int], width: int = 16) -> None:
        super().__init__()
        self.body, self.step, self.width = body, list(step), width
        used = [k for k, map_step in enumerate(body.steps) if all(a >= b for a, b in zip(map_step, step, strict=True))]
        self.used = used or [len(body.steps) - 1]
        finer = list_finer_steps(step, body.steps[self.used[0]])
        self.detail = nn.ModuleList()
        ins, before = channels, [1] * dims
        for level in finer:
            ratio = [a // b for a, b in zip(level, before, strict=True)]
            self.detail.append(conv_unit(dims, ins, width, ratio))
            ins, before = width, level
        lateral_width = 2 * width
        self.lateral = nn.ModuleList(CONV[dims](body.widths[k], lateral_width, 1) for k in self.used)
        self.joined = nn.ModuleList(conv_unit(dims, 2 * lateral_width, lateral_width) for _ in self.used[1:])
        self.last = nn.ModuleList(
            conv_unit(dims, (lateral_width if k == len(finer) - 1 else width) + width, width) for k in range(len(finer))
        )
        self.flat = nn.Identity() if finer else conv_unit(dims, lateral_width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[2:]
        x = pad_to_multiple(x, int(self.body.multiple))
        maps = self.body(x)
        laterals = [lateral(maps[k]) for lateral, k in zip(self.lateral, self.used, strict=True)]
        top = laterals.pop()
        for join in self.joined:
            fine = laterals.pop()
            top = join(torch.cat([_upsample(top, fine), fine], dim=1))
        details = []
        for part in self.detail:
            x = part(x)
            details.append(x)
        for part in reversed(self.last):
            fine = details.pop()
            top = part(torch.cat([_upsample(top, fine), fine], dim=1))
        top = self.flat(top)
        return top[(..., *(slice(0, -(-n // s)) for n, s in zip(size, self.step, strict=True)))]


def _upsample(x: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    mode = "bilinear" if reference.ndim == 4 else "trilinear"
    return functional.interpolate(x, size=reference.shape[2:], mode=mode, align_corners=False)


class Dense(nn.Module):
    """Logits at every position: (B, C, *size) to (B, outputs, *size)."""

    def __init__(self, body: nn.Module, dims: int, channels: int, outputs: int, width: int = 16) -> None:
        super().__init__()
        self.pyramid = Pyramid(body, dims, channels, [1] * dims, width)
        self.heads = nn.ModuleList([CONV[dims](width, outputs, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.heads[0](self.pyramid(x)))
