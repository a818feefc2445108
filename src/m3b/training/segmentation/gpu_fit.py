"""Changes of a segmentation plan to fit the memory of a GPU: smaller or larger patches, more of them, a wider network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from m3b.training.gpu_fitting import PlanChanges, larger_batch, share_gpus, split_step
from m3b.training.machine import machine_of
from m3b.training.plan_table import choose_settings, conditions_of
from m3b.training.segmentation.patch_shapes import plan_strides, round_up
from m3b.training.segmentation.plan_cost import median_grid_shape
from m3b.training.segmentation.short_training import filter_counts, patches_per_epoch
from m3b.training.segmentation.sliding_window import total_strides
from m3b.training.step_cost import gpus_per_step
from m3b.training.time_budget import PlanChange


def share_batch(facts: dict[str, Any], plan: dict[str, Any], overrides: set[str]) -> None:
    """Share folds, or the patches of a step, between several GPUs; an epoch keeps its number of steps."""
    previous = int(plan["batch"])
    share_gpus(plan, 16 * machine_of(plan).gpus, overrides)
    if int(plan["batch"]) != previous and "epoch_patches" not in overrides:
        plan["epoch_patches"] = patches_per_epoch(int(facts["cases"]), int(plan["batch"]))


def list_changes(facts: dict[str, Any], overrides: set[str], cheaper: Sequence[PlanChange]) -> PlanChanges:
    """Return the changes in order. A patch or network that the user set is not changed, nor what depends on it."""
    fixed_shape = overrides & {"network", "network.strides", "network.kernels", "patch"}
    fixed_width = overrides & {"network", "network.filters"}
    smaller: list[PlanChange] = [split_step] + ([] if fixed_shape or fixed_width else [shrink_patch])
    larger: list[PlanChange] = [] if fixed_shape or fixed_width else [make_larger_patch(facts)]
    larger += [] if fixed_shape or fixed_width else [widen]
    larger += [] if "batch" in overrides else [make_larger_batch(facts)]
    return PlanChanges(cheaper, smaller, larger)


def shrink_patch(plan: dict[str, Any]) -> str:
    """Reduce the longest side to three quarters, rounded to what the network can halve."""
    patch, steps = [int(n) for n in plan["patch"]], total_strides(plan)
    axis = int(np.argmax(patch))
    side = int(0.75 * patch[axis]) // steps[axis] * steps[axis]
    if side < 2 * steps[axis] or side == patch[axis]:
        return ""
    previous, patch[axis] = list(patch), side
    plan["patch"] = patch
    return f"patches {patch} instead of {previous}"


def make_larger_patch(facts: dict[str, Any]) -> PlanChange:
    """Return a change that adds a quarter to each side shorter than the median image; the network halves it as often as possible."""

    def enlarge_patch(plan: dict[str, Any]) -> str:
        if plan["network"]["name"] != "unet":
            return ""
        previous, dims = [int(n) for n in plan["patch"]], int(plan["dims"])
        target = [
            min(round(1.25 * n), max(n, length))
            for n, length in zip(previous, median_grid_shape(facts, plan), strict=True)
        ]
        strides, kernels = plan_strides(target, list(plan["spacing"] or [1.0] * dims))
        patch = round_up(target, strides)
        limits = choose_settings("segmentation", conditions_of(facts, gpu=True))
        if np.prod(patch) <= np.prod(previous) or np.prod(patch) > limits["largest_patch_voxels"]:
            return ""
        plan["patch"] = patch
        width = int(plan["network"]["filters"][0])
        plan["network"] |= {"strides": strides, "kernels": kernels, "filters": filter_counts(width, len(strides), dims)}
        return f"patches {patch} instead of {previous}"

    return enlarge_patch


def widen(plan: dict[str, Any]) -> str:
    """Use half as many filters again."""
    previous = [int(count) for count in plan["network"].get("filters") or []]
    largest = choose_settings("segmentation")["largest_first_filters"]
    if plan["network"]["name"] != "unet" or not previous or round(1.5 * previous[0]) > largest:
        return ""
    plan["network"]["filters"] = filter_counts(round(1.5 * previous[0]), len(previous), int(plan["dims"]))
    return f"first filters {plan['network']['filters'][0]} instead of {previous[0]}"


def make_larger_batch(facts: dict[str, Any]) -> PlanChange:
    """Return a change that doubles the patches per step; an epoch keeps its number of steps."""

    def enlarge_batch(plan: dict[str, Any]) -> str:
        limits = choose_settings("segmentation", conditions_of(facts, gpu=True))
        message = larger_batch(limits["largest_batch"] * gpus_per_step(plan))(plan)
        if message:
            plan["epoch_patches"] = patches_per_epoch(int(facts["cases"]), int(plan["batch"]))
        return message

    return enlarge_batch
