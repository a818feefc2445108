"""A compact anchor-free detector, 2D and 3D: residual stages, one top-down path, a heat map and box sides for each class.

After CenterNet (Zhou et al., 2019) and FCOS (Tian et al., ICCV 2019): peaks of the heat map are centres of boxes; each position
gives the distances to the sides of the box, separately for each class, so that boxes of different classes may share a centre. Group
normalisation, so that small batches do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.unet import Conv3d

_CONV = {2: nn.Conv2d, 3: Conv3d}
INITIAL_HEAT_LOGIT = -4.0
"""Logit of the heat map at the start: boxes are rare."""


def _norm(width: int) -> nn.Module:
    return nn.GroupNorm(next(groups for groups in (8, 4, 2, 1) if width % groups == 0), width)


class Block(nn.Module):
    """Two 3-wide convolutions with a shortcut."""

    def __init__(self, dims: int, in_channels: int, out_channels: int, stride: Sequence[int] | int = 1) -> None:
        super().__init__()
        conv = _CONV[dims]
        stride = (stride,) * dims if isinstance(stride, int) else tuple(stride)
        self.body = nn.Sequential(
            conv(in_channels, out_channels, 3, stride, 1, bias=False),
            _norm(out_channels),
            nn.ReLU(inplace=True),
            conv(out_channels, out_channels, 3, 1, 1, bias=False),
            _norm(out_channels),
        )
        is_identity = set(stride) == {1} and in_channels == out_channels
        self.shortcut = (
            nn.Identity()
            if is_identity
            else nn.Sequential(conv(in_channels, out_channels, 1, stride, bias=False), _norm(out_channels))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Detector(nn.Module):
    """(B, C, *size) to (B, K + 2 d K, *cells): heat logits first, then log distances to lower and upper sides.

    `strides` lists one stride per stage, an int for each axis, so that thick slices are halved less often. The output has the
    resolution after the first `out_stage` stages; distances are in units of a cell.
    """

    def __init__(
        self, dims: int, channels: int, classes: int, width: int, strides: Sequence[Sequence[int]], out_stage: int
    ) -> None:
        super().__init__()
        conv = _CONV[dims]
        self.dims, self.classes, self.out_stage = dims, classes, out_stage
        self.cell = [int(torch.tensor([step[axis] for step in strides[:out_stage]]).prod()) for axis in range(dims)]
        self.reduction = [int(torch.tensor([step[axis] for step in strides]).prod()) for axis in range(dims)]
        widths = [min(width * 2**level, 16 * width, 256) for level in range(len(strides))]
        first = tuple(strides[0])
        self.stem = nn.Sequential(
            conv(channels, widths[0], 5 if dims == 2 else 3, first, 2 if dims == 2 else 1, bias=False),
            _norm(widths[0]),
            nn.ReLU(inplace=True),
        )
        self.stages = nn.ModuleList(
            nn.Sequential(Block(dims, widths[k - 1], widths[k], strides[k]), Block(dims, widths[k], widths[k]))
            for k in range(1, len(strides))
        )
        neck = max(32, 2 * width)
        self.lateral = nn.ModuleList(conv(widths[k], neck, 1) for k in range(out_stage - 1, len(strides)))
        self.smooth = nn.Sequential(conv(neck, neck, 3, 1, 1, bias=False), _norm(neck), nn.ReLU(inplace=True))
        self.tower = nn.Sequential(conv(neck, neck, 3, 1, 1, bias=False), _norm(neck), nn.ReLU(inplace=True))
        self.heat = conv(neck, classes, 1)
        self.sides = conv(neck, 2 * dims * classes, 1)
        nn.init.constant_(self.heat.bias, INITIAL_HEAT_LOGIT)
        nn.init.normal_(self.heat.weight, std=0.01)
        nn.init.normal_(self.sides.weight, std=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[2:]
        padding = [(-n) % r for n, r in zip(size, self.reduction, strict=True)]
        if any(padding):
            x = functional.pad(x, [width for extra in reversed(padding) for width in (0, extra)], mode="replicate")
        x = self.stem(x)
        maps = [x]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        maps = maps[self.out_stage - 1 :]
        top = self.lateral[-1](maps[-1])
        for lateral, finer in zip(list(self.lateral)[-2::-1], maps[-2::-1], strict=True):
            top = functional.interpolate(top, size=finer.shape[2:], mode="nearest") + lateral(finer)
        top = self.tower(self.smooth(top))
        cells = [-(-n // c) for n, c in zip(size, self.cell, strict=True)]
        result = torch.cat([self.heat(top), self.sides(top)], dim=1)
        return result[(..., *(slice(0, n) for n in cells))]


def build_detector(plan: Mapping[str, Any]) -> Detector:
    """Return the detector of plan.json's `network`: {"name": "centers", "width", "strides", "out_stage"}."""
    network = plan["network"]
    return Detector(
        int(plan["dims"]),
        int(plan["channels"]),
        len(plan["classes"]),
        int(network["width"]),
        [list(step) for step in network["strides"]],
        int(network["out_stage"]),
    )


def cell_centres(cells: Sequence[int], cell: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """Return (d, *cells) coordinates of the centre of every cell, in input pixels."""
    axes = [(torch.arange(n, device=device) + 0.5) * step for n, step in zip(cells, cell, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def decode_distances(sides: torch.Tensor, cell: Sequence[int]) -> torch.Tensor:
    """Convert (..., 2 d, *cells) raw output to pixels: never negative, and bounded so that large outputs stay finite."""
    d = len(cell)
    unit = torch.tensor([*cell, *cell], dtype=sides.dtype, device=sides.device).view(2 * d, *(1,) * d)
    return torch.exp(sides.clamp(-6, 7)) * unit


@torch.no_grad()
def decode(
    output: torch.Tensor, classes: int, cell: Sequence[int], max_boxes: int = 200, min_score: float = 0.01
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return (boxes (N, 2 d) in input pixels, scores, labels) for each image: the peaks of the heat maps, highest score first."""
    d = len(cell)
    heat, cells = output[:, :classes].float().sigmoid(), output.shape[2:]
    pool = functional.max_pool2d if d == 2 else functional.max_pool3d
    peak = torch.where(pool(heat, 3, 1, 1) == heat, heat, torch.zeros_like(heat))
    sides = output[:, classes:].float().reshape(len(output), classes, 2 * d, *cells)
    centres = cell_centres(cells, cell, output.device).flatten(1)
    result = []
    for image, side in zip(peak.flatten(1), sides, strict=True):
        scores, flat_index = image.topk(min(max_boxes, len(image)))
        flat_index, scores = flat_index[scores >= min_score], scores[scores >= min_score]
        labels, position = flat_index // centres.shape[1], flat_index % centres.shape[1]
        distances = _distances_at(side, labels, position, cell)
        centre = centres[:, position].T
        boxes = torch.cat([centre - distances[:, :d], centre + distances[:, d:]], dim=1)
        result.append((boxes, scores, labels))
    return result


def _distances_at(
    side: torch.Tensor, labels: torch.Tensor, position: torch.Tensor, cell: Sequence[int]
) -> torch.Tensor:
    """Return (N, 2 d) distances in pixels at the given classes and cells of one image's (K, 2 d, *cells)."""
    raw = side.flatten(2)[labels, :, position]
    unit = torch.tensor([*cell, *cell], dtype=raw.dtype, device=raw.device)
    return torch.exp(raw.clamp(-6, 7)) * unit
