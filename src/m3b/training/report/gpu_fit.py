"""What the memory of a GPU lets a report plan be: steps in parts, smaller and larger pictures, more studies a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.gpu_fitting import Ways, finer_input, in_parts, larger_batch
from m3b.training.step_cost import StepCosts
from m3b.training.time_budget import Way

FINEST = {2: 448, 3: 160}
"""No side of the pictures becomes longer, by the dimensions."""
MOST = 64
"""Studies a step."""
WIDEST = 48
"""First filters of the image encoder."""


def texts(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """Reports of half the length that is allowed, without content, on the CPU."""
    import torch

    longest = max(4, sum(plan["max_tokens"].values()) // 2)
    tokens = torch.full((cases, longest), int(plan["unknown"]))
    return {"tokens": tokens, "targets": tokens, "findings": torch.zeros(cases, len(plan["shares"]))}


def noise(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """A batch without content, on the CPU."""
    import torch

    views = int(plan["views"])
    pictures = torch.randn(cases, views, int(plan["channels"]), *plan["size"])
    return {"pixel_values": pictures, "views": torch.ones(cases, views), **texts(plan, cases)}


def build_encoder(plan: dict[str, Any]) -> Any:
    """The image encoder with its head, as it is trained first."""
    from m3b.training.recipe import get_recipe
    from m3b.training.report.network import Warming

    return Warming(plan, get_recipe().build_loss(plan))


def build_words(plan: dict[str, Any]) -> Any:
    """The writer, as it is trained alone."""
    from m3b.training.recipe import get_recipe
    from m3b.training.report.network import Speaking

    return Speaking(plan, get_recipe().build_loss(plan))


STEP_COSTS = StepCosts(noise)
STAGES = {"encoder": StepCosts(noise, build_encoder), "words": StepCosts(texts, build_words), "report": STEP_COSTS}


def ways_of(plan: dict[str, Any], facts: dict[str, Any], kept: set[str], smaller_input: Way) -> Ways:
    """In order; what was set by hand (`kept`), and the input of a pretrained encoder, stay."""
    own = bool(plan["network"].get("image_model") or plan["network"].get("pretrained"))
    dims = int(plan["dims"])
    inputs = [] if "size" in kept or own else [smaller_input]
    larger = (
        [] if "size" in kept or own else [finer_input(list(np.median(facts["shapes"], axis=0)), dims, FINEST[dims])]
    )
    larger += [] if own or "network.image_width" in kept else [wider]
    larger += [] if "batch" in kept else [larger_batch(min(MOST, int(facts["cases"]) // 8))]
    return Ways(inputs, [in_parts, *inputs], larger)


def wider(plan: dict[str, Any]) -> str:
    """Half as many filters of the image encoder again."""
    before = int(plan["network"]["image_width"])
    if round(1.5 * before) > WIDEST:
        return ""
    plan["network"]["image_width"] = round(1.5 * before)
    return f"image encoder of width {round(1.5 * before)} instead of {before}"
