"""The plain or residual convolutional U-Net of nnU-Net (Isensee et al., Nature Methods 2021), in PyTorch alone.

MONAI's DynUNet computes the same; importing MONAI takes several seconds, and every process that touches a model (check,
training, each call of the delivered predict.py) would wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

SMALL = 20480
"""Product of the first four sides of one patch (channels and three of its lengths) up to which PyTorch convolves it on a
processor by `slow_conv3d` (`ConvParams::use_mkldnn` in ATen's Convolution.cpp). Two patches together take another way."""


class Conv3d(nn.Conv3d):
    """A 3D convolution that stays quick on a processor for one small patch.

    PyTorch's own way there takes 2 to 6 times as long (`benchmarks/conv3d_cost.py`) as oneDNN's 2D convolution of the same
    numbers, which is taken instead: the slices along the first axis are a batch, and each has its neighbours, where the
    kernel meets them, as further channels.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._by_slices(x) if self._slow(x) else super().forward(x)

    def _slow(self, x: torch.Tensor) -> bool:
        if torch.jit.is_tracing() or torch.compiler.is_compiling() or x.device.type != "cpu":
            return False
        plain = self.groups == 1 and set(self.dilation) == {1} and self.padding_mode == "zeros" and self.bias is None
        half = x.dtype != torch.float32 or torch.is_autocast_enabled("cpu")
        wide = 1 < max(self.kernel_size) <= 3
        return plain and wide and not half and x.shape[0] == 1 and x.shape[1:4].numel() <= SMALL

    def _by_slices(self, x: torch.Tensor) -> torch.Tensor:
        """(1, C, H, W, D) to (1, outs, H', W', D')."""
        weight, (deep, *_), (step, *steps) = self.weight, self.kernel_size, self.stride
        edge, *edges = (int(n) for n in self.padding)
        wide = functional.pad(x, (0, 0, 0, 0, edge, edge)) if edge else x
        count = (wide.shape[2] - deep) // step + 1
        near = [wide[:, :, at : at + (count - 1) * step + 1 : step] for at in range(deep)]
        slices = torch.cat(near, 1)[0].transpose(0, 1)
        flat = weight.transpose(1, 2).flatten(1, 2)
        return functional.conv2d(slices, flat, None, steps, edges).transpose(0, 1)[None]


CONV = {2: nn.Conv2d, 3: Conv3d}
UP = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
DROP = {2: nn.Dropout2d, 3: nn.Dropout3d}
SLOPE = 0.01
"""Of the leaky rectifiers, as in nnU-Net."""
NARROW = 16
"""Volumes with fewer filters in the first level are a third quicker on a processor with channels last; others are not."""


class Block(nn.Module):
    """Two convolutions, each with instance normalisation and a leaky rectifier; the first one halves.

    Args:
        residual: adds the input, by a 1-wide convolution where its shape is another one.
    """

    def __init__(
        self,
        dims: int,
        ins: int,
        outs: int,
        kernel: Sequence[int],
        stride: Sequence[int],
        dropout: float,
        residual: bool,
    ) -> None:
        super().__init__()
        pad = [side // 2 for side in kernel]
        self.conv1 = CONV[dims](ins, outs, tuple(kernel), tuple(stride), tuple(pad), bias=False)
        self.conv2 = CONV[dims](outs, outs, tuple(kernel), 1, tuple(pad), bias=False)
        self.norm1, self.norm2 = NORM[dims](outs, affine=True), NORM[dims](outs, affine=True)
        self.drop = DROP[dims](dropout) if dropout else nn.Identity()
        self.act = nn.LeakyReLU(SLOPE, inplace=True)
        self.residual = residual
        if residual and (ins != outs or any(step != 1 for step in stride)):
            self.conv3 = CONV[dims](ins, outs, 1, tuple(stride), bias=False)
            self.norm3 = NORM[dims](outs, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.act(self.norm1(self.drop(self.conv1(x))))
        out = self.norm2(self.drop(self.conv2(out)))
        if self.residual:
            out = out + (self.norm3(self.conv3(x)) if hasattr(self, "conv3") else x)
        return torch.as_tensor(self.act(out))


class Up(nn.Module):
    """Enlarges what comes from below, joins it with what was kept on the way down, and convolves both."""

    def __init__(
        self, dims: int, ins: int, outs: int, kernel: Sequence[int], stride: Sequence[int], dropout: float
    ) -> None:
        super().__init__()
        self.enlarge = UP[dims](ins, outs, tuple(stride), tuple(stride), bias=False)
        self.block = Block(dims, 2 * outs, outs, kernel, [1] * dims, dropout, residual=False)

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.block(torch.cat((self.enlarge(x), kept), 1)))


class UNet(nn.Module):
    """`forward(x (B, C, H, W[, D])) -> logits (B, outputs, H, W[, D])`; sides must be multiples of the strides' product.

    In training with deep supervision: a list of logits from fine to coarse, each at its own resolution.

    Args:
        network: filters, strides and kernels, one entry a level (odd kernels); optionally residual, dropout and
            deep_supervision.
    """

    def __init__(self, dims: int, channels: int, outputs: int, network: Mapping[str, Any]) -> None:
        super().__init__()
        strides, kernels = [list(s) for s in network["strides"]], [list(k) for k in network["kernels"]]
        widths = [int(number) for number in network["filters"]]
        widths += [widths[-1]] * (len(strides) - len(widths))  # the last one serves all deeper levels
        widths = widths[: len(strides)]
        drop, residual = float(network.get("dropout") or 0.0), bool(network.get("residual"))
        steps = zip([channels, *widths], widths, kernels, strides, strict=False)
        self.down = nn.ModuleList(Block(dims, ins, outs, k, s, drop, residual) for ins, outs, k, s in steps)
        self.up = nn.ModuleList(
            Up(dims, widths[level], widths[level - 1], kernels[level], strides[level], drop)
            for level in range(len(widths) - 1, 0, -1)
        )
        coarse = min(2, len(widths) - 2) if network.get("deep_supervision") else 0
        self.heads = nn.ModuleList(CONV[dims](widths[level], outputs, 1) for level in range(coarse + 1))
        for part in self.modules():
            if isinstance(part, nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.ConvTranspose3d):
                nn.init.kaiming_normal_(part.weight, a=SLOPE)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
        if dims == 3 and widths[0] < NARROW:
            self.to(memory_format=torch.channels_last_3d)
            self.register_state_dict_post_hook(_packed)

    def forward(self, x: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        kept: list[torch.Tensor] = []
        for block in self.down:
            kept.append(block(kept[-1] if kept else x))
        found = [kept.pop()]
        for step in self.up:
            found.append(step(found[-1], kept.pop()))
        fine: torch.Tensor = self.heads[0](found[-1])
        if not self.training or len(self.heads) == 1:
            return fine
        return [fine, *(head(features) for head, features in zip(self.heads[1:], found[-2:0:-1], strict=False))]


def _packed(_: nn.Module, state: dict[str, torch.Tensor], prefix: str, __: Any) -> None:
    """Weights are saved in the usual order: safetensors takes no other."""
    state |= {name: value.contiguous() for name, value in state.items() if name.startswith(prefix)}
