"""What nnU-Net is asked to do: its network by the memory of the GPU, its mirroring by the names of classes, overlapping classes as
regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .sides import tells_side

PLANNERS = {
    "plain": ("ExperimentPlanner", "nnUNetPlans"),
    "M": ("nnUNetPlannerResEncM", "nnUNetResEncUNetMPlans"),
    "L": ("nnUNetPlannerResEncL", "nnUNetResEncUNetLPlans"),
    "XL": ("nnUNetPlannerResEncXL", "nnUNetResEncUNetXLPlans"),
}
"""Setting -> nnU-Net's planner, and how it calls its plans. `plain` is its U-Net of old, the others have residual encoders for 8, 24
and 40 GB (Isensee et al., MICCAI 2024)."""
NEEDED = {"XL": 38.0, "L": 22.0, "M": 7.0}
"""GiB that a GPU must have: a little less than the presets are called after, since GPUs report less than they are sold with."""
MOST = 255
"""Numbers of the masks that nnU-Net gets."""
LEFT_RIGHT = 2
"""The axis of nnU-Net's (slices, rows, columns) along which left and right lie; images are turned so when they are read."""


def gpu_gib() -> float:
    """Memory of the first GPU; 0 without one."""
    import torch

    return torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.is_available() else 0.0


def planner_for(gib: float) -> str:
    """The largest preset that fits the memory of a GPU; `plain` without one, where residual encoders take too long."""
    return next((name for name, least in NEEDED.items() if gib >= least), "plain")


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

    def encode(self, masks: np.ndarray) -> np.ndarray:
        """(K, *shape) bool to uint8 numbers; 0 where no class is.

        Raises:
            SystemExit: more combinations than a mask has numbers.
        """
        bits = np.zeros(masks.shape[1:], np.uint64)
        for place, mask in enumerate(masks):
            bits |= mask.astype(np.uint64) << np.uint64(place)
        found = np.zeros(bits.shape, np.uint8)
        for value in np.unique(bits[bits > 0]):
            together = frozenset(place for place in range(self.count) if int(value) >> place & 1)
            number = self.numbers.setdefault(together, len(self.numbers) + 1)
            if number > MOST:
                raise SystemExit(
                    f"classes overlap in more than {MOST} ways: use engine=trainer, which has a channel each"
                )
            found[bits == value] = number
        return found

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
