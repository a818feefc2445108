"""Changes of a detection plan to fit the memory of a GPU: smaller or larger patches, more of them, a wider network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from m3b.training.detection.grid import fit_to_grid
from m3b.training.detection.plan_cost import median_grid_shape
from m3b.training.gpu_fitting import PlanChanges, larger_batch, split_step
from m3b.training.plan_table import PlanConditions, choose_settings, conditions_of
from m3b.training.step_cost import gpus_per_step
from m3b.training.time_budget import PlanChange

GRID_SETTINGS = ("patch", "longest", "spacing")


def list_changes(facts: dict[str, Any], overrides: set[str], cheaper: Sequence[PlanChange]) -> PlanChanges:
    """Return the changes in order. A grid, patch or network that the user set is not changed, nor what depends on it."""
    is_fixed = bool(overrides & set(GRID_SETTINGS)) or any(key.startswith("network.") for key in overrides)
    smaller: list[PlanChange] = [split_step] + ([] if is_fixed else [make_patch_change(facts, 0.5)])
    larger: list[PlanChange] = [] if is_fixed else [make_patch_change(facts, 1.6), widen]
    larger += [] if "batch" in overrides else [make_larger_batch(facts)]
    return PlanChanges(cheaper, smaller, larger)


def make_patch_change(facts: dict[str, Any], factor: float) -> PlanChange:
    """Return a change of the patch's voxels by a factor; no side exceeds that of the median image, width and batch stay."""

    def change_patch(plan: dict[str, Any]) -> str:
        dims, previous = int(plan["dims"]), [int(n) for n in plan["patch"]]
        median_shape = median_grid_shape(facts, plan)
        scale, limits = factor ** (1 / dims), choose_settings("detection", conditions_of(facts, gpu=True))
        target = [min(round(scale * n), max(length, 16)) for n, length in zip(previous, median_shape, strict=True)]
        if factor > 1:
            target = [max(side, n) for side, n in zip(target, previous, strict=True)]
        batch_settings = {key: plan[key] for key in ("batch", "patches", "least_batch")}
        width = _width(plan)
        trial = {**plan, "network": dict(plan["network"])}
        fit_to_grid(facts, trial, True, patch=target)
        growth = np.prod(trial["patch"]) / np.prod(previous)
        if (
            (growth <= 1) == (factor > 1)
            or np.prod(trial["patch"]) > limits["largest_patch_voxels"]
            or min(trial["patch"]) < 16
        ):
            return ""
        plan |= {**trial, **batch_settings}
        _set_width(plan, width)
        return f"patches {plan['patch']} instead of {previous}"

    return change_patch


def widen(plan: dict[str, Any]) -> str:
    """Use half as many filters again, once."""
    previous = _width(plan)
    if previous > choose_settings("detection", PlanConditions(device="GPU"))["first_filters"]:
        return ""
    _set_width(plan, round(1.5 * previous))
    return f"network of width {_width(plan)} instead of {previous}"


def _width(plan: dict[str, Any]) -> int:
    network = plan["network"]
    return int(network["width"] if plan["target"] == "boxes" else network["filters"][0])


def _set_width(plan: dict[str, Any], width: int) -> None:
    network, previous = plan["network"], _width(plan)
    if plan["target"] == "boxes":
        network["width"] = width
    else:
        network["filters"] = [round(number * width / previous) for number in network["filters"]]


def make_larger_batch(facts: dict[str, Any]) -> PlanChange:
    """Return a change that doubles the patches per step."""

    def enlarge_batch(plan: dict[str, Any]) -> str:
        limits = choose_settings("detection", conditions_of(facts, gpu=True))
        message = larger_batch(limits["largest_batch"] * gpus_per_step(plan))(plan)
        if message:
            plan["patches"] = max(8 * int(plan["batch"]), min(int(facts["cases"]), 512))
        return message

    return enlarge_batch
