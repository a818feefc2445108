"""Detectors on an encoder that was trained before: its maps joined top-down (`feature_pyramid`), and new heads for masks or boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.feature_pyramid import CONV, Dense, Pyramid
from m3b.training.pretrained.backbones import build_backbone

PRIOR = -4.0
"""Logit of the heat map at the start: boxes are rare."""


def _body(plan: Mapping[str, Any], load: bool) -> nn.Module:
    return build_backbone(plan["network"], int(plan["dims"]), int(plan["channels"]), load)


class StartedBoxes(nn.Module):
    """(B, C, *size) to (B, K + 2 d K, *cells), as `Model.detector.Detector` gives them."""

    def __init__(self, plan: Mapping[str, Any], load: bool) -> None:
        super().__init__()
        dims, classes, width = int(plan["dims"]), len(plan["classes"]), 2 * int(plan["network"].get("width") or 16)
        self.cell = [int(step) for step in plan["network"]["cell"]]
        self.pyramid = Pyramid(_body(plan, load), dims, int(plan["channels"]), self.cell, width)
        self.heat, self.sides = CONV[dims](width, classes, 1), CONV[dims](width, 2 * dims * classes, 1)
        nn.init.constant_(self.heat.bias, PRIOR)
        nn.init.normal_(self.heat.weight, std=0.01)
        nn.init.normal_(self.sides.weight, std=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = self.pyramid(x)
        return torch.cat([self.heat(top), self.sides(top)], dim=1)


def started_masks(plan: Mapping[str, Any], load: bool) -> Dense:
    """(B, C, *patch) to (B, K, *patch)."""
    width = int(plan["network"].get("width") or 16)
    return Dense(_body(plan, load), int(plan["dims"]), int(plan["channels"]), len(plan["classes"]), width)
