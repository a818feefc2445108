"""Dense features from a backbone: its maps from coarse to fine, joined with what plain convolutions see of the input itself.

A top-down path as in U-Net and FPN (Ronneberger et al., MICCAI 2015; Lin et al., CVPR 2017). Where the backbone's finest map is
coarser than what is wanted, as that of a vision transformer is, the levels between are plain convolutions of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from m3b.training.pretrained.backbones import padded

CONV = {2: nn.Conv2d, 3: nn.Conv3d}


def unit(dims: int, ins: int, outs: int, stride: Sequence[int] | int = 1) -> nn.Sequential:
    """Convolution, group normalisation (small batches do no harm), leaky rectifier."""
    step = (stride,) * dims if isinstance(stride, int) else tuple(stride)
    groups = next(number for number in (8, 4, 2, 1) if outs % number == 0)
    return nn.Sequential(
        CONV[dims](ins, outs, 3, step, 1, bias=False), nn.GroupNorm(groups, outs), nn.LeakyReLU(0.01, inplace=True)
    )


def finer_levels(step: Sequence[int], first: Sequence[int]) -> list[list[int]]:
    """Steps from `step` up to below `first`, doubling where they are smaller."""
    found, now = [], list(step)
    while any(a < b for a, b in zip(now, first, strict=True)):
        found.append(now)
        now = [min(2 * a, b) if a < b else a for a, b in zip(now, first, strict=True)]
    return found


class Pyramid(nn.Module):
    """`forward(x (B, C, *size)) -> (B, width, *ceil(size / step))`.

    Args:
        step: of the result, an int an axis; 1 is the input's own resolution.
        width: of the result; levels below have twice as many.
    """

    def __init__(self, body: nn.Module, dims: int, channels: int, step: Sequence[int], width: int = 16) -> None:
        super().__init__()
        self.body, self.step, self.width = body, list(step), width
        used = [k for k, there in enumerate(body.steps) if all(a >= b for a, b in zip(there, step, strict=True))]
        self.used = used or [len(body.steps) - 1]
        finer = finer_levels(step, body.steps[self.used[0]])
        self.detail = nn.ModuleList()
        ins, before = channels, [1] * dims
        for level in finer:
            ratio = [a // b for a, b in zip(level, before, strict=True)]
            self.detail.append(unit(dims, ins, width, ratio))
            ins, before = width, level
        wide = 2 * width
        self.lateral = nn.ModuleList(CONV[dims](body.widths[k], wide, 1) for k in self.used)
        self.joined = nn.ModuleList(unit(dims, 2 * wide, wide) for _ in self.used[1:])
        self.last = nn.ModuleList(
            unit(dims, (wide if k == len(finer) - 1 else width) + width, width) for k in range(len(finer))
        )
        self.flat = nn.Identity() if finer else unit(dims, wide, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[2:]
        x = padded(x, int(self.body.multiple))
        maps = self.body(x)
        kept = [lateral(maps[k]) for lateral, k in zip(self.lateral, self.used, strict=True)]
        top = kept.pop()
        for join in self.joined:
            fine = kept.pop()
            top = join(torch.cat([_grown(top, fine), fine], dim=1))
        seen = []
        for part in self.detail:
            x = part(x)
            seen.append(x)
        for part in reversed(self.last):
            fine = seen.pop()
            top = part(torch.cat([_grown(top, fine), fine], dim=1))
        top = self.flat(top)
        return top[(..., *(slice(0, -(-n // s)) for n, s in zip(size, self.step, strict=True)))]


def _grown(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    mode = "bilinear" if like.ndim == 4 else "trilinear"
    return functional.interpolate(x, size=like.shape[2:], mode=mode, align_corners=False)


class Dense(nn.Module):
    """Logits at every position: (B, C, *size) to (B, outputs, *size)."""

    def __init__(self, body: nn.Module, dims: int, channels: int, outputs: int, width: int = 16) -> None:
        super().__init__()
        self.pyramid = Pyramid(body, dims, channels, [1] * dims, width)
        self.heads = nn.ModuleList([CONV[dims](width, outputs, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.heads[0](self.pyramid(x)))
