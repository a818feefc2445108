"""Fit a plan to the memory of a GPU: by trial steps on a local one, by an estimate for another machine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from m3b.training.entry import count_cores
from m3b.training.machine import GB, Machine, machine_of
from m3b.training.step_cost import TRAINER_STEP_SECONDS, WEIGHT_STATES, StepCosts, micro_batch
from m3b.training.time_budget import (
    ComparePlans,
    PlanChange,
    TrainingCosts,
    choose_precision,
    describe_reductions,
    reduce_plan,
)

Plan = dict[str, Any]
MAX_ACCUMULATION = 8
"""Maximum parts of a step, computed in sequence (gradient accumulation)."""
MIN_LAYOUT_MINUTES = 4.0
"""Minutes of a training from which both memory layouts are timed on a processor, which takes some seconds."""
MAX_LAYOUT_RATIO = 0.93
"""On a processor, channels last needs at most this share of the time to be chosen: other programs disturb the timing."""
MIN_STEPS_OF_LARGER_PLAN = 2500
"""A larger plan is chosen only if the minutes still hold so many steps."""


def apply_machine(plan: Plan, machine: Machine) -> None:
    """Set what follows from a machine with GPUs: precision, workers, compiling."""
    if not machine.gpus:
        return
    plan["machine"], plan["precision"], plan["compile"] = machine.to_plan(), machine.half, "auto"
    plan["workers"] = max(1, min(8, count_cores() // machine.gpus)) if machine.is_local else 8


def share_gpus(plan: Plan, max_batch: int, overrides: Collection[str] = ()) -> None:
    """Let several GPUs share the folds, or a larger batch with a higher learning rate (AdamW: by the square root).

    Args:
        max_batch: largest batch that the data allow.
        overrides: keys that were set by hand and stay.
    """
    gpus, original = machine_of(plan).gpus, int(plan["batch"])
    if gpus < 2 or "processes" in overrides:
        return
    if int(plan.get("folds") or 1) > 1:
        plan["processes"] = min(gpus, int(plan["folds"]))
        return
    if "batch" not in overrides:
        plan["batch"] = max(original, min(original * gpus, max_batch))
    plan["processes"] = max(1, min(gpus, int(plan["batch"]) // int(plan.get("least_batch", 2))))
    if "lr" not in overrides:
        plan["lr"] = round(float(plan["lr"]) * (int(plan["batch"]) / original) ** 0.5, 6)


@dataclass(frozen=True)
class PlanChanges:
    """Changes of a task's plan, applied in order.

    Args:
        cheaper: if the minutes hold too few steps.
        smaller: if the memory does not suffice.
        larger: if there is more of both.
    """

    cheaper: Sequence[PlanChange] = ()
    smaller: Sequence[PlanChange] = ()
    larger: Sequence[PlanChange] = ()


def fit_to_gpu(
    plan: Plan,
    costs: StepCosts,
    reductions: PlanChanges,
    steps: Callable[[Plan], float],
    min_steps: int,
    overrides: set[str],
) -> list[str]:
    """Fit the plan to the minutes and the memory of its GPUs; return lines on what was done.

    Args:
        steps: (plan) to the steps that its minutes hold.
        min_steps: that a training needs.
        overrides: keys that were set by hand.

    Raises:
        SystemExit: even the smallest plan does not fit.
    """
    if "channels_last" not in overrides:
        choose_layout(plan, costs.compare_seconds)
    changes = describe_reductions(reduce_plan(plan, reductions.cheaper, steps, min_steps))
    changes += fit_memory(plan, costs, reductions.smaller, reductions.larger, steps)
    return [machine_of(plan).describe(), *changes]


def estimate_costs(
    plan: Plan, costs: StepCosts, forward_passes: float, final: Callable[[float], float]
) -> TrainingCosts:
    """Estimate the costs on a machine that is not local.

    Args:
        forward_passes: of one case (window) in one scoring.
        final: (seconds of one forward pass) to the seconds reserved for the end.
    """
    step = costs.estimate_seconds(plan) + TRAINER_STEP_SECONDS
    # the backward pass takes twice as long as the forward pass
    forward = (step - TRAINER_STEP_SECONDS) / 3 / (micro_batch(plan) * int(plan.get("accumulate") or 1))
    return TrainingCosts(step, forward * forward_passes, final(forward), is_measured=False)


def choose_precision_and_layout(plan: Plan, overrides: Collection[str], compare: ComparePlans) -> None:
    """Choose the faster precision, and on processors the faster memory layout, unless set by hand. On GPUs `fit_to_gpu` chooses the
    layout, when the batch is known."""
    if "precision" not in overrides and not machine_of(plan).is_remote:
        choose_precision(plan, compare)
    if "channels_last" not in overrides and not machine_of(plan).gpus:
        choose_layout(plan, compare)


def choose_layout(plan: Plan, compare: ComparePlans) -> None:
    """Choose channels last if alternating measurements show that it is faster: on GPUs in half precision (in 2D if nothing can be
    measured, which cuDNN's half precision is made for), on processors from `MIN_LAYOUT_MINUTES` on. A training of `max_steps` must be
    reproducible and does not depend on timing."""
    machine = machine_of(plan)
    short = float(plan["minutes"]) < MIN_LAYOUT_MINUTES or plan.get("max_steps")
    if plan["precision"] == "fp32" if machine.gpus else short:
        return
    if machine.is_remote:
        plan["channels_last"] = int(plan["dims"]) == 2
        return
    last, usual = compare([{**plan, "channels_last": is_channels_last} for is_channels_last in (True, False)])
    plan["channels_last"] = last < (0.98 if machine.gpus else MAX_LAYOUT_RATIO) * usual


def split_step(plan: Plan) -> str:
    """Compute the same step in twice as many parts."""
    parts = int(plan.get("accumulate") or 1)
    if 2 * parts > MAX_ACCUMULATION or micro_batch(plan) <= max(1, int(plan.get("least_batch", 2))):
        return ""
    plan["accumulate"] = 2 * parts
    return f"steps of {plan['batch']} cases in {2 * parts} parts"


def finer_input(median: Sequence[float], dims: int, finest: int) -> PlanChange:
    """Return a change that enlarges each side of the input by a quarter, up to the images' own; 2D inputs stay square.

    Args:
        median: sides of the typical image.
        finest: maximum side of the input.
    """
    typical_sides, step = ([max(median)] * 2, 16) if dims == 2 else (list(median), 8)

    def change(plan: Plan) -> str:
        original = list(plan["size"])
        sides = [
            max(side, min(round(1.25 * side / step) * step, finest, round(float(length) / step) * step))
            for side, length in zip(original, typical_sides, strict=True)
        ]
        if sides == original:
            return ""
        plan["size"] = sides
        return f"input {sides} instead of {original}"

    return change


def larger_batch(max_batch: int) -> PlanChange:
    """Return a change that doubles the batch and raises the learning rate (AdamW: by the square root)."""

    def change(plan: Plan) -> str:
        if 2 * int(plan["batch"]) > max_batch:
            return ""
        plan["batch"], plan["lr"] = 2 * int(plan["batch"]), round(float(plan["lr"]) * 2**0.5, 6)
        return f"batch {plan['batch']}, lr {plan['lr']}"

    return change


def fit_memory(
    plan: Plan,
    costs: StepCosts,
    smaller: Sequence[PlanChange],
    larger: Sequence[PlanChange] = (),
    steps: Callable[[Plan], float] = lambda plan: float("inf"),
) -> list[str]:
    """Make the plan smaller until it fits its machine, or larger while it fits and the minutes hold `MIN_STEPS_OF_LARGER_PLAN`.

    Args:
        smaller, larger: changes in order.
        steps: (plan) to the steps that its minutes hold.

    Returns:
        Lines on the changes, then a line on the memory.

    Raises:
        SystemExit: even the smallest plan does not fit.
    """
    machine, changes, peak_before = machine_of(plan), [], costs.peak(plan)
    reduced = _shrink(plan, costs, smaller, machine)
    if reduced:
        changes.append(f"reduced to fit {machine.memory:g} GB: {'; '.join(reduced)}")
    else:
        enlarged = _grow(plan, costs, larger, steps, machine)
        changes += [f"enlarged, since {machine.memory:g} GB suffice: {'; '.join(enlarged)}"] if enlarged else []
    peak = costs.peak(plan) if changes else peak_before
    return [*changes, describe_memory(plan, costs, peak)]


def _shrink(plan: Plan, costs: StepCosts, reductions: Sequence[PlanChange], machine: Machine) -> list[str]:
    changes = []
    while (peak := costs.peak(plan)) > machine.usable_bytes:
        change = next((text for change in reductions if (text := change(plan))), "")
        if not change:
            need = f"{peak / GB + machine.memory - machine.usable_bytes / GB:.1f} GB" if isfinite(peak) else "more"
            raise SystemExit(
                f"{machine.memory:g} GB do not hold a training step of this plan, which needs {need} and cannot be reduced: set a "
                "smaller patch, size or network (--set), end other programs on the GPU (nvidia-smi), or use a larger GPU"
            )
        changes.append(change)
    return changes


def _grow(
    plan: Plan, costs: StepCosts, reductions: Sequence[PlanChange], steps: Callable[[Plan], float], machine: Machine
) -> list[str]:
    changes = []
    for way in reductions:
        while True:
            trial = copy.deepcopy(plan)
            change = way(trial)
            if not change or costs.peak(trial) > machine.usable_bytes or steps(trial) < MIN_STEPS_OF_LARGER_PLAN:
                break
            plan.clear()
            plan.update(trial)
            changes.append(change)
    return changes


def describe_memory(plan: Plan, costs: StepCosts, peak: float) -> str:
    """Return a line on the use of the memory."""
    machine, cases = machine_of(plan), micro_batch(plan)
    used = f"GPU memory: {peak / GB:.2f} of {machine.usable_bytes / GB:.1f} GB usable ({machine.memory:g} GB in total)"
    parts = f", {plan['accumulate']} parts a step" if int(plan.get("accumulate") or 1) > 1 else ""
    if not machine.is_remote:
        return f"{used}, measured with a trial step{parts}"
    estimate = costs.estimate(plan)
    states = (WEIGHT_STATES + 1) * estimate.weights / GB
    return (
        f"{used}, an estimate from parameters and activations of a small input: weights with gradients, moments and average "
        f"{states:.2f} GB, {cases} case{'s' if cases > 1 else ''} of {estimate.per_case / GB:.2f} GB each{parts}"
    )
