"""What the memory of a GPU lets a segmentation plan be: smaller and larger patches, more of them, a wider network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from m3b.training.gpu_fitting import Ways, in_parts, larger_batch, share_gpus
from m3b.training.machine import machine_of
from m3b.training.segmentation.patch_shapes import round_up, topology
from m3b.training.segmentation.plan_cost import median_there
from m3b.training.segmentation.short_training import epoch_patches, filters
from m3b.training.segmentation.sliding_window import steps_of
from m3b.training.step_cost import StepCosts, gpus_per_step
from m3b.training.time_budget import Way

MOST = {2: 32, 3: 8}
"""Patches a step, by the dimensions: more give little, and steps become few."""
WIDE = 48
"""First filters of the widest network, where there is memory and time."""
LARGEST = {2: 1024 * 1024, 3: 192**3}
"""Voxels of the largest patch."""


def noise(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """A batch without content, on the CPU."""
    import torch

    shape = (cases, *plan["patch"])
    layers = (cases, len(plan["classes"]), *plan["patch"]) if plan["overlap"] else shape
    images = torch.randn(cases, int(plan["channels"]), *plan["patch"])
    return {"pixel_values": images, "labels": torch.randint(0, 2, layers, dtype=torch.uint8)}


STEP_COSTS = StepCosts(noise)


def share_batch(facts: dict[str, Any], plan: dict[str, Any], kept: set[str]) -> None:
    """What several GPUs share: folds, or patches of a step, of which there are as many steps an epoch as before."""
    before = int(plan["batch"])
    share_gpus(plan, 16 * machine_of(plan).gpus, kept)
    if int(plan["batch"]) != before and "epoch_patches" not in kept:
        plan["epoch_patches"] = epoch_patches(int(facts["cases"]), int(plan["batch"]))


def ways_of(facts: dict[str, Any], kept: set[str], cheaper: Sequence[Way]) -> Ways:
    """In order. A patch or network that was set by hand stays, and what goes with it."""
    shape = kept & {"network", "network.strides", "network.kernels", "patch"}
    width = kept & {"network", "network.filters"}
    smaller: list[Way] = [in_parts] + ([] if shape or width else [smaller_patch])
    larger: list[Way] = [] if shape or width else [larger_patch(facts)]
    larger += [] if shape or width else [wider]
    larger += [] if "batch" in kept else [more_patches(facts)]
    return Ways(cheaper, smaller, larger)


def smaller_patch(plan: dict[str, Any]) -> str:
    """Three quarters of the longest side, as far as the network can halve it."""
    patch, steps = [int(n) for n in plan["patch"]], steps_of(plan)
    axis = int(np.argmax(patch))
    side = int(0.75 * patch[axis]) // steps[axis] * steps[axis]
    if side < 2 * steps[axis] or side == patch[axis]:
        return ""
    before, patch[axis] = list(patch), side
    plan["patch"] = patch
    return f"patches {patch} instead of {before}"


def larger_patch(facts: dict[str, Any]) -> Way:
    """A quarter more of each side that the median image has more of; the network halves it as often as it can."""

    def way(plan: dict[str, Any]) -> str:
        if plan["network"]["name"] != "unet":
            return ""
        before, dims = [int(n) for n in plan["patch"]], int(plan["dims"])
        wanted = [min(round(1.25 * n), max(n, have)) for n, have in zip(before, median_there(facts, plan), strict=True)]
        strides, kernels = topology(wanted, list(plan["spacing"] or [1.0] * dims))
        patch = round_up(wanted, strides)
        if np.prod(patch) <= np.prod(before) or np.prod(patch) > LARGEST[dims]:
            return ""
        plan["patch"] = patch
        width = int(plan["network"]["filters"][0])
        plan["network"] |= {"strides": strides, "kernels": kernels, "filters": filters(width, len(strides), dims)}
        return f"patches {patch} instead of {before}"

    return way


def wider(plan: dict[str, Any]) -> str:
    """Half as many filters again."""
    wide = [int(n) for n in plan["network"].get("filters") or []]
    if plan["network"]["name"] != "unet" or not wide or round(1.5 * wide[0]) > WIDE:
        return ""
    plan["network"]["filters"] = filters(round(1.5 * wide[0]), len(wide), int(plan["dims"]))
    return f"first filters {plan['network']['filters'][0]} instead of {wide[0]}"


def more_patches(facts: dict[str, Any]) -> Way:
    """Twice the patches a step; an epoch has as many steps as before."""

    def way(plan: dict[str, Any]) -> str:
        said = larger_batch(MOST[int(plan["dims"])] * gpus_per_step(plan))(plan)
        if said:
            plan["epoch_patches"] = epoch_patches(int(facts["cases"]), int(plan["batch"]))
        return said

    return way
