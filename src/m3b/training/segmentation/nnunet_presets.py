"""What nnU-Net is asked to do: its network by the memory of the GPU, its mirroring by the names of classes, overlapping classes as
regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.laterality import tells_side

PLANNERS = {
    "plain": ("ExperimentPlanner", "nnUNetPlans"),
    "M": ("nnUNetPlannerResEncM", "nnUNetResEncUNetMPlans"),
    "L": ("nnUNetPlannerResEncL", "nnUNetResEncUNetLPlans"),
    "XL": ("nnUNetPlannerResEncXL", "nnUNetResEncUNetXLPlans"),
}
"""Setting -> nnU-Net's planner, and how it calls its plans. `plain` is its U-Net of old, the others have residual encoders for 8, 24
and 40 GB (Isensee et al., MICCAI 2024)."""
NEEDED = {"XL": (38.0, 66), "L": (22.0, 35), "M": (7.0, 12)}
"""GiB that a GPU must have (a little less than the presets are called after, since GPUs report less than they are sold with), and
hours of a whole training on an A100 as nnU-Net's documentation of these presets has them: `plain` takes 9, with a Dice on BTCV of 83.1
where `M` and `XL` have 83.3."""
ENOUGH = 0.5
"""Share of these hours from which a preset is chosen: a network that is slower and no better only gets fewer steps."""
MOST = 255
"""Numbers of the masks that nnU-Net gets."""
LEFT_RIGHT = 2
"""The axis of nnU-Net's (slices, rows, columns) along which left and right lie; images are turned so when they are read."""


def gpu_gib() -> float:
    """Memory of the first GPU; 0 without one."""
    import torch

    return torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.is_available() else 0.0


def planner_for(gib: float, minutes: float) -> str:
    """The largest preset that fits the memory of a GPU and the minutes; `plain` where residual encoders take too long."""
    fitting = (name for name, (least, hours) in NEEDED.items() if gib >= least and minutes >= ENOUGH * 60 * hours)
    return next(fitting, "plain")


def mirrored(axes: Sequence[int], order: Sequence[int], classes: Sequence[str]) -> tuple[int, ...]:
    """The axes of a patch that may be mirrored: not that of left and right where a class tells a side.

    Args:
        axes: of the patch, as nnU-Net mirrors them.
        order: its transposition, of (slices, rows, columns); a patch of two axes has the last two.
    """
    if not tells_side(classes):
        return tuple(axes)
    first = len(order) - len(axes)
    return tuple(axis for axis in axes if order[first + axis] != LEFT_RIGHT)


class Regions:
    """Numbers for voxels of classes that overlap: 1 to K for one class alone, further ones for those that meet."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.numbers = {frozenset([place]): place + 1 for place in range(count)}

    def encode(self, masks: Iterable[tuple[int, np.ndarray]], shape: Sequence[int]) -> np.ndarray:
        """Return uint8 numbers of `shape` for (place of the class, boolean mask); 0 where no class is.

        Raises:
            SystemExit: more combinations than a mask has numbers.
        """
        combinations: list[frozenset[int]] = [frozenset()]
        found = np.zeros(tuple(shape), np.uint16)  # index of the combination of the classes so far
        for place, mask in masks:
            before = found[mask]
            after = np.zeros(len(combinations), np.uint16)
            for index in np.flatnonzero(np.bincount(before, minlength=len(combinations))):
                after[index] = len(combinations)
                combinations.append(combinations[index] | {place})
            found[mask] = after[before]
            self._check(len(combinations) // self.count)  # fewer ways in the end never make so many on the way
        numbers = np.zeros(len(combinations), np.uint8)
        for index in np.flatnonzero(np.bincount(found.ravel(), minlength=len(combinations))):
            if not index:
                continue
            number = self.numbers.setdefault(combinations[index], len(self.numbers) + 1)
            self._check(number)
            numbers[index] = number
        return numbers[found]

    @staticmethod
    def _check(ways: int) -> None:
        if ways > MOST:
            raise SystemExit(f"classes overlap in more than {MOST} ways: use engine=trainer, which has a channel each")

    def classes(self) -> dict[int, set[int]]:
        """Return number -> places of the classes that it stands for."""
        return {number: set(places) for places, number in self.numbers.items()}

    def labels(self) -> dict[str, Any]:
        """For dataset.json: each class as all numbers that hold it."""
        named = {f"class{k + 1}": [n for some, n in self.numbers.items() if k in some] for k in range(self.count)}
        return {"background": 0, **{name: some if len(some) > 1 else some[0] for name, some in named.items()}}


def described(regions: Regions | None, plan: Mapping[str, Any]) -> dict[str, Any]:
    """`labels` of dataset.json, and where classes overlap the order in which regions are painted."""
    count = len(plan["classes"])
    if regions is None:
        return {"labels": {"background": 0, **{f"class{k + 1}": k + 1 for k in range(count)}}}
    return {"labels": regions.labels(), "regions_class_order": list(range(1, count + 1))}
