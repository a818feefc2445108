"""MONAI's DynUNet (after nnU-Net; Isensee et al., 2021) in a form that can be saved and trained quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from monai.networks.nets import DynUNet


class UNet(DynUNet):
    """DynUNet without its second set of names for the same weights, which safetensors refuses to save.

    In training with deep supervision it gives a list of logits from fine to coarse, each at its own resolution (DynUNet
    itself enlarges them all to the finest, which costs time and makes one loss a step three times as dear).
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.skip_layers

    def forward(self, x: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        kept = [self.input_block(x)]
        for layer in self.downsamples:
            kept.append(layer(kept[-1]))
        x, maps = self.bottleneck(kept[-1]), []
        for layer, skip in zip(self.upsamples, reversed(kept), strict=True):
            x = layer(x, skip)
            maps.append(x)
        final = self.output_block(x)
        if not (self.training and self.deep_supervision):
            return final
        coarse = zip(self.deep_supervision_heads, reversed(maps[:-1]), strict=False)
        return [final, *(head(features) for head, features in coarse)]


def build_unet(dims: int, channels: int, outputs: int, network: Mapping[str, Any]) -> UNet:
    """From `network`: filters, strides, kernels (one entry a stage, at least 3), and optionally residual, dropout,
    deep_supervision."""
    strides = [list(step) for step in network["strides"]]
    filters = [int(number) for number in network["filters"]]
    return UNet(
        spatial_dims=dims,
        in_channels=channels,
        out_channels=outputs,
        kernel_size=[list(kernel) for kernel in network["kernels"]],
        strides=strides,
        upsample_kernel_size=strides[1:],
        filters=filters,
        norm_name=("INSTANCE", {"affine": True}),
        deep_supervision=bool(network.get("deep_supervision")) and len(filters) > 2,
        deep_supr_num=max(1, min(2, len(filters) - 2)),
        res_block=bool(network.get("residual")),
        dropout=float(network.get("dropout") or 0) or None,
    )
