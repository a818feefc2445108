"""Encoders of 3D segmentation networks: plain stages of nnU-Net, residual stages of STU-Net, Swin transformer of SwinUNETR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.weight_files import StartError

CONV = {2: nn.Conv2d, 3: nn.Conv3d}
NORM = {2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
SLOPE = 0.01
"""Negative slope of the leaky rectifiers of nnU-Net and STU-Net."""


class _PlainUnit(nn.Module):
    """Unit of nnU-Net (Isensee et al., Nature Methods 2021): convolution, instance normalisation, leaky rectifier."""

    def __init__(self, dims: int, in_channels: int, out_channels: int, kernel: list[int], stride: list[int]) -> None:
        super().__init__()
        self.conv = CONV[dims](in_channels, out_channels, tuple(kernel), tuple(stride), tuple(k // 2 for k in kernel))
        self.norm = NORM[dims](out_channels, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(self.norm(self.conv(x)), SLOPE)


class _ResidualUnit(nn.Module):
    """Block of STU-Net: two units with a shortcut, which is a convolution if the shape changes."""

    def __init__(
        self, dims: int, in_channels: int, out_channels: int, kernel: list[int], stride: list[int], has_projection: bool
    ) -> None:
        super().__init__()
        pad = tuple(k // 2 for k in kernel)
        self.conv1 = CONV[dims](in_channels, out_channels, tuple(kernel), tuple(stride), pad)
        self.conv2 = CONV[dims](out_channels, out_channels, tuple(kernel), 1, pad)
        self.norm1, self.norm2 = NORM[dims](out_channels, affine=True), NORM[dims](out_channels, affine=True)
        if has_projection:
            self.conv3 = CONV[dims](in_channels, out_channels, 1, tuple(stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.leaky_relu(self.norm1(self.conv1(x)), SLOPE)
        y = self.norm2(self.conv2(y))
        return nn.functional.leaky_relu(y + (self.conv3(x) if hasattr(self, "conv3") else x), SLOPE)


class Stages(nn.Module):
    """Encoder of a U-Net.

    `arch`: {"filters": [32, 64, ...], "depths": [2, 2, ...]} and, if they are not 2 and 3, {"strides": [[1, 1, 1], ...],
    "kernels": [[3, 3, 3], ...]}, one entry a stage; the first stage has stride 1.
    """

    def __init__(self, dims: int, channels: int, arch: Mapping[str, Any], residual: bool) -> None:
        super().__init__()
        if not arch.get("filters"):
            raise StartError(
                "the folder does not state the sizes of the network: plans.json or m3b-start.json is missing"
            )
        self.widths = [int(n) for n in arch["filters"]]
        count = len(self.widths)
        strides = arch.get("strides") or [[1] * dims, *[[2] * dims] * (count - 1)]
        kernels = arch.get("kernels") or [[3] * dims] * count
        in_channels, stages, total_stride = channels, [], [1] * dims
        self.steps: list[list[int]] = []
        for out_channels, depth, stride, kernel in zip(self.widths, arch["depths"], strides, kernels, strict=True):
            units: list[nn.Module] = []
            for k in range(int(depth)):
                step = list(stride) if k == 0 else [1] * dims
                arguments = (dims, in_channels if k == 0 else out_channels, out_channels, list(kernel), step)
                units.append(_ResidualUnit(*arguments, has_projection=k == 0) if residual else _PlainUnit(*arguments))
            stages.append(nn.Sequential(*units))
            in_channels, total_stride = out_channels, [a * b for a, b in zip(total_stride, stride, strict=True)]
            self.steps.append(total_stride)
        self.stages = nn.ModuleList(stages)
        self.multiple = max(total_stride)

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
        swin = SwinTransformer(
            in_chans=channels, embed_dim=width, window_size=[int(arch["window"])] * 3, patch_size=[2, 2, 2],
            depths=list(arch["depths"]), num_heads=list(arch["heads"]), spatial_dims=3,
        )  # fmt: skip
        for name, part in swin.named_children():  # under their own names, as in the files
            self.add_module(name, part)
        self._forward = swin.forward
        self.widths = [width * 2**level for level in range(5)]
        self.steps = [[2 ** (level + 1)] * 3 for level in range(5)]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return list(self._forward(x, True))
