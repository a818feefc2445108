"""Encoders of 3D segmentation networks: nnU-Net's plain stages, STU-Net's residual ones, the Swin transformer of SwinUNETR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.starts import StartError

CONV = {2: nn.Conv2d, 3: nn.Conv3d}
NORM = {2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
SLOPE = 0.01
"""Of nnU-Net's and STU-Net's leaky rectifiers."""


class _Plain(nn.Module):
    """nnU-Net's unit (Isensee et al., Nature Methods 2021): convolution, instance normalisation, leaky rectifier."""

    def __init__(self, dims: int, ins: int, outs: int, kernel: list[int], stride: list[int]) -> None:
        super().__init__()
        self.conv = CONV[dims](ins, outs, tuple(kernel), tuple(stride), tuple(k // 2 for k in kernel))
        self.norm = NORM[dims](outs, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(self.norm(self.conv(x)), SLOPE)


class _Joined(nn.Module):
    """STU-Net's block: two units with a shortcut, which is a convolution where the form changes."""

    def __init__(self, dims: int, ins: int, outs: int, kernel: list[int], stride: list[int], first: bool) -> None:
        super().__init__()
        pad = tuple(k // 2 for k in kernel)
        self.conv1 = CONV[dims](ins, outs, tuple(kernel), tuple(stride), pad)
        self.conv2 = CONV[dims](outs, outs, tuple(kernel), 1, pad)
        self.norm1, self.norm2 = NORM[dims](outs, affine=True), NORM[dims](outs, affine=True)
        if first:
            self.conv3 = CONV[dims](ins, outs, 1, tuple(stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.leaky_relu(self.norm1(self.conv1(x)), SLOPE)
        y = self.norm2(self.conv2(y))
        return nn.functional.leaky_relu(y + (self.conv3(x) if hasattr(self, "conv3") else x), SLOPE)


class Stages(nn.Module):
    """The way down of a U-Net.

    `arch`: {"filters": [32, 64, ...], "depths": [2, 2, ...]} and, where they are not 2 and 3, {"strides": [[1, 1, 1], ...],
    "kernels": [[3, 3, 3], ...]}, one entry a stage; the first stage does not make the volume smaller.
    """

    def __init__(self, dims: int, channels: int, arch: Mapping[str, Any], residual: bool) -> None:
        super().__init__()
        if not arch.get("filters"):
            raise StartError(
                "the folder says nothing of the network's sizes: plans.json or m3b-start.json is missing there"
            )
        self.widths = [int(n) for n in arch["filters"]]
        count = len(self.widths)
        strides = arch.get("strides") or [[1] * dims, *[[2] * dims] * (count - 1)]
        kernels = arch.get("kernels") or [[3] * dims] * count
        ins, stages, total = channels, [], [1] * dims
        self.steps: list[list[int]] = []
        for outs, depth, stride, kernel in zip(self.widths, arch["depths"], strides, kernels, strict=True):
            units: list[nn.Module] = []
            for k in range(int(depth)):
                step = list(stride) if k == 0 else [1] * dims
                made = (dims, ins if k == 0 else outs, outs, list(kernel), step)
                units.append(_Joined(*made, first=k == 0) if residual else _Plain(*made))
            stages.append(nn.Sequential(*units))
            ins, total = outs, [a * b for a, b in zip(total, stride, strict=True)]
            self.steps.append(total)
        self.stages = nn.ModuleList(stages)
        self.multiple = max(total)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class SwinBackbone(nn.Module):
    """The Swin transformer of MONAI's SwinUNETR (Tang et al., CVPR 2022).

    `arch`: {"width": 48, "depths": [2, 2, 2, 2], "heads": [3, 6, 12, 24], "window": 7}.
    """

    multiple = 32

    def __init__(self, channels: int, arch: Mapping[str, Any]) -> None:
        super().__init__()
        try:
            from monai.networks.nets.swin_unetr import SwinTransformer
        except ImportError as error:
            raise StartError("swinunetr needs the package monai: pip install monai") from error
        width = int(arch["width"])
        made = SwinTransformer(
            in_chans=channels, embed_dim=width, window_size=[int(arch["window"])] * 3, patch_size=[2, 2, 2],
            depths=list(arch["depths"]), num_heads=list(arch["heads"]), spatial_dims=3,
        )  # fmt: skip
        for name, part in made.named_children():  # under its own names, as in the files
            self.add_module(name, part)
        self._forward = made.forward
        self.widths = [width * 2**level for level in range(5)]
        self.steps = [[2 ** (level + 1)] * 3 for level in range(5)]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return list(self._forward(x, True))
