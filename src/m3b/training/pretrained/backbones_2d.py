"""ResNet, DenseNet and ViT with the tensor names of torchvision, timm, torchxrayvision and open_clip.

Implemented here, so that neither training nor deliverables need those packages. Each can be built in 3D too: 2D kernels are then
inflated (`tensors.adapt_tensor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

CONV = {2: nn.Conv2d, 3: nn.Conv3d}
NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOL = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
AVERAGE_POOL = {2: nn.AvgPool2d, 3: nn.AvgPool3d}


class ResidualBlock(nn.Module):
    """Block of ResNet (He et al., CVPR 2016): two convolutions of 3, or 1-3-1 (`bottleneck`, four times as wide)."""

    def __init__(self, dims: int, in_channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        conv, norm = CONV[dims], NORM[dims]
        out_channels = width * (4 if bottleneck else 1)
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        widths = [in_channels, *([width] * (len(kernels) - 1)), out_channels]
        for k, kernel in enumerate(kernels):
            step = stride if k == (1 if bottleneck else 0) else 1
            self.add_module(f"conv{k + 1}", conv(widths[k], widths[k + 1], kernel, step, kernel // 2, bias=False))
            self.add_module(f"bn{k + 1}", norm(widths[k + 1]))
        self.count = len(kernels)
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(conv(in_channels, out_channels, 1, stride, bias=False), norm(out_channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for k in range(1, self.count + 1):
            y = self.get_submodule(f"bn{k}")(self.get_submodule(f"conv{k}")(y))
            y = torch.relu(y) if k < self.count else y
        return torch.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class ResNet(nn.Module):
    """`arch`: {"block": basic or bottleneck, "depths": [2, 2, 2, 2], "width": 64}, and `kernel` and `stride` of the first
    convolution if they are not 7 and 2 along each axis."""

    multiple = 32

    def __init__(self, dims: int, channels: int, arch: Mapping[str, Any]) -> None:
        super().__init__()
        width, is_bottleneck = int(arch["width"]), arch["block"] == "bottleneck"
        kernel = [int(side) for side in arch.get("kernel") or [7] * dims]
        stride = [int(step) for step in arch.get("stride") or [2] * dims]
        self.conv1 = CONV[dims](channels, width, kernel, stride, [side // 2 for side in kernel], bias=False)
        self.bn1 = NORM[dims](width)
        self.maxpool = POOL[dims](3, 2, 1)
        in_channels, self.widths = width, [width]
        for stage, depth in enumerate(arch["depths"]):
            width_of_stage = width * 2**stage
            blocks = []
            for k in range(int(depth)):
                blocks.append(
                    ResidualBlock(dims, in_channels, width_of_stage, 2 if k == 0 and stage else 1, is_bottleneck)
                )
                in_channels = width_of_stage * (4 if is_bottleneck else 1)
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
            self.widths.append(in_channels)
        self.steps = [[step * 2**level for step in stride] for level in range(len(self.widths))]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        maps = [torch.relu(self.bn1(self.conv1(x)))]
        x = self.maxpool(maps[0])
        for stage in range(1, len(self.widths)):
            x = self.get_submodule(f"layer{stage}")(x)
            maps.append(x)
        return maps


class _DenseLayer(nn.Module):
    """Layer of DenseNet (Huang et al., CVPR 2017): its output is concatenated to its input."""

    def __init__(self, dims: int, in_channels: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = NORM[dims](in_channels), CONV[dims](in_channels, 4 * growth, 1, bias=False)
        self.norm2 = NORM[dims](4 * growth)
        self.conv2 = CONV[dims](4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv1(torch.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(torch.relu(self.norm2(y)))], dim=1)


class DenseNet(nn.Module):
    """`arch`: {"growth": 32, "blocks": [6, 12, 24, 16], "stem": 64}."""

    multiple = 32

    def __init__(self, dims: int, channels: int, arch: Mapping[str, Any]) -> None:
        super().__init__()
        growth, width = int(arch["growth"]), int(arch["stem"])
        parts = nn.ModuleDict({"conv0": CONV[dims](channels, width, 7, 2, 3, bias=False), "norm0": NORM[dims](width)})
        self.widths, self.count = [width], len(arch["blocks"])
        for stage, layers in enumerate(arch["blocks"], 1):
            block = nn.ModuleDict(
                {f"denselayer{k + 1}": _DenseLayer(dims, width + k * growth, growth) for k in range(layers)}
            )
            parts[f"denseblock{stage}"] = block
            width += int(layers) * growth
            self.widths.append(width)
            if stage < self.count:
                transition = {"norm": NORM[dims](width), "conv": CONV[dims](width, width // 2, 1, bias=False)}
                parts[f"transition{stage}"] = nn.ModuleDict(transition)
                width //= 2
        parts["norm5"] = NORM[dims](width)
        self.features = parts
        self.pools = nn.ModuleList([POOL[dims](3, 2, 1), AVERAGE_POOL[dims](2)])
        self.steps = [[2 ** (level + 1)] * dims for level in range(len(self.widths))]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts = self.features
        maps = [torch.relu(parts["norm0"](parts["conv0"](x)))]
        x = self.pools[0](maps[0])
        for stage in range(1, self.count + 1):
            for layer in parts[f"denseblock{stage}"].values():
                x = layer(x)
            maps.append(x)
            if stage < self.count:
                transition = parts[f"transition{stage}"]
                x = self.pools[1](transition["conv"](torch.relu(transition["norm"](x))))
        maps[-1] = torch.relu(parts["norm5"](maps[-1]))
        return maps


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        return torch.as_tensor(self.proj(y.transpose(1, 2).reshape(b, n, width)))


class _TransformerLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = _Attention(width, heads)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + torch.as_tensor(self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm2(x)))))


def resize_positions(embeddings: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """Return position embeddings (1, C, H, W) interpolated to a grid: products with constants, which ONNX graphs can contain."""
    rows, columns = (
        torch.from_numpy(_interpolation_matrix(int(side), int(target))).to(embeddings)
        for side, target in zip(embeddings.shape[2:], grid, strict=True)
    )
    with torch.autocast(embeddings.device.type, enabled=False):
        return rows @ embeddings @ columns.T


@lru_cache
def _interpolation_matrix(side: int, target: int) -> np.ndarray:
    """Return (target, side) weights of bicubic interpolation."""
    image = torch.eye(side)[None, None]
    return np.asarray(functional.interpolate(image, size=(target, side), mode="bicubic", antialias=True)[0, 0].numpy())


class ViT(nn.Module):
    """Vision transformer with timm's names (Dosovitskiy et al., ICLR 2021); position embeddings are interpolated to other sizes.

    `arch`: {"width": 768, "depth": 12, "heads": 12, "patch": 16, "size": 224}. In volumes, every slice has the embeddings of an image.
    """

    def __init__(self, dims: int, channels: int, arch: Mapping[str, Any]) -> None:
        super().__init__()
        width, self.multiple = int(arch["width"]), int(arch["patch"])
        self.side = int(arch["size"]) // self.multiple
        proj = CONV[dims](channels, width, self.multiple, self.multiple)
        self.patch_embed = nn.ModuleDict({"proj": proj})
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + self.side**2, width) * 0.02)
        self.blocks = nn.ModuleList(_TransformerLayer(width, int(arch["heads"])) for _ in range(int(arch["depth"])))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.widths, self.steps = [width], [[self.multiple] * dims]

    def _places(self, grid: torch.Size) -> torch.Tensor:
        embeddings = self.pos_embed[:, 1:].transpose(1, 2).unflatten(2, (self.side, self.side))
        if tuple(grid[:2]) != (self.side, self.side):
            embeddings = resize_positions(embeddings, grid[:2])
        return embeddings if len(grid) == 2 else embeddings[..., None].expand(*embeddings.shape, grid[2])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        maps = self.patch_embed["proj"](x)
        tokens = (maps + self._places(maps.shape[2:])).flatten(2).transpose(1, 2)
        class_token = (self.cls_token + self.pos_embed[:, :1]).expand(
            x.shape[0], -1, -1
        )  # exported graphs accept any batch size
        tokens = torch.cat([class_token, tokens], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        return [self.norm(tokens)[:, 1:].transpose(1, 2).reshape(maps.shape)]
