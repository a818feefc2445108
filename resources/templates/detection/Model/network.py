"""The model of plan.json: `centers`, the detector of boxes, or one of a library (Model/libraries.py), or `unet` for masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from Model.detector import build_detector
from torch import nn
from Utils.derived import seen, wide
from Utils.detectors import is_library
from Utils.unet import UNet


def is_started(plan: Mapping[str, Any]) -> bool:
    """Whether the network of a plan is built on an encoder that was trained before (Model/started.py)."""
    return bool((plan["network"].get("config") or {}).get("builder"))


class MaskModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), labels (B, K, *patch) or None) -> {"logits": (B, K, *patch), "loss"}`."""

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        plan = wide(plan)
        network = plan["network"]
        if is_started(plan):
            from Model.started import started_masks

            self.backbone: nn.Module = started_masks(plan, load)
        elif network["name"] == "unet":
            self.backbone = UNet(int(plan["dims"]), int(plan["channels"]), len(plan["classes"]), network)
        else:
            raise SystemExit(f"network {network['name']!r} in plan.json: known are unet for masks, centers for boxes")
        self.loss: nn.Module | None = None
        with torch.no_grad():  # lesions are rare: start from "nothing"
            self.backbone.heads[0].bias.fill_(-2.0)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(seen(pixel_values))
        if labels is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, labels), "logits": logits}


class BoxModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), boxes (B, M, 2 d + 2) or None) -> {"logits": (B, K + 2 d K, *cells)}`."""

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        plan = wide(plan)
        if is_started(plan):
            from Model.started import StartedBoxes

            self.backbone: nn.Module = StartedBoxes(plan, load)
        else:
            self.backbone = build_detector(plan)
        self.cell: list[int] = list(self.backbone.cell)  # type: ignore[arg-type]
        self.loss: nn.Module | None = None

    def forward(self, pixel_values: torch.Tensor, boxes: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.backbone(seen(pixel_values))
        if boxes is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, boxes), "logits": logits}


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
    """The network of plan.json; the deliverable builds it without its loss."""
    if plan.get("engine", "patches") != "patches":
        from Fewshot.build import build

        return build(plan)
    if is_library(plan):
        from Model.libraries import LibraryBoxes

        return LibraryBoxes(plan, with_loss)
    kind = BoxModel if plan["target"] == "boxes" else MaskModel
    model: BoxModel | MaskModel = kind(plan, with_loss)
    if with_loss:
        from Loss.loss import build_loss

        model.loss = build_loss(plan, model.cell if isinstance(model, BoxModel) else None)
    return model
