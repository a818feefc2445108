"""What the memory of a GPU lets a detection plan be: smaller and larger patches, more of them, a wider network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from m3b.training.detection.grid import GPU_WIDTH, refit
from m3b.training.detection.plan_cost import usual_shape
from m3b.training.gpu_fitting import Ways, in_parts, larger_batch
from m3b.training.step_cost import StepCosts, gpus_per_step
from m3b.training.time_budget import Way

MOST = {2: 32, 3: 8}
"""Patches a step, by the dimensions."""
LARGEST = {2: 2**21, 3: 2**23}
"""Pixels of the largest patch."""
GROUND = ("patch", "longest", "spacing")


def noise(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """A batch without content, on the CPU."""
    import torch

    dims, images = int(plan["dims"]), torch.randn(cases, int(plan["channels"]), *plan["patch"])
    if plan["target"] == "boxes":
        return {"pixel_values": images, "boxes": torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * cases)}
    return {"pixel_values": images, "labels": torch.zeros(cases, len(plan["classes"]), *plan["patch"])}


STEP_COSTS = StepCosts(noise)


def ways_of(facts: dict[str, Any], kept: set[str], cheaper: Sequence[Way]) -> Ways:
    """In order. A grid, patch or network that was set by hand stays, and what goes with it."""
    fixed = bool(kept & set(GROUND)) or any(key.startswith("network.") for key in kept)
    smaller: list[Way] = [in_parts] + ([] if fixed else [other_patch(facts, 0.5)])
    larger: list[Way] = [] if fixed else [other_patch(facts, 1.6), wider]
    larger += [] if "batch" in kept else [more_patches(facts)]
    return Ways(cheaper, smaller, larger)


def other_patch(facts: dict[str, Any], share: float) -> Way:
    """So many times the pixels, no more of a side than the usual image has; network as wide, batch as large as before."""

    def way(plan: dict[str, Any]) -> str:
        dims, before = int(plan["dims"]), [int(n) for n in plan["patch"]]
        usual = usual_shape(facts, plan)
        wanted = [min(round(share ** (1 / dims) * n), max(have, 16)) for n, have in zip(before, usual, strict=True)]
        if share > 1:
            wanted = [max(one, n) for one, n in zip(wanted, before, strict=True)]
        kept = {key: plan[key] for key in ("batch", "patches", "least_batch")}
        width = _width(plan)
        trial = {**plan, "network": dict(plan["network"])}
        refit(facts, trial, True, patch=wanted)
        grown = np.prod(trial["patch"]) / np.prod(before)
        if (grown <= 1) == (share > 1) or np.prod(trial["patch"]) > LARGEST[dims] or min(trial["patch"]) < 16:
            return ""
        plan |= {**trial, **kept}
        _widen(plan, width)
        return f"patches {plan['patch']} instead of {before}"

    return way


def wider(plan: dict[str, Any]) -> str:
    """Half as many filters again, once."""
    before = _width(plan)
    if before > GPU_WIDTH:
        return ""
    _widen(plan, round(1.5 * before))
    return f"network of width {_width(plan)} instead of {before}"


def _width(plan: dict[str, Any]) -> int:
    network = plan["network"]
    return int(network["width"] if plan["target"] == "boxes" else network["filters"][0])


def _widen(plan: dict[str, Any], width: int) -> None:
    network, before = plan["network"], _width(plan)
    if plan["target"] == "boxes":
        network["width"] = width
    else:
        network["filters"] = [round(number * width / before) for number in network["filters"]]


def more_patches(facts: dict[str, Any]) -> Way:
    """Twice the patches a step."""

    def way(plan: dict[str, Any]) -> str:
        said = larger_batch(MOST[int(plan["dims"])] * gpus_per_step(plan))(plan)
        if said:
            plan["patches"] = max(8 * int(plan["batch"]), min(int(facts["cases"]), 512))
        return said

    return way
