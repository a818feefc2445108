"""Cheaper plans for few minutes: fewer patches a step, a narrower network, a coarser grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.detection.grid import refit

NARROW = 8
SEEN, HALF = 4.0, 0.5
RATE = 0.01
"""Learning rate of masks with few steps: 400 steps on drawn lung infections gave a Dice of 0.34 at 0.002 and 0.57 at 0.01."""


def fewer(plan: dict[str, Any]) -> str:
    """Half the patches a step."""
    least = 4 if plan["dims"] == 2 or plan["target"] == "boxes" else 1
    if plan["batch"] <= least:
        return ""
    before, plan["batch"] = plan["batch"], max(least, plan["batch"] // 2)
    return f"batch {plan['batch']} instead of {before}"


def narrower(plan: dict[str, Any]) -> str:
    """Half the width of the network."""
    network = plan["network"]
    if plan["target"] == "boxes":
        if network["width"] // 2 < NARROW:
            return ""
        network["width"] //= 2
        return f"width {network['width']} instead of {network['width'] * 2}"
    if network["filters"][0] // 2 < NARROW:
        return ""
    wide = network["filters"]
    network["filters"] = [number // 2 for number in wide]
    return f"first filters {network['filters'][0]} instead of {wide[0]}"


class Coarser:
    """A grid of half the voxels, twice at most: small lesions have to stay."""

    def __init__(self, facts: dict[str, Any], gpu: bool = False) -> None:
        self.facts, self.gpu, self.thrift = facts, gpu, 1

    def __call__(self, plan: dict[str, Any]) -> str:
        if self.thrift >= 4:
            return ""
        self.thrift *= 2
        if plan["longest"]:
            plan["longest"] = round(plan["longest"] * 0.5 ** (1 / plan["dims"]))
        else:
            plan["spacing"] = _grown(plan["spacing"], 2.0)
        return self._fit(plan)

    def widen(self, plan: dict[str, Any]) -> str:
        """A coarser grid at the same cost, until a patch sees half of the image: what lies where tells lungs and organs
        apart. The small lesions keep `SEEN` voxels a side."""
        spacing, sides = self.facts["spacing"], self.facts["sides"]
        if plan["target"] != "masks" or plan["dims"] != 3 or not spacing or not plan["spacing"] or not len(sides):
            return ""
        extent = np.median(self.facts["shapes"], axis=0) * np.array(spacing)
        small = np.percentile(sides, 20, axis=0) * np.array(spacing)
        wider = list(plan["spacing"])
        while np.prod(np.minimum(np.array(plan["patch"]) * wider / extent, 1.0)) < HALF:
            grown = _grown(wider, 1.1)
            if (np.array(grown) * SEEN > small).any() and np.prod(grown) > np.prod(plan["spacing"]):
                break
            wider = grown
        if np.prod(wider) <= np.prod(plan["spacing"]):
            return ""
        plan["spacing"] = wider
        return self._fit(plan)

    def _fit(self, plan: dict[str, Any]) -> str:
        """Patch and network for the new grid, as narrow as before."""
        batch, network, before = plan["batch"], plan["network"], plan["patch"]
        refit(self.facts, plan, gpu=self.gpu, thrift=self.thrift)
        plan["batch"] = min(plan["batch"], batch)
        if plan["target"] == "boxes":
            plan["network"]["width"] = network["width"]
        else:
            share = network["filters"][0] / plan["network"]["filters"][0]
            plan["network"]["filters"] = [round(number * share) for number in plan["network"]["filters"]]
        grid = f"longest side {plan['longest']}" if plan["longest"] else f"spacing {plan['spacing']}"
        return f"{grid} with patches {plan['patch']} instead of {before}"


def _grown(spacing: list[float], volume: float) -> list[float]:
    """A grid whose voxels are `volume` times as large; the finest axis gives way."""
    grown = np.array(spacing, float)
    goal = np.prod(grown) * volume
    while np.prod(grown) < goal * 0.97:
        grown[int(np.argmin(grown))] *= 1.03
    return [round(float(v), 4) for v in grown]
