"""The plain or residual convolutional U-Net of nnU-Net (Isensee et al., Nature Methods 2021), in PyTorch alone.

MONAI's DynUNet computes the same, but importing MONAI takes several seconds in each process that builds a model (check, training, each
call of the delivered predict.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

MAX_SLOW_CONV_SIZE = 20480
"""Product of the first four sides of one patch (channels and three lengths) up to which PyTorch convolves it on a CPU with
`slow_conv3d` (`ConvParams::use_mkldnn` in ATen's Convolution.cpp); batches of two or more patches are not concerned.
"""


class Conv3d(nn.Conv3d):
    """A 3D convolution that is fast on a CPU for one small patch.

    PyTorch's own path takes 2 to 6 times as long (`benchmarks/conv3d_cost.py`) as oneDNN's 2D convolution of the same numbers,
    which is used instead: the slices along the first axis are the batch, and the neighbouring slices under the kernel are
    additional channels.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._convolve_slices(x) if self._is_slow(x) else super().forward(x)

    def _is_slow(self, x: torch.Tensor) -> bool:
        if torch.jit.is_tracing() or torch.compiler.is_compiling() or x.device.type != "cpu":
            return False
        is_plain = self.groups == 1 and set(self.dilation) == {1} and self.padding_mode == "zeros" and self.bias is None
        is_half_precision = x.dtype != torch.float32 or torch.is_autocast_enabled("cpu")
        has_wide_kernel = 1 < max(self.kernel_size) <= 3
        is_small = x.shape[0] == 1 and x.shape[1:4].numel() <= MAX_SLOW_CONV_SIZE
        return is_plain and has_wide_kernel and not is_half_precision and is_small

    def _convolve_slices(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve (1, C, H, W, D) to (1, out_channels, H', W', D')."""
        weight, (depth, *_), (stride, *slice_strides) = self.weight, self.kernel_size, self.stride
        padding, *slice_paddings = (int(n) for n in self.padding)
        padded = functional.pad(x, (0, 0, 0, 0, padding, padding)) if padding else x
        count = (padded.shape[2] - depth) // stride + 1
        neighbours = [padded[:, :, offset : offset + (count - 1) * stride + 1 : stride] for offset in range(depth)]
        slices = torch.cat(neighbours, 1)[0].transpose(0, 1)
        kernel = weight.transpose(1, 2).flatten(1, 2)
        return functional.conv2d(slices, kernel, None, slice_strides, slice_paddings).transpose(0, 1)[None]


CONV = {2: nn.Conv2d, 3: Conv3d}
TRANSPOSED_CONV = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
DROPOUT = {2: nn.Dropout2d, 3: nn.Dropout3d}
LEAKY_SLOPE = 0.01
"""Negative slope of the leaky rectifiers, as in nnU-Net."""
MIN_FILTERS_CHANNELS_FIRST = 16
"""Volumes with fewer filters in the first level are a third faster on a CPU with channels last; wider ones are not."""


class Block(nn.Module):
    """Two convolutions, each with instance normalisation and a leaky rectifier; the first one has the stride.

    Args:
        residual: adds the input, through a 1-wide convolution if its shape differs.
    """

    def __init__(
        self,
        dims: int,
        in_channels: int,
        out_channels: int,
        kernel: Sequence[int],
        stride: Sequence[int],
        dropout: float,
        residual: bool,
    ) -> None:
        super().__init__()
        padding = [side // 2 for side in kernel]
        self.conv1 = CONV[dims](in_channels, out_channels, tuple(kernel), tuple(stride), tuple(padding), bias=False)
        self.conv2 = CONV[dims](out_channels, out_channels, tuple(kernel), 1, tuple(padding), bias=False)
        self.norm1, self.norm2 = NORM[dims](out_channels, affine=True), NORM[dims](out_channels, affine=True)
        self.drop = DROPOUT[dims](dropout) if dropout else nn.Identity()
        self.act = nn.LeakyReLU(LEAKY_SLOPE, inplace=True)
        self.residual = residual
        if residual and (in_channels != out_channels or any(step != 1 for step in stride)):
            self.conv3 = CONV[dims](in_channels, out_channels, 1, tuple(stride), bias=False)
            self.norm3 = NORM[dims](out_channels, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.act(self.norm1(self.drop(self.conv1(x))))
        out = self.norm2(self.drop(self.conv2(out)))
        if self.residual:
            out = out + (self.norm3(self.conv3(x)) if hasattr(self, "conv3") else x)
        return torch.as_tensor(self.act(out))


class UpBlock(nn.Module):
    """Upsample the coarser features, concatenate the skip connection, and convolve both."""

    def __init__(
        self,
        dims: int,
        in_channels: int,
        out_channels: int,
        kernel: Sequence[int],
        stride: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.enlarge = TRANSPOSED_CONV[dims](in_channels, out_channels, tuple(stride), tuple(stride), bias=False)
        self.block = Block(dims, 2 * out_channels, out_channels, kernel, [1] * dims, dropout, residual=False)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.block(torch.cat((self.enlarge(x), skip), 1)))


class UNet(nn.Module):
    """`forward(x (B, C, H, W[, D])) -> logits (B, outputs, H, W[, D])`; sides must be multiples of the strides' product.

    In training with deep supervision: a list of logits from fine to coarse, each at its own resolution.

    Args:
        network: filters, strides and kernels, one entry per level (odd kernels); optionally residual, dropout and
            deep_supervision.
    """

    def __init__(self, dims: int, channels: int, outputs: int, network: Mapping[str, Any]) -> None:
        super().__init__()
        strides, kernels = network["strides"], network["kernels"]
        widths = [int(number) for number in network["filters"]]
        widths += [widths[-1]] * (len(strides) - len(widths))  # the last value applies to all deeper levels
        widths = widths[: len(strides)]
        dropout, residual = float(network.get("dropout") or 0.0), bool(network.get("residual"))
        levels = zip([channels, *widths], widths, kernels, strides, strict=False)
        self.down = nn.ModuleList(Block(dims, *level, dropout, residual) for level in levels)
        self.up = nn.ModuleList(
            UpBlock(dims, widths[level], widths[level - 1], kernels[level], strides[level], dropout)
            for level in range(len(widths) - 1, 0, -1)
        )
        extra_heads = min(2, len(widths) - 2) if network.get("deep_supervision") else 0
        self.heads = nn.ModuleList(CONV[dims](widths[level], outputs, 1) for level in range(extra_heads + 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.ConvTranspose3d):
                nn.init.kaiming_normal_(module.weight, a=LEAKY_SLOPE)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if dims == 3 and widths[0] < MIN_FILTERS_CHANNELS_FIRST:
            self.to(memory_format=torch.channels_last_3d)
            self.register_state_dict_post_hook(_make_contiguous)

    def forward(self, x: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        skips: list[torch.Tensor] = []
        for block in self.down:
            skips.append(block(skips[-1] if skips else x))
        decoded = [skips.pop()]
        for up_block in self.up:
            decoded.append(up_block(decoded[-1], skips.pop()))
        fine: torch.Tensor = self.heads[0](decoded[-1])
        if not self.training or len(self.heads) == 1:
            return fine
        return [fine, *(head(features) for head, features in zip(self.heads[1:], decoded[-2:0:-1], strict=False))]


def _make_contiguous(_: nn.Module, state: dict[str, torch.Tensor], prefix: str, __: Any) -> None:
    """Store weights in the usual memory order: safetensors accepts no other."""
    state |= {name: value.contiguous() for name, value in state.items() if name.startswith(prefix)}
