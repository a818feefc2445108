"""Networks of this engine as plan.json describes them: a few-shot detector, and the ordinary network for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.detection.fewshot.backbone import BackboneError, load_backbone
from m3b.training.detection.fewshot.convnet import Classifier
from m3b.training.detection.fewshot.model import FewshotModel
from m3b.training.detection.fewshot.prompts import text_features
from m3b.training.detection.fewshot.stored_adapters import load_adapters


class ImageModel(nn.Module):
    """`forward(pixel_values (B, 3, S, S), labels (B, 1)) -> {"logits" (B, 1), "loss"}`, from random weights."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.net = Classifier(int(plan["ordinary"]["width"]))

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.net(pixel_values)
        if labels is None:
            return {"logits": logits}
        truth = labels.flatten(1).amax(dim=1, keepdim=True)
        return {"logits": logits, "loss": functional.binary_cross_entropy_with_logits(logits, truth)}


def build_network(plan: Mapping[str, Any], weights: bool = True) -> FewshotModel | ImageModel:
    """Return the network of `engine` of plan.json: "fewshot" or "image".

    Args:
        weights: whether to read the weights of the backbone, and adapters of other sets, from their folders; a deliverable has its
        own.

    Raises:
        SystemExit: a folder that cannot be used, with the reason.
    """
    if plan["engine"] == "image":
        return ImageModel(plan)
    description = plan["backbone"]
    try:
        backbone = load_backbone(description, description.get("folder") if weights else None)
    except BackboneError as error:
        raise SystemExit(str(error)) from error
    texts = text_features(backbone.text, plan["prompts"]) if backbone.text is not None else None
    model = FewshotModel(plan, backbone, texts, int(description.get("mid") or 0))
    if weights and plan["fewshot"].get("adapters"):
        try:
            load_adapters(model, plan["fewshot"]["adapters"])
        except BackboneError as error:
            raise SystemExit(f"fewshot.adapters: {error}") from error
    return model
