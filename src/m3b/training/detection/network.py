"""The model of plan.json: `centers`, the detector of boxes, or one of a library (`library_detectors`), or `unet` for masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.detection.center_detector import build_detector
from m3b.training.detection.detectors import is_library
from m3b.training.recipe import add_channels, get_recipe, with_derived_channels
from m3b.training.unet import UNet


def is_started(plan: Mapping[str, Any]) -> bool:
    """Whether the network of a plan is built on an encoder that was trained before (`pretrained_detectors`)."""
    return bool((plan["network"].get("config") or {}).get("builder"))


def build_network(plan: Mapping[str, Any], load: bool = True) -> nn.Module:
    """Return the network of masks (`unet`) or boxes (`centers`), or one on a pretrained encoder."""
    has_boxes = plan["target"] == "boxes"
    if is_started(plan):
        from m3b.training.detection.pretrained_detectors import StartedBoxes, started_masks

        return StartedBoxes(plan, load) if has_boxes else started_masks(plan, load)
    network = plan["network"]
    if has_boxes:
        return build_detector(plan)
    if network["name"] != "unet":
        raise SystemExit(f"network {network['name']!r} in plan.json: known are unet for masks, centers for boxes")
    return UNet(int(plan["dims"]), int(plan["channels"]), len(plan["classes"]), network)


class MaskModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), labels (B, K, *patch) or None) -> {"logits": (B, K, *patch), "loss"}`."""

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        self.recipe = get_recipe()
        self.backbone = self.recipe.build_network(with_derived_channels(plan), load)
        self.loss: nn.Module | None = None
        with torch.no_grad():  # lesions are rare: start from "nothing"
            self.backbone.heads[0].bias.fill_(-2.0)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(add_channels(self.recipe, pixel_values))
        if labels is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, labels), "logits": logits}


class BoxModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), boxes (B, M, 2 d + 2) or None) -> {"logits": (B, K + 2 d K, *cells)}`."""

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        self.recipe = get_recipe()
        self.backbone = self.recipe.build_network(with_derived_channels(plan), load)
        self.cell: list[int] = list(self.backbone.cell)  # type: ignore[arg-type]
        self.loss: nn.Module | None = None

    def forward(self, pixel_values: torch.Tensor, boxes: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(add_channels(self.recipe, pixel_values))
        if boxes is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, boxes), "logits": logits}


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
    """The network of plan.json; the deliverable builds it without its loss."""
    if plan.get("engine", "patches") != "patches":
        from m3b.training.detection.fewshot.build import build

        return build(plan)
    if is_library(plan):
        from m3b.training.detection.library_detectors import LibraryBoxes

        return LibraryBoxes(plan, with_loss)
    kind = BoxModel if plan["target"] == "boxes" else MaskModel
    model: BoxModel | MaskModel = kind(plan, with_loss)
    if with_loss:
        model.loss = get_recipe().build_loss(plan, model.cell if isinstance(model, BoxModel) else None)
    return model
