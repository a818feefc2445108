"""Settings for nnU-Net: planner by the memory of the GPU, mirroring by the names of classes, overlapping classes as regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.ignored_voxels import MAX_CLASSES
from m3b.training.laterality import has_side_word


def configuration_name(plan: Mapping[str, Any]) -> str:
    """Return nnU-Net's name of the configuration."""
    return "2d" if int(plan["dims"]) == 2 else "3d_fullres"


PLANNERS = {
    "plain": ("ExperimentPlanner", "nnUNetPlans"),
    "M": ("nnUNetPlannerResEncM", "nnUNetResEncUNetMPlans"),
    "L": ("nnUNetPlannerResEncL", "nnUNetResEncUNetLPlans"),
    "XL": ("nnUNetPlannerResEncXL", "nnUNetResEncUNetXLPlans"),
}
"""Setting -> nnU-Net's planner, and its name of the plans. `plain` is the original U-Net; the others have residual encoders for
8, 24 and 40 GB (Isensee et al., MICCAI 2024). On an A100 `M`, `L` and `XL` take 12, 35 and 66 hours, `plain` 9; below half of these
a slower network only gets fewer steps. `plain` has a Dice on BTCV of 83.1, `M` and `XL` 83.3.
"""
LEFT_RIGHT_AXIS = 2
"""The left-right axis of nnU-Net's (slices, rows, columns); images are oriented this way when they are read."""


def gpu_gib() -> float:
    """Return the memory of the first GPU; 0 without one."""
    import torch

    return torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.is_available() else 0.0


def allowed_mirror_axes(axes: Sequence[int], order: Sequence[int], classes: Sequence[str]) -> tuple[int, ...]:
    """Return the axes of a patch that may be mirrored: not the left-right axis if a class tells the side.

    Args:
        axes: of the patch, as nnU-Net mirrors them.
        order: its transposition of (slices, rows, columns); a 2D patch has the last two.
    """
    if not has_side_word(classes):
        return tuple(axes)
    first = len(order) - len(axes)
    return tuple(axis for axis in axes if order[first + axis] != LEFT_RIGHT_AXIS)


class Regions:
    """Label numbers of voxels of overlapping classes: 1 to K for one class alone, further ones for combinations."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.numbers = {frozenset([place]): place + 1 for place in range(count)}

    def encode(self, masks: Iterable[tuple[int, np.ndarray]], shape: Sequence[int]) -> np.ndarray:
        """Return uint8 labels of `shape` for (class index, boolean mask) pairs; 0 for background.

        Raises:
            SystemExit: more combinations than label numbers.
        """
        combinations: list[frozenset[int]] = [frozenset()]
        combination_index = np.zeros(tuple(shape), np.uint16)  # of the classes so far
        for k, mask in masks:
            before = combination_index[mask]
            after = np.zeros(len(combinations), np.uint16)
            for index in np.flatnonzero(np.bincount(before, minlength=len(combinations))):
                after[index] = len(combinations)
                combinations.append(combinations[index] | {k})
            combination_index[mask] = after[before]
            self._check(len(combinations) // self.count)  # at most this many times the final combinations
        numbers = np.zeros(len(combinations), np.uint8)
        for index in np.flatnonzero(np.bincount(combination_index.ravel(), minlength=len(combinations))):
            if not index:
                continue
            number = self.numbers.setdefault(combinations[index], len(self.numbers) + 1)
            self._check(number)
            numbers[index] = number
        return numbers[combination_index]

    @staticmethod
    def _check(count: int) -> None:
        if count > MAX_CLASSES:
            raise SystemExit(
                f"classes overlap in more than {MAX_CLASSES} combinations: use engine=trainer, which has a channel per class"
            )

    def classes(self) -> dict[int, set[int]]:
        """Return label number -> indices of its classes."""
        return {number: set(places) for places, number in self.numbers.items()}

    def labels(self) -> dict[str, Any]:
        """Return labels for dataset.json: each class with all numbers that contain it."""
        class_numbers = {
            f"class{k + 1}": [n for numbers, n in self.numbers.items() if k in numbers] for k in range(self.count)
        }
        return {
            "background": 0,
            **{name: numbers if len(numbers) > 1 else numbers[0] for name, numbers in class_numbers.items()},
        }


def describe_labels(regions: Regions | None, plan: Mapping[str, Any], ignored: int | None = None) -> dict[str, Any]:
    """Return `labels` of dataset.json, and for overlapping classes the order in which regions are painted.

    Args:
        ignored: number of ignored voxels, above all others.
    """
    count = len(plan["classes"])
    ignore_label = {} if ignored is None else {"ignore": ignored}
    if regions is None:
        return {"labels": {"background": 0, **{f"class{k + 1}": k + 1 for k in range(count)}, **ignore_label}}
    return {"labels": regions.labels() | ignore_label, "regions_class_order": list(range(1, count + 1))}
