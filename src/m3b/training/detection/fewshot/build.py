"""Networks of this engine as plan.json describes them: a few-shot detector, and the ordinary network for comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.detection.fewshot.backbone import Backbone, BackboneError, load_backbone
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
        truth = (labels == 1).flatten(1).any(dim=1, keepdim=True).float()
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
    backbone, texts = load_frozen_backbone(plan) if weights else (_load(plan["backbone"], None), None)
    model = FewshotModel(plan, backbone, texts, int(plan["backbone"].get("mid") or 0))
    if weights and plan["fewshot"].get("adapters"):
        try:
            load_adapters(model, plan["fewshot"]["adapters"])
        except BackboneError as error:
            raise SystemExit(f"fewshot.adapters: {error}") from error
    return model


def load_frozen_backbone(plan: Mapping[str, Any]) -> tuple[Backbone, torch.Tensor | None]:
    """Return the backbone with its weights, and the features of the prompts, None without a text encoder.

    All networks of a training share them.

    Raises:
        SystemExit: a folder that cannot be used, with the reason.
    """
    return _load_once(json.dumps(plan["backbone"]), json.dumps(plan["prompts"]))


@lru_cache(maxsize=1)
def _load_once(description_text: str, prompts_text: str) -> tuple[Backbone, torch.Tensor | None]:
    description = json.loads(description_text)
    backbone = _load(description, description.get("folder"))
    return backbone, text_features(backbone.text, json.loads(prompts_text)) if backbone.text is not None else None


def _load(description: Mapping[str, Any], folder: str | None) -> Backbone:
    try:
        return load_backbone(description, folder)
    except BackboneError as error:
        raise SystemExit(str(error)) from error
