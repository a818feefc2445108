"""The loss that plan.json describes: overlap and focal terms for masks, heat map and box terms for boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from m3b.training.detection.box_loss import BoxLoss
from m3b.training.losses import build_mask_loss


def build_loss(plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
    """`loss` of plan.json: {"voxel", "alpha", "beta"} for masks (`losses`), {"boxes", "class_weights"} for boxes."""
    if plan["target"] == "boxes":
        terms = plan.get("loss") or {}
        weight = float(terms.get("boxes", 1.0))
        return BoxLoss(len(plan["classes"]), cell or [1] * int(plan["dims"]), weight, terms.get("class_weights"))
    return build_mask_loss(plan)
