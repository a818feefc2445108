"""Segmentation networks: the U-Net of `unet`, MONAI's SegResNet and SwinUNETR. `forward` returns logits, and the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.planned_network import build_planned_network
from m3b.training.recipe import RecipeInput, get_recipe
from m3b.training.segmentation import ordered_structures
from m3b.training.unet import UNet

NETWORK_NAMES = "unet, segresnet, swinunetr"


def count_outputs(plan: Mapping[str, Any]) -> int:
    """Return the channels of the logits: background and classes, classes alone if they may overlap, or as `ordered_structures`
    says.
    """
    if plan.get("chains"):
        return ordered_structures.count_channels(plan)
    return len(plan["classes"]) + (0 if plan.get("overlap") else 1)


def build_network(plan: Mapping[str, Any], load: bool = True) -> nn.Module:
    """Return the network of `plan["network"]["name"]`: unet, segresnet, swinunetr (sides of 64, 96, 128, ...), pretrained."""
    network, dims = plan["network"], int(plan["dims"])
    name, channels, outputs = str(network["name"]), int(plan["channels"]), count_outputs(plan)
    if name == "unet":
        return UNet(dims, channels, outputs, network)
    if (network.get("config") or {}).get("builder"):
        from m3b.training.feature_pyramid import Dense
        from m3b.training.pretrained.backbones import build_backbone

        return Dense(
            build_backbone(network, dims, channels, load), dims, channels, outputs, int(network.get("width") or 16)
        )
    from monai.networks import nets

    if name == "segresnet":
        width = int(network.get("width") or 16)
        return nets.SegResNet(
            spatial_dims=dims,
            in_channels=channels,
            out_channels=outputs,
            init_filters=width,
            dropout_prob=float(network.get("dropout") or 0) or None,
        )
    if name == "swinunetr":
        if any(int(side) < 64 or int(side) % 32 for side in plan["patch"]):
            raise SystemExit(f"patch {plan['patch']} in plan.json: swinunetr needs sides of 64, 96, 128, ...")
        width = int(network.get("width") or 24)
        return nets.SwinUNETR(in_channels=channels, out_channels=outputs, feature_size=width, spatial_dims=dims)
    raise SystemExit(f"network {name!r} in plan.json is unknown; known are {NETWORK_NAMES}")


class Segmenter(nn.Module):
    """`forward(pixel_values (B, C, H, W[, D]), labels or None) -> {"logits": (B, count_outputs(plan), H, W[, D]), "loss"}`.

    `labels`: (B, H, W[, D]) class ids, 0 for background, or (B, K, H, W[, D]) of 0/1 if classes overlap.
    With precision "bf16" convolutions run in bfloat16 (in float16 on a GPU without it, and with "fp16"), weights and loss in float32.
    """

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module | None = None) -> None:
        super().__init__()
        self.input = RecipeInput(plan)
        self.backbone = build_planned_network(plan, load=loss is not None)
        self.loss, self.half = loss, plan.get("precision") in ("bf16", "fp16")
        self.is_fp16 = plan.get("precision") == "fp16"

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        pixel_values, kind = self.input(pixel_values), pixel_values.device.type
        with torch.autocast(
            kind, self._autocast_type(kind), enabled=self.half and (kind == "cuda" or not self.is_fp16)
        ):
            predicted = self.backbone(pixel_values)
        outputs = predicted if isinstance(predicted, list) else [predicted]  # several in training, from fine to coarse
        result = {"logits": outputs[0].float()}
        if labels is not None and self.loss is not None:
            result["loss"] = self.loss(outputs, labels)
        return result

    def _autocast_type(self, kind: str) -> torch.dtype:
        """Return bfloat16, or float16 if bfloat16 is emulated."""
        if kind == "cuda" and (self.is_fp16 or not torch.cuda.is_bf16_supported(including_emulation=False)):
            return torch.float16
        return torch.bfloat16


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> Segmenter:
    """Return the network of plan.json with its loss; deliverables build it without the loss."""
    return Segmenter(plan, get_recipe().build_loss(plan) if with_loss else None)
