"""Changes of a report plan for the memory of a GPU: steps in parts, smaller and larger images, larger batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.gpu_fitting import PlanChanges, finer_input, larger_batch, split_step
from m3b.training.plan_table import choose_settings, conditions_of
from m3b.training.step_cost import StepCosts
from m3b.training.time_budget import PlanChange


def make_text_batch(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """Return reports of half the maximum length without content, on the CPU."""
    import torch

    longest = max(4, sum(plan["max_tokens"].values()) // 2)
    tokens = torch.full((cases, longest), int(plan["unknown"]))
    return {"tokens": tokens, "targets": tokens, "findings": torch.zeros(cases, len(plan["shares"]))}


def make_noise_batch(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """Return a batch of noise on the CPU."""
    import torch

    views = int(plan["views"])
    pictures = torch.randn(cases, views, int(plan["channels"]), *plan["size"])
    return {"pixel_values": pictures, "views": torch.ones(cases, views), **make_text_batch(plan, cases)}


def build_encoder(plan: dict[str, Any]) -> Any:
    """Build the image encoder with its head, as it is trained first."""
    from m3b.training.recipe import get_recipe
    from m3b.training.report.network import EncoderTraining

    return EncoderTraining(plan, get_recipe().build_loss(plan))


def build_writer(plan: dict[str, Any]) -> Any:
    """Build the writer, as it is trained alone."""
    from m3b.training.recipe import get_recipe
    from m3b.training.report.network import WriterTraining

    return WriterTraining(plan, get_recipe().build_loss(plan))


STEP_COSTS = StepCosts(make_noise_batch)
STAGE_COSTS = {
    "encoder": StepCosts(make_noise_batch, build_encoder),
    "words": StepCosts(make_text_batch, build_writer),
    "report": STEP_COSTS,
}


def list_plan_changes(
    plan: dict[str, Any], facts: dict[str, Any], overrides: set[str], smaller_input: PlanChange
) -> PlanChanges:
    """Return the changes in order; overrides, and the input of a pretrained encoder, stay."""
    has_pretrained_encoder = bool(plan["network"].get("image_model") or plan["network"].get("pretrained"))
    dims, limits = int(plan["dims"]), choose_settings("report", conditions_of(facts, gpu=True))
    inputs = [] if "size" in overrides or has_pretrained_encoder else [smaller_input]
    larger = (
        []
        if "size" in overrides or has_pretrained_encoder
        else [finer_input(list(np.median(facts["shapes"], axis=0)), dims, limits["largest_side"])]
    )
    larger += [] if has_pretrained_encoder or "network.image_width" in overrides else [widen_encoder]
    larger += [] if "batch" in overrides else [larger_batch(min(limits["largest_batch"], int(facts["cases"]) // 8))]
    return PlanChanges(inputs, [split_step, *inputs], larger)


def widen_encoder(plan: dict[str, Any]) -> str:
    """Widen the image encoder by a half."""
    width = int(plan["network"]["image_width"])
    if round(1.5 * width) > choose_settings("report")["largest_image_width"]:
        return ""
    plan["network"]["image_width"] = round(1.5 * width)
    return f"image encoder of width {round(1.5 * width)} instead of {width}"
