"""Cheaper plans for few minutes: fewer patches per step, a narrower network, a coarser grid."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from m3b.training.folds import MIN_FOLDS, max_folds
from m3b.training.machine import machine_of
from m3b.training.plan_table import PlanConditions, choose_settings
from m3b.training.segmentation.patch_shapes import choose_patch, plan_strides, round_up
from m3b.training.segmentation.plan_cost import median_grid_shape
from m3b.training.segmentation.sliding_window import total_strides
from m3b.training.segmentation.thin_structures import coarsest_spacing
from m3b.training.time_budget import PlanChange, reduce_plan

CountSteps = Callable[[dict[str, Any]], int]
NARROW_FILTERS = 8
"""First filters of the narrowest network."""
MAX_COARSENING = 2.1
"""Maximum factor of the grid along an axis: structures of a few voxels have to stay."""

SHORT_TRAINING_LR = 0.01
"""Learning rate of narrow networks with few steps. 400 steps on thirteen synthetic organs gave a Dice of 0.14 at 0.002, 0.55 at 0.006,
0.68 at 0.012 and 0.55 at 0.02; at 0.012 and with weights by size 0.83.
"""
MAX_CLASS_WEIGHT = 12.0
"""Maximum weight of a class. At 4, 800 steps on 35 structures of the brain missed three of 15 to 140 voxels; at 12 none."""
REFERENCE_CLASS_SHARE = 0.02
"""Share of an image at which a class has weight 1 in cross-entropy; smaller classes weigh more, by the root of their share."""

MIN_AUGMENT_SHARE = 0.5
"""Share of the usual probability of augmentation in trainings with few epochs."""
FEW_EPOCHS, FULL_EPOCHS = 12, 25
"""Epochs up to which the probability of augmentation is `MIN_AUGMENT_SHARE` of the usual, and from which it is the usual.

By AdamW one network had a Dice on 53 hippocampi of 0.878 after 12 epochs, 0.881 with half the probability; after 19 epochs 0.884 and
0.883. By Muon 12 epochs had 0.885 with either."""
ELASTIC_SD = 0.07
"""Largest standard deviation of elastic deformations, as a share of a side.

By Muon, after 12 epochs of 107 hippocampi, the Dice of 24 others was 0.889 with an earlier version (three voxels, control points every
ten), 0.885 without; this version was not compared separately.
"""
MIN_VISIBLE_SHARE = 0.85
"""Minimum share of each side of the median image that a trimmed patch shows.

By Muon, two of four folds of 107 hippocampi, Dice of both networks together on 53 others: 8 first filters and whole patches (56 x 40 x
40, 2,000 steps in 710 s) 0.8875, trimmed ones (48 x 32 x 32, 3,700 steps in 840 s) 0.8878, these with 16 first filters (1,270 steps in
750 s) 0.8856.
"""
WHOLE_IMAGE_SHARE = 0.7
"""A patch with this share of each side of the median image shows the whole image, the same each time."""
MAX_CLASSES_NARROW = 4
"""Volumes with at most this number of classes need no wide network.

In trainings on 107 hippocampi the validation Dice was 0.880 after 510 s with 8 filters in the first level, 0.871 after 530 s with 16
(0.883 and 0.878 after 710 and 740 s), with one CPU thread each.
"""


def filter_counts(width: int, stages: int, dims: int) -> list[int]:
    """Return filters of each stage: doubled per stage, up to a limit."""
    return [min(width * 2**stage, 320 if dims == 3 else 512) for stage in range(stages)]


def patches_per_epoch(cases: int, batch: int) -> int:
    """Return the patches of an epoch: a multiple of the cases, at least fifty steps, so that scoring is not too frequent."""
    return cases * max(1, round(50 * batch / cases))


def make_single_patch(cases: int) -> PlanChange:
    """Return a change to one patch per step: with instance normalisation, more steps are better than larger ones."""

    def use_single_patch(plan: dict[str, Any]) -> str:
        if plan["batch"] <= 1 or plan["dims"] == 2:
            return ""
        previous, plan["batch"], plan["epoch_patches"] = plan["batch"], 1, patches_per_epoch(cases, 1)
        return f"one patch a step instead of {previous}"

    return use_single_patch


def make_trim(facts: dict[str, Any]) -> PlanChange:
    """Return a change that rounds patches down, not up, to multiples of the network's strides on axes with the whole median image.

    Patches of small volumes are half margin. Much longer images are predicted in several windows.
    """

    def trim(plan: dict[str, Any]) -> str:
        if int(plan["dims"]) < 3 or plan["chains"]:
            return ""
        previous, median = list(plan["patch"]), median_grid_shape(facts, plan)
        rounded_down = [max(step, n // step * step) for n, step in zip(median, total_strides(plan), strict=True)]
        plan["patch"] = [
            lower if side > length and lower >= MIN_VISIBLE_SHARE * length else side
            for lower, side, length in zip(rounded_down, previous, median, strict=True)
        ]
        return f"patches {plan['patch']} instead of {previous}" if plan["patch"] != previous else ""

    return trim


def _untrimmed_voxels(facts: dict[str, Any], plan: dict[str, Any]) -> int:
    """Return the voxels of the plan's patch before it was trimmed."""
    if int(plan["dims"]) < 3:
        return int(np.prod(plan["patch"]))
    sides = []
    for side, length, step in zip(plan["patch"], median_grid_shape(facts, plan), total_strides(plan), strict=True):
        is_trimmed = MIN_VISIBLE_SHARE * length <= side < length
        sides.append(-(-length // step) * step if is_trimmed else side)
    return int(np.prod(sides))


def narrow_network(plan: dict[str, Any]) -> str:
    """Halve the filters, while the first stage keeps enough."""
    filters_before = plan["network"]["filters"]
    if filters_before[0] // 2 < NARROW_FILTERS:
        return ""
    plan["network"]["filters"] = filter_counts(filters_before[0] // 2, len(filters_before), int(plan["dims"]))
    return f"first filters {filters_before[0] // 2} instead of {filters_before[0]}"


def narrow_for_folds(
    facts: dict[str, Any], plan: dict[str, Any], overrides: set[str], count_steps: CountSteps, min_steps: int
) -> list[str]:
    """Use narrower networks with one patch per step, if several of them (folds) then get enough steps; return the changes.

    Args:
        count_steps: (plan) to the steps of all networks in its minutes.
        min_steps: steps that each fold needs.
    """
    changes = [make_single_patch(int(facts["cases"])), narrow_network]
    changes += [] if "patch" in overrides else [make_trim(facts)]
    fixed = overrides & {"network", "network.filters", "batch", "folds", "refit", "processes"}
    is_fixed = fixed or plan["network"]["name"] != "unet"
    has_folds = max_folds(int(facts["cases"]), int(facts["patients"]))[0] >= MIN_FOLDS
    suits_narrow_networks = (
        int(plan["dims"]) == 3 and len(plan["classes"]) <= MAX_CLASSES_NARROW and not plan.get("chains")
    )
    if is_fixed or not has_folds or not suits_narrow_networks:
        return []
    trial = copy.deepcopy(plan)
    messages = reduce_plan(trial, changes, count_steps, MIN_FOLDS * min_steps)
    if not messages or count_steps(trial) < MIN_FOLDS * min_steps:
        return []
    plan |= trial
    if "lr" not in overrides and plan["network"]["filters"][0] <= NARROW_FILTERS:
        plan["lr"] = SHORT_TRAINING_LR
    return [f"{message}, so that several networks (folds) fit" for message in messages]


def augment_whole_images(
    median: list[int], cases: int, plan: dict[str, Any], count_steps: CountSteps, overrides: set[str]
) -> list[str]:
    """Adapt the augmentation if patches show whole images, the same each time; return the changes.

    Volumes get elastic deformations (`augment.elastic`); with AdamW and few epochs the probability (`augment.often`) is lower.

    Args:
        median: voxels of the median image on the plan's grid.
        count_steps: (plan) to the steps of each network.
    """
    is_whole = all(size >= WHOLE_IMAGE_SHARE * length for size, length in zip(plan["patch"], median, strict=True))
    if not is_whole or plan["engine"] != "trainer" or plan["chains"] or "augment" in overrides:
        return []
    messages = []
    if int(plan["dims"]) == 3 and not plan.get("boxes") and "augment.elastic" not in overrides:
        plan["augment"]["elastic"] = ELASTIC_SD
        messages.append(
            f"elastic deformations (standard deviation up to {ELASTIC_SD:.0%} of a side): patches show whole images"
        )
    if plan.get("optimizer") == "muon" or "augment.often" in overrides:
        return messages
    epochs, usual = count_steps(plan) * int(plan["batch"]) / cases, float(plan["augment"]["often"])
    share = np.interp(epochs, (FEW_EPOCHS, FULL_EPOCHS), (MIN_AUGMENT_SHARE, 1.0))
    if share >= 1:
        return messages
    plan["augment"]["often"] = round(usual * float(share), 3)
    lowered = f"probability of augmentation {plan['augment']['often']:g} instead of {usual:g}"
    return [*messages, f"{lowered}: fewer than {FULL_EPOCHS} epochs"]


def make_coarser_grid(facts: dict[str, Any]) -> PlanChange:
    """Return a change that halves the voxels: of the finest axes, or of the longest side of pictures; a patch covers as much as
    before.
    """
    spacings = facts["spacings"]
    finest = np.ones(int(facts["dims"])) if spacings is None else np.median(spacings, axis=0)
    extent = np.median(facts["shapes"], axis=0) * finest  # not every file has a spacing
    max_spacing = coarsest_spacing(facts.get("widths") or {}) or np.inf

    def coarsen_grid(plan: dict[str, Any]) -> str:
        if plan.get("side"):
            return _shorten_side(facts, plan, min(MAX_COARSENING, float(max_spacing)))
        spacing = np.array(plan["spacing"], float)
        goal = float(np.prod(spacing)) * 2
        for _ in range(100):
            is_fine = (
                (spacing < spacing.min() * 1.05)
                & (spacing * 1.05 <= MAX_COARSENING * finest)
                & (spacing * 1.05 <= max_spacing)
            )
            if not is_fine.any() or np.prod(spacing) >= goal:
                break
            spacing = np.where(is_fine, spacing * 1.05, spacing)
        if np.prod(spacing) < 1.2 * np.prod(plan["spacing"]):
            return ""
        shape = [max(1, round(float(side / step))) for side, step in zip(extent, spacing, strict=True)]
        covered = _untrimmed_voxels(facts, plan)
        previous, plan["spacing"] = plan["spacing"], [round(float(step), 4) for step in spacing]
        _halve_patch(plan, shape, spacing.tolist(), covered)
        return f"spacing {plan['spacing']} instead of {previous}, with patches {plan['patch']}"

    return coarsen_grid


def _shorten_side(facts: dict[str, Any], plan: dict[str, Any], max_factor: float) -> str:
    """Halve the pixels of pictures with one longest side, to at most `max_factor` times coarser than the originals."""
    median = np.median(facts["shapes"], axis=0)
    longest, previous = float(median.max()), plan["side"]
    side = round(previous / 2**0.5 / 16) * 16
    if side < 16 or longest / side > max_factor:
        return ""
    plan["side"] = side
    shape = [max(1, round(float(n) * side / longest)) for n in median]
    _halve_patch(plan, shape, [1.0] * len(median), int(np.prod(plan["patch"])))
    return f"longest side {side} instead of {previous}, with patches {plan['patch']}"


def _halve_patch(plan: dict[str, Any], shape: list[int], spacing: list[float], voxels: int) -> None:
    """Set a patch of half the `voxels` and the network for it, for the median image `shape` on a grid of this spacing."""
    dims, half = int(plan["dims"]), voxels // 2
    settings = choose_settings("segmentation", PlanConditions(dims, "GPU" if machine_of(plan).gpus else "processor"))
    patch = choose_patch(shape, spacing, min(half, settings["patch_voxels"]))
    strides, kernels = plan_strides(patch, spacing)
    plan["patch"] = round_up(patch, strides)
    width = plan["network"]["filters"][0]
    plan["network"] |= {"strides": strides, "kernels": kernels, "filters": filter_counts(width, len(strides), dims)}


def make_halved_patch(facts: dict[str, Any]) -> PlanChange:
    """Return a change that halves the patch, if a coarser grid would break up thin structures."""
    max_spacing = coarsest_spacing(facts.get("widths") or {})

    def halve_patch(plan: dict[str, Any]) -> str:
        patch, previous = [int(n) for n in plan["patch"]], list(plan["patch"])
        longest, min_side = int(np.argmax(patch)), 64 if plan["dims"] == 2 else 32
        if max_spacing is None or patch[longest] < 2 * min_side or min(plan["spacing"] or [1.0]) * 1.05 <= max_spacing:
            return ""
        patch[longest] //= 2
        strides, kernels = plan_strides(patch, list(plan["spacing"] or [1.0] * len(patch)))
        width = plan["network"]["filters"][0]
        plan["patch"] = round_up(patch, strides)
        plan["network"] |= {"strides": strides, "kernels": kernels}
        plan["network"]["filters"] = filter_counts(width, len(strides), int(plan["dims"]))
        return f"patches {plan['patch']} instead of {previous}, since the structures are thin"

    return halve_patch


def raise_rate_and_weights(facts: dict[str, Any], plan: dict[str, Any], overrides: set[str]) -> list[str]:
    """Set a higher learning rate, and class weights so that few steps suffice for small classes; return the changes."""
    messages = []
    if "lr" not in overrides:
        plan["lr"] = SHORT_TRAINING_LR
        messages.append(f"lr {SHORT_TRAINING_LR}, since the steps are few")
    if not overrides & {"loss", "loss.weights"} and len(plan["classes"]) > 1:
        voxels = float(np.prod(np.median(facts["shapes"], axis=0)))
        sizes = [
            float(np.median([n for n in facts["sizes"][name] if n] or [REFERENCE_CLASS_SHARE * voxels]))
            for name in plan["classes"]
        ]
        plan["loss"]["weights"] = [
            round(float(np.clip((REFERENCE_CLASS_SHARE * voxels / n) ** 0.5, 0.5, MAX_CLASS_WEIGHT)), 2) for n in sizes
        ]
        messages.append("small classes weigh more in the loss, since the steps are few")
    return messages
