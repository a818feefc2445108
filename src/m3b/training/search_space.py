"""Settings that a search over plans varies: a table for each task, like `plan_table`, from which candidates are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from m3b.training.plan_table import PLAN_TABLES, choose_settings

MIN_SIDE = 28
"""Minimum side of an input that a search makes smaller."""
UNSCALED_AUGMENTATIONS = ("flip", "often", "channel_dropout")
"""Settings of `augment` that are no strengths."""


@dataclass(frozen=True)
class Dimension:
    """A setting of plan.json and its alternatives.

    Args:
        key: dotted name; `augment` stands for all strengths of the augmentation.
        factors: multiples of the value in the plan, the most promising first.
        values: values to replace it by.
        conditions: `2D`, `3D`, `GPU` or `processor`, separated by commas; all must hold.
        is_derived: whether plan.py derives other settings from it, so that a plan with it is made anew.
    """

    key: str
    factors: tuple[float, ...] = ()
    values: tuple[Any, ...] = ()
    conditions: str = ""
    is_derived: bool = False


def _table_networks(task: str) -> tuple[str, ...]:
    """Return the networks that the rows of a task's table name."""
    names = [row.settings["network"]["name"] for row in PLAN_TABLES[task] if "network" in row.settings]
    return tuple(dict.fromkeys(names))


_CLASSIFIERS = (
    Dimension("lr", factors=(3.0, 1 / 3)),
    Dimension("network.width", factors=(2.0, 0.5), is_derived=True),
    Dimension("network.name", values=_table_networks("diagnosis"), conditions="GPU", is_derived=True),
    Dimension("augment", factors=(0.5, 1.5)),
    Dimension("size", factors=(1.5, 0.75), is_derived=True),
    Dimension("network.dropout", values=(0.1, 0.5)),
    Dimension("weight_decay", factors=(5.0, 0.2)),
    Dimension("label_smoothing", values=(0.0, 0.1)),
    Dimension("network.pretrained", values=("none",), is_derived=True),
)
SEARCH_SPACES: Mapping[str, Sequence[Dimension]] = {
    **dict.fromkeys(("diagnosis", "grading", "survival", "regression"), _CLASSIFIERS),
    "segmentation": (
        Dimension("lr", factors=(2.0, 0.5)),
        Dimension("optimizer", values=("adamw", "muon")),
        Dimension("loss.voxel", values=("focal", "ce")),
        Dimension("augment", factors=(0.5, 1.5)),
        Dimension("network.name", values=("unet", "segresnet"), is_derived=True),
        Dimension("foreground", values=(0.33, 0.66)),
        Dimension("weight_decay", factors=(5.0, 0.2)),
    ),
    "detection": (
        Dimension("lr", factors=(2.0, 0.5)),
        Dimension("foreground", values=(0.33, 0.5, 0.66)),
        Dimension("augment", factors=(0.5, 1.5)),
        Dimension("weight_decay", factors=(5.0, 0.2)),
    ),
    "report": (
        Dimension("lr", factors=(2.0, 0.5)),
        Dimension("dropout", values=(0.1, 0.3)),
        Dimension("hide_image", values=(0.25, 0.5)),
        Dimension("image_gradient", values=(0.1, 0.3, 1.0)),
        Dimension("augment", factors=(0.5, 1.5)),
        Dimension("label_smoothing", values=(0.0, 0.1)),
    ),
}
"""Task -> its dimensions, the most promising first. Which are promising was not compared."""
COMMON_DIMENSIONS = (Dimension("lr", factors=(3.0, 1 / 3)), Dimension("weight_decay", factors=(5.0, 0.2)))
"""Dimensions of tasks and templates of other packages, as far as their plans have them."""


def min_steps_of(task: str) -> int:
    """Return the steps below which the plan table takes a coarser input or a narrower network; 0 for a task without one."""
    table = "diagnosis" if SEARCH_SPACES.get(task) is _CLASSIFIERS else task
    return int(choose_settings(table)["min_steps"]) if table in PLAN_TABLES else 0


def list_searched_keys(task: str, fixed: Sequence[str] = ()) -> list[str]:
    """Return the settings that a search varies on any machine, before there is a plan that decides which of them it has.

    Args:
        fixed: settings that the user fixed.
    """
    keys = (dimension.key for dimension in SEARCH_SPACES.get(task, COMMON_DIMENSIONS) if not dimension.conditions)
    return [key for key in dict.fromkeys(keys) if not any(is_same_branch(key, name) for name in fixed)]


def list_alternatives(dimension: Dimension, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings by which a plan moves along a dimension; empty if the plan has no such setting, or no other value."""
    if dimension.key == "augment":
        return [settings for factor in dimension.factors if (settings := _scale_augmentation(plan, factor))]
    value = _look_up(plan, dimension.key)
    if value is None or isinstance(value, bool) or (dimension.key == "network.pretrained" and not value):
        return []
    if dimension.key == "size":
        sizes = [_scale_size(value, factor) for factor in dimension.factors]
        return [{"size": size} for size in sizes if size and size != value]
    if dimension.factors and isinstance(value, int | float) and value > 0:
        scaled = [_scale(value, factor) for factor in dimension.factors]
        return [{dimension.key: item} for item in scaled if item != value]
    return [{dimension.key: item} for item in dimension.values if item != value]


def list_dimensions(
    task: str, plan: Mapping[str, Any], *, has_gpu: bool, fixed: Sequence[str] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Return key of a dimension -> the settings of its alternatives, for the dimensions in which this plan can vary.

    Args:
        fixed: dotted settings that the user fixed; dimensions with such a setting, or one below or above it, are left out.
    """
    conditions = {f"{plan.get('dims')}D", "GPU" if has_gpu else "processor"}
    space = {}
    for dimension in SEARCH_SPACES.get(task, COMMON_DIMENSIONS):
        if dimension.conditions and not set(dimension.conditions.split(", ")) <= conditions:
            continue
        if any(is_same_branch(dimension.key, key) for key in fixed):
            continue
        if alternatives := list_alternatives(dimension, plan):
            space[dimension.key] = alternatives
    return space


def needs_new_plan(task: str, settings: Mapping[str, Any]) -> bool:
    """Return whether plan.py derives other values from one of these settings, so that it has to make the plan anew."""
    kept = {item.key for item in SEARCH_SPACES.get(task, COMMON_DIMENSIONS) if not item.is_derived}
    return any(key not in kept and not key.startswith("augment.") for key in settings)


def is_same_branch(key: str, other_key: str) -> bool:
    """Return whether two dotted settings are the same, or one holds the other."""
    return key == other_key or key.startswith(f"{other_key}.") or other_key.startswith(f"{key}.")


def _look_up(plan: Any, key: str) -> Any:
    for part in key.split("."):
        plan = plan.get(part) if isinstance(plan, Mapping) else None
    return plan


def _scale(value: float, factor: float) -> float:
    """Return a multiple of a number, rounded to two significant digits; a whole number stays one."""
    scaled = float(f"{value * factor:.2g}")
    return max(1, round(value * factor)) if isinstance(value, int) else scaled


def _scale_augmentation(plan: Mapping[str, Any], factor: float) -> dict[str, Any]:
    augment = plan.get("augment")
    if not isinstance(augment, Mapping):
        return {}
    return {
        f"augment.{name}": float(f"{value * factor:.2g}")
        for name, value in augment.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and value > 0
        and name not in UNSCALED_AUGMENTATIONS
    }


def _scale_size(size: Any, factor: float) -> list[int]:
    """Return an input of other sides, multiples of 4; empty if the plan has none or a side became too small."""
    if not isinstance(size, list) or not all(isinstance(side, int) for side in size):
        return []
    scaled = [max(4, round(side * factor / 4) * 4) for side in size]
    return scaled if min(scaled) >= min(MIN_SIDE, *size) else []
