"""Changes of a classifier's plan for the memory of a GPU: steps in parts, smaller and larger inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.gpu_fitting import PlanChanges, finer_input, larger_batch, split_step
from m3b.training.plan_table import choose_settings, conditions_of
from m3b.training.step_cost import StepCosts
from m3b.training.time_budget import PlanChange


def make_noise_batch(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """Return a batch of noise on the CPU."""
    import torch

    from m3b.training.diagnosis.covariates import unknown_covariates
    from m3b.training.diagnosis.targets import get_target
    from m3b.training.diagnosis.views import input_shape, make_view_mask

    labels = torch.zeros(cases, get_target(plan).label_width or len(plan["classes"]))
    labels[:, 0] = 1.0
    images = torch.randn(cases, *input_shape(plan))
    return {"pixel_values": images, "labels": labels, **unknown_covariates(plan, cases), **make_view_mask(plan, cases)}


STEP_COSTS = StepCosts(make_noise_batch)


def list_plan_changes(
    plan: dict[str, Any], facts: dict[str, Any], overrides: set[str], smaller_input: PlanChange
) -> PlanChanges:
    """Return the changes in order; overrides, and the input of a network with a fixed size, stay."""
    network = plan["network"]
    has_fixed_size = "size" in overrides or bool(
        network.get("pretrained") or network.get("config") or plan.get("tiles")
    )
    has_fixed_size |= ":" in str(network["name"])  # many of timm's take multiples of a patch only
    dims, inputs = int(plan["dims"]), [] if has_fixed_size else [smaller_input]
    limits = choose_settings("diagnosis", conditions_of(facts, gpu=True))
    typical_sides = [float(side) for side in np.median(facts["shapes"], axis=0)]
    if dims == 3 and facts["frames"]:
        typical_sides[2] = 0.0  # a clip has no frames between its frames
    larger = [] if has_fixed_size else [finer_input(typical_sides, dims, limits["largest_side"])]
    larger += [] if "batch" in overrides else [larger_batch(min(limits["largest_batch"], int(facts["cases"]) // 8))]
    return PlanChanges(inputs, [split_step, *inputs], larger)
