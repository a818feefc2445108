"""Models of plan.json: `centers` or a detector of a library (`external_detectors`) for boxes, `unet` for masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.detection.center_detector import build_detector
from m3b.training.detection.detectors import is_library
from m3b.training.planned_network import build_planned_network
from m3b.training.recipe import RecipeInput, get_recipe
from m3b.training.unet import UNet


def has_pretrained_encoder(plan: Mapping[str, Any]) -> bool:
    """Return whether the network of a plan is built on a pretrained encoder."""
    return bool((plan["network"].get("config") or {}).get("builder"))


def build_network(plan: Mapping[str, Any], load: bool = True) -> nn.Module:
    """Return the network of masks (`unet`) or boxes (`centers`), or one on a pretrained encoder."""
    has_boxes = plan["target"] == "boxes"
    if has_pretrained_encoder(plan):
        return PretrainedBoxDetector(plan, load) if has_boxes else _build_pretrained_masks(plan, load)
    network = plan["network"]
    if has_boxes:
        return build_detector(plan)
    if network["name"] != "unet":
        raise SystemExit(
            f"network {network['name']!r} in plan.json is unknown; known are unet for masks, centers for boxes"
        )
    return UNet(int(plan["dims"]), int(plan["channels"]), len(plan["classes"]), network)


class MaskModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), labels (B, K, *patch) or None) -> {"logits": (B, K, *patch), "loss"}`."""

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        self.input = RecipeInput(plan)
        self.backbone = build_planned_network(plan, load)
        self.loss: nn.Module | None = None
        with torch.no_grad():  # lesions are rare: predict none at the start
            self.backbone.heads[0].bias.fill_(-2.0)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(self.input(pixel_values))
        if labels is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, labels), "logits": logits}


class BoxModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), boxes (B, M, 2 d + 2) or None) -> {"logits": (B, K + 2 d K, *cells)}`."""

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        self.input = RecipeInput(plan)
        self.backbone = build_planned_network(plan, load)
        self.cell: list[int] = list(self.backbone.cell)
        self.loss: nn.Module | None = None

    def forward(self, pixel_values: torch.Tensor, boxes: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(self.input(pixel_values))
        if boxes is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, boxes), "logits": logits}


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
    """Return the network of plan.json with its loss; deliverables build it without the loss."""
    if plan.get("engine", "patches") != "patches":
        from m3b.training.detection.fewshot.build import build_network

        return build_network(plan)
    if is_library(plan):
        from m3b.training.detection.external_detectors import LibraryBoxModel

        return LibraryBoxModel(plan, with_loss)
    kind = BoxModel if plan["target"] == "boxes" else MaskModel
    model: BoxModel | MaskModel = kind(plan, with_loss)
    if with_loss:
        model.loss = get_recipe().build_loss(plan, model.cell if isinstance(model, BoxModel) else None)
    return model


INITIAL_HEAT_LOGIT = -4.0
"""Logit of the heat map at the start: boxes are rare."""


class PretrainedBoxDetector(nn.Module):
    """(B, C, *size) to (B, K + 2 d K, *cells) on a pretrained encoder, with the outputs of `Detector`."""

    def __init__(self, plan: Mapping[str, Any], load: bool) -> None:
        from m3b.training.feature_pyramid import CONV, Pyramid
        from m3b.training.pretrained.backbones import build_backbone

        super().__init__()
        dims, classes, width = int(plan["dims"]), len(plan["classes"]), 2 * int(plan["network"].get("width") or 16)
        self.cell = [int(step) for step in plan["network"]["cell"]]
        encoder = build_backbone(plan["network"], dims, int(plan["channels"]), load)
        self.pyramid = Pyramid(encoder, dims, int(plan["channels"]), self.cell, width)
        self.heat, self.sides = CONV[dims](width, classes, 1), CONV[dims](width, 2 * dims * classes, 1)
        nn.init.constant_(self.heat.bias, INITIAL_HEAT_LOGIT)
        nn.init.normal_(self.heat.weight, std=0.01)
        nn.init.normal_(self.sides.weight, std=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = self.pyramid(x)
        return torch.cat([self.heat(top), self.sides(top)], dim=1)


def _build_pretrained_masks(plan: Mapping[str, Any], load: bool) -> nn.Module:
    """Return a network (B, C, *patch) -> (B, K, *patch) on a pretrained encoder."""
    from m3b.training.feature_pyramid import Dense
    from m3b.training.pretrained.backbones import build_backbone

    network, dims, channels = plan["network"], int(plan["dims"]), int(plan["channels"])
    encoder = build_backbone(network, dims, channels, load)
    return Dense(encoder, dims, channels, len(plan["classes"]), int(network.get("width") or 16))
