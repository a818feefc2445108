"""Cheaper plans for few minutes: fewer patches a step, a narrower network, a coarser grid."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from m3b.training.folds import FEWEST, most_folds
from m3b.training.machine import machine_of
from m3b.training.segmentation.patch_shapes import PATCH, choose_patch, round_up, topology
from m3b.training.segmentation.plan_cost import median_there
from m3b.training.segmentation.sliding_window import steps_of
from m3b.training.segmentation.thin_structures import finest_needed
from m3b.training.time_budget import Way, fit

Count = Callable[[dict[str, Any]], int]
NARROW = 8
COARSE = 2.1
"""The grid becomes at most so much coarser along an axis: structures of a few voxels have to stay."""

RATE = 0.01
"""Learning rate of narrow networks with few steps. 400 steps on thirteen drawn organs gave a Dice of 0.14 at 0.002, 0.55 at
0.006, 0.68 at 0.012 and 0.55 at 0.02; at 0.012 and with weights by size 0.83."""
HEAVIEST = 12.0
"""No class weighs more. At 4, 800 steps on 35 structures of the brain left three of 15 to 140 voxels out; at 12 none."""
USUAL = 0.02
"""Share of an image at which a class weighs 1 in cross-entropy; smaller ones weigh more, by the root of their share."""

LIGHTEST = 0.5
FEW_EPOCHS, FULL_EPOCHS = 12, 25
"""Epochs up to which the probability of augmentation is `LIGHTEST` of the usual, and from which it is the usual. By AdamW one network
had a Dice on 53 hippocampi of 0.878 after 12 epochs, 0.881 with half the probability; after 19 epochs 0.884 and 0.883. By Muon 12
epochs had 0.885 with either."""
ELASTIC = 0.07
"""Largest standard deviation of elastic deformations, as a share of a side. By Muon, after 12 epochs of 107 hippocampi, the Dice of 24
others was 0.889 with a first form of it (three voxels, control points every ten), 0.885 without; this one was not compared alone."""
SHOWN = 0.85
"""A patch that is trimmed still shows so much of each side of the median image. By Muon, two of four folds of 107 hippocampi, Dice of
both networks together on 53 others: 8 first filters and whole patches (56 x 40 x 40, 2,000 steps in 710 s) 0.8875, trimmed ones (48 x
32 x 32, 3,700 steps in 840 s) 0.8878, these with 16 first filters (1,270 steps in 750 s) 0.8856."""
WHOLE_IMAGE = 0.7
"""A patch with this share of each side of the median image shows the image whole, the same each time."""
FEW_CLASSES = 4
"""Volumes with at most so many classes need no wide network: in trainings on 107 hippocampi the validation Dice was 0.880 after 510 s
with 8 filters in the first level, 0.871 after 530 s with 16 (0.883 and 0.878 after 710 and 740 s), one processor thread each."""


def filters(width: int, stages: int, dims: int) -> list[int]:
    """Twice as many a stage, up to a limit."""
    return [min(width * 2**k, 320 if dims == 3 else 512) for k in range(stages)]


def epoch_patches(cases: int, batch: int) -> int:
    """Patches an epoch: a multiple of the cases, at least fifty steps long, so that scoring does not come too often."""
    return cases * max(1, round(50 * batch / cases))


def one_patch(cases: int) -> Way:
    """One patch a step: with instance normalisation, more steps teach more than larger ones."""

    def way(plan: dict[str, Any]) -> str:
        if plan["batch"] <= 1 or plan["dims"] == 2:
            return ""
        before, plan["batch"], plan["epoch_patches"] = plan["batch"], 1, epoch_patches(cases, 1)
        return f"one patch a step instead of {before}"

    return way


def trimmed(facts: dict[str, Any]) -> Way:
    """Patches rounded down to what the network divides, not up, along the axes of which they show the median image whole: patches of
    small volumes are half margin. Images that are a good deal longer are answered in several windows."""

    def way(plan: dict[str, Any]) -> str:
        if int(plan["dims"]) < 3 or plan["chains"]:
            return ""
        before, median = list(plan["patch"]), median_there(facts, plan)
        down = [max(step, length // step * step) for length, step in zip(median, steps_of(plan), strict=True)]
        plan["patch"] = [
            less if have > length and less >= SHOWN * length else have
            for less, have, length in zip(down, before, median, strict=True)
        ]
        return f"patches {plan['patch']} instead of {before}" if plan["patch"] != before else ""

    return way


def _untrimmed(facts: dict[str, Any], plan: dict[str, Any]) -> int:
    """Voxels of the plan's patch before it was trimmed."""
    if int(plan["dims"]) < 3:
        return int(np.prod(plan["patch"]))
    sides = zip(plan["patch"], median_there(facts, plan), steps_of(plan), strict=True)
    return int(
        np.prod([-(-long // step) * step if SHOWN * long <= have < long else have for have, long, step in sides])
    )


def narrower(plan: dict[str, Any]) -> str:
    """Half the filters, as long as the first stage keeps enough."""
    wide = plan["network"]["filters"]
    if wide[0] // 2 < NARROW:
        return ""
    plan["network"]["filters"] = filters(wide[0] // 2, len(wide), int(plan["dims"]))
    return f"first filters {wide[0] // 2} instead of {wide[0]}"


def narrow_for_folds(
    facts: dict[str, Any], plan: dict[str, Any], kept: set[str], counted: Count, enough: int
) -> list[str]:
    """Narrower networks with one patch a step, where several of them (folds) get enough steps and wider ones do not; what was
    changed.

    Args:
        counted: (plan) to the steps of all networks that its minutes hold.
        enough: steps that each fold needs.
    """
    ways = [one_patch(int(facts["cases"])), narrower, *([] if "patch" in kept else [trimmed(facts)])]
    by_hand = kept & {"network", "network.filters", "batch", "folds", "refit", "processes"}
    settled = by_hand or plan["network"]["name"] != "unet"
    several = most_folds(int(facts["cases"]), int(facts["patients"]))[0] >= FEWEST
    if settled or not several or int(plan["dims"]) < 3 or len(plan["classes"]) > FEW_CLASSES or plan.get("chains"):
        return []
    trial = copy.deepcopy(plan)
    said = fit(trial, ways, counted, FEWEST * enough)
    if not said or counted(trial) < FEWEST * enough:
        return []
    plan |= trial
    if "lr" not in kept and plan["network"]["filters"][0] <= NARROW:
        plan["lr"] = RATE
    return [f"{text}, so that several networks (folds) fit" for text in said]


def augment_whole_images(
    median: list[int], cases: int, plan: dict[str, Any], counted: Count, kept: set[str]
) -> list[str]:
    """What is altered otherwise where patches show whole images, each time the same; what was changed.

    Volumes are deformed too (`augment.elastic`); with AdamW the probability (`augment.often`) is lower while epochs are few.

    Args:
        median: voxels of the median image on the plan's grid.
        counted: (plan) to the steps of each network.
    """
    whole = all(size >= WHOLE_IMAGE * length for size, length in zip(plan["patch"], median, strict=True))
    if not whole or plan["engine"] != "trainer" or plan["chains"] or "augment" in kept:
        return []
    said = []
    if int(plan["dims"]) == 3 and "augment.elastic" not in kept:
        plan["augment"]["elastic"] = ELASTIC
        said.append(
            f"elastic deformations (standard deviation up to {ELASTIC:.0%} of a side): patches show whole images"
        )
    if plan.get("optimizer") == "muon" or "augment.often" in kept:
        return said
    epochs, usual = counted(plan) * int(plan["batch"]) / cases, float(plan["augment"]["often"])
    share = np.interp(epochs, (FEW_EPOCHS, FULL_EPOCHS), (LIGHTEST, 1.0))
    if share >= 1:
        return said
    plan["augment"]["often"] = round(usual * float(share), 3)
    lowered = f"probability of augmentation {plan['augment']['often']:g} instead of {usual:g}"
    return [*said, f"{lowered}: {epochs:.0f} epochs, the usual from {FULL_EPOCHS} on"]


def coarser(facts: dict[str, Any]) -> Way:
    """Half the voxels: the finest axes give way, or the longest side of pictures; the patch sees as much as before."""
    known = facts["spacings"]
    finest = np.ones(int(facts["dims"])) if known is None else np.median(known, axis=0)
    extent = np.median(facts["shapes"], axis=0) * finest  # not every file has a spacing
    enough = finest_needed(facts.get("widths") or {}) or np.inf

    def way(plan: dict[str, Any]) -> str:
        if plan.get("side"):
            return _shorter_side(facts, plan, min(COARSE, float(enough)))
        spacing = np.array(plan["spacing"], float)
        goal = float(np.prod(spacing)) * 2
        for _ in range(100):
            fine = (spacing < spacing.min() * 1.05) & (spacing * 1.05 <= COARSE * finest) & (spacing * 1.05 <= enough)
            if not fine.any() or np.prod(spacing) >= goal:
                break
            spacing = np.where(fine, spacing * 1.05, spacing)
        if np.prod(spacing) < 1.2 * np.prod(plan["spacing"]):
            return ""
        shape = [max(1, round(float(e / s))) for e, s in zip(extent, spacing, strict=True)]
        shown = _untrimmed(facts, plan)
        before, plan["spacing"] = plan["spacing"], [round(float(s), 4) for s in spacing]
        _halve_patch(plan, shape, spacing.tolist(), shown)
        return f"spacing {plan['spacing']} instead of {before}, with patches {plan['patch']}"

    return way


def _shorter_side(facts: dict[str, Any], plan: dict[str, Any], most: float) -> str:
    """Half the pixels of pictures that are brought to one longest side, never more than `most` times coarser than they are."""
    median = np.median(facts["shapes"], axis=0)
    longest, before = float(median.max()), plan["side"]
    side = round(before / 2**0.5 / 16) * 16
    if side < 16 or longest / side > most:
        return ""
    plan["side"] = side
    _halve_patch(
        plan,
        [max(1, round(float(n) * side / longest)) for n in median],
        [1.0] * len(median),
        int(np.prod(plan["patch"])),
    )
    return f"longest side {side} instead of {before}, with patches {plan['patch']}"


def _halve_patch(plan: dict[str, Any], shape: list[int], spacing: list[float], voxels: int) -> None:
    """Patch of half the `voxels` and the network for it, for the median image `shape` on a grid of this spacing."""
    dims, half = int(plan["dims"]), voxels // 2
    patch = choose_patch(shape, spacing, dims, gpu=False, most=min(half, PATCH[dims, machine_of(plan).gpus > 0]))
    strides, kernels = topology(patch, spacing)
    plan["patch"] = round_up(patch, strides)
    width = plan["network"]["filters"][0]
    plan["network"] |= {"strides": strides, "kernels": kernels, "filters": filters(width, len(strides), dims)}


def smaller_patch(facts: dict[str, Any]) -> Way:
    """Half the patch, where a coarser grid would break up what is thin."""
    enough = finest_needed(facts.get("widths") or {})

    def way(plan: dict[str, Any]) -> str:
        patch, before = [int(n) for n in plan["patch"]], list(plan["patch"])
        longest, least = int(np.argmax(patch)), 64 if plan["dims"] == 2 else 32
        if enough is None or patch[longest] < 2 * least or min(plan["spacing"] or [1.0]) * 1.05 <= enough:
            return ""
        patch[longest] //= 2
        strides, kernels = topology(patch, list(plan["spacing"] or [1.0] * len(patch)))
        width = plan["network"]["filters"][0]
        plan["patch"] = round_up(patch, strides)
        plan["network"] |= {"strides": strides, "kernels": kernels}
        plan["network"]["filters"] = filters(width, len(strides), int(plan["dims"]))
        return f"patches {plan['patch']} instead of {before}, since what is marked is thin"

    return way


def hurry(facts: dict[str, Any], plan: dict[str, Any], given: set[str]) -> list[str]:
    """A higher rate, and weights so that small classes are not passed over in the few steps; what was changed."""
    said = []
    if "lr" not in given:
        plan["lr"] = RATE
        said.append(f"lr {RATE}")
    if not given & {"loss", "loss.weights"} and len(plan["classes"]) > 1:
        voxels = float(np.prod(np.median(facts["shapes"], axis=0)))
        sizes = [
            float(np.median([n for n in facts["sizes"][name] if n] or [USUAL * voxels])) for name in plan["classes"]
        ]
        plan["loss"]["weights"] = [round(float(np.clip((USUAL * voxels / n) ** 0.5, 0.5, HEAVIEST)), 2) for n in sizes]
        said.append("small classes weigh more in the loss")
    return said
