"""The model of plan.json: `centers`, the detector of boxes, or a U-Net of MONAI's for masks (`dynunet`, `basicunet`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from Model.detector import build_detector
from torch import nn


def build_unet(plan: Mapping[str, Any]) -> nn.Module:
    """A U-Net with one output channel a class. `network`: {"name", "filters", "strides", "kernels"}."""
    from monai.networks import nets

    network, dims = plan["network"], int(plan["dims"])
    name, channels, classes = str(network["name"]), int(plan["channels"]), len(plan["classes"])
    filters = [int(n) for n in network["filters"]]
    dropout = float(network.get("dropout") or 0.0) or None
    if name == "dynunet":
        strides, kernels = [list(s) for s in network["strides"]], [list(k) for k in network["kernels"]]
        filters += [filters[-1]] * (len(strides) - len(filters))  # the last one serves all deeper levels
        unet = nets.DynUNet(
            dims, channels, classes, kernels, strides, strides[1:], filters, dropout, norm_name="instance"
        )
        for twice in ("input_block", "downsamples", "bottleneck", "upsamples"):
            delattr(unet, twice)  # forward() uses skip_layers alone; safetensors refuses weights with two names
        return unet
    if name == "basicunet":
        features = (*filters, *[filters[-1]] * 6)[:5]
        return nets.BasicUNet(dims, channels, classes, (*features, features[0]), dropout=dropout or 0.0)
    raise SystemExit(f"network {name!r} in plan.json: known are dynunet and basicunet for masks, centers for boxes")


class MaskModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), labels (B, K, *patch) or None) -> {"logits": (B, K, *patch), "loss"}`."""

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.loss = build_unet(plan), loss
        with torch.no_grad():  # lesions are rare: start from "nothing"
            head = [part for part in self.backbone.modules() if isinstance(part, nn.Conv2d | nn.Conv3d)][-1]
            if head.bias is not None and head.out_channels == len(plan["classes"]):
                head.bias.fill_(-2.0)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(pixel_values)
        if labels is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, labels), "logits": logits}


class BoxModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), boxes (B, M, 2 d + 2) or None) -> {"logits": (B, K + 2 d K, *cells)}`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.backbone = build_detector(plan)
        self.cell = self.backbone.cell
        self.loss: nn.Module | None = None

    def forward(self, pixel_values: torch.Tensor, boxes: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(pixel_values)
        if boxes is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, boxes), "logits": logits}


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> MaskModel | BoxModel:
    """The network of plan.json; the deliverable builds it without its loss."""
    model = BoxModel(plan) if plan["target"] == "boxes" else MaskModel(plan)
    if with_loss:
        from Loss.loss import build_loss

        model.loss = build_loss(plan, model.cell if isinstance(model, BoxModel) else None)
    return model
