"""Cheaper plans for few minutes: fewer patches a step, a narrower network, a coarser grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from .grid import refit
from .pace import Way

NARROW = 8
RATE = 0.01
"""Learning rate of masks with few steps: 400 steps on drawn lung infections gave a Dice of 0.34 at 0.002 and 0.57 at 0.01."""


def narrower(plan: dict[str, Any]) -> str:
    """Fewer patches a step first, then half the width of the network."""
    network, least = plan["network"], 4 if plan["dims"] == 2 or plan["target"] == "boxes" else 1
    if plan["batch"] > least:
        plan["batch"] = max(least, plan["batch"] // 2)
        return f"batch {plan['batch']}"
    if plan["target"] == "boxes":
        if network["width"] // 2 < NARROW:
            return ""
        network["width"] //= 2
        return f"width {network['width']}"
    if network["filters"][0] // 2 < NARROW:
        return ""
    network["filters"] = [number // 2 for number in network["filters"]]
    return f"filters from {network['filters'][0]}"


def coarser(facts: dict[str, Any]) -> Way:
    """A grid of half the voxels, twice at most: small lesions have to stay."""
    used = [1]

    def way(plan: dict[str, Any]) -> str:
        if used[0] >= 4:
            return ""
        used[0] *= 2
        batch, network = plan["batch"], plan["network"]
        if plan["longest"]:
            plan["longest"] = round(plan["longest"] * 0.5 ** (1 / plan["dims"]))
        else:
            spacing = np.array(plan["spacing"])
            goal = np.prod(spacing) * 2
            while np.prod(spacing) < goal * 0.97:
                spacing[int(np.argmin(spacing))] *= 1.03
            plan["spacing"] = [round(float(v), 4) for v in spacing]
        refit(facts, plan, gpu=False, thrift=used[0])
        plan["batch"] = min(plan["batch"], batch)
        if plan["target"] == "boxes":
            plan["network"]["width"] = network["width"]
        else:
            share = network["filters"][0] / plan["network"]["filters"][0]
            plan["network"]["filters"] = [round(number * share) for number in plan["network"]["filters"]]
        grid = f"longest side {plan['longest']}" if plan["longest"] else f"spacing {plan['spacing']}"
        return f"{grid} with patches {plan['patch']}"

    return way
