"""A plan fitted to the memory of a GPU: by what a step needs (`memory_tracing`), and by a real step where the GPU is here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from m3b.training.entry import cores
from m3b.training.machine import GB, Machine, machine_of
from m3b.training.step_cost import SPARE, STATES, StepCosts, micro_batch, step_seconds
from m3b.training.time_budget import Costs, Way, choose_precision, fit, told

Plan = dict[str, Any]
PARTS = 8
"""A step is made in at most so many parts, one after the other."""
LAYOUT_MINUTES = 4.0
"""Minutes of a training from which both memory layouts are timed on a processor, which takes some seconds."""
LAYOUT_SHARE = 0.93
"""On a processor channels last is taken where a step takes at most this share of the time: other programs disturb the timing."""
FEWEST_STEPS = 2500
"""A larger plan is taken where the minutes still hold so many steps."""


def for_machine(plan: Plan, machine: Machine) -> None:
    """What follows from a machine with GPUs alone: precision, workers, compiling."""
    if not machine.gpus:
        return
    plan["machine"], plan["precision"], plan["compile"] = machine.entry(), machine.half, "auto"
    plan["workers"] = max(1, min(8, cores() // machine.gpus)) if machine.here else 8


def share_gpus(plan: Plan, most: int, kept: Collection[str] = ()) -> None:
    """Several GPUs share the folds, or a larger batch with the rate that goes with it (AdamW: by the root).

    Args:
        most: cases a step that the data allow.
        kept: what was set by hand and stays.
    """
    gpus, before = machine_of(plan).gpus, int(plan["batch"])
    if gpus < 2 or "processes" in kept:
        return
    if int(plan.get("folds") or 1) > 1:
        plan["processes"] = min(gpus, int(plan["folds"]))
        return
    if "batch" not in kept:
        plan["batch"] = max(before, min(before * gpus, most))
    plan["processes"] = max(1, min(gpus, int(plan["batch"]) // int(plan.get("least_batch", 2))))
    if "lr" not in kept:
        plan["lr"] = round(float(plan["lr"]) * (int(plan["batch"]) / before) ** 0.5, 6)


@dataclass(frozen=True)
class Ways:
    """How a template's plan becomes another, one way after the other.

    Args:
        cheaper: where the minutes hold too few steps.
        smaller: where the memory is too little.
        larger: where there is more of both.
    """

    cheaper: Sequence[Way] = ()
    smaller: Sequence[Way] = ()
    larger: Sequence[Way] = ()


def fit_gpu(
    plan: Plan, costs: StepCosts, ways: Ways, steps: Callable[[Plan], float], least: int, kept: set[str]
) -> list[str]:
    """Fit the plan to minutes and memory of its GPUs; what was done, for people.

    Args:
        steps: (plan) to the steps that its minutes hold.
        least: steps that a training needs.
        kept: settings that were made by hand.

    Raises:
        SystemExit: even the smallest plan does not fit.
    """
    if "channels_last" not in kept:
        choose_layout(plan, lambda trial: step_seconds(trial, costs))
    said = told(fit(plan, ways.cheaper, steps, least))
    said += fit_memory(plan, costs, ways.smaller, ways.larger, steps)
    return [machine_of(plan).told(), *said, *(probe(plan, costs, ways.smaller) if machine_of(plan).here else [])]


def dry_costs(plan: Plan, costs: StepCosts, looked_at: float, final: Callable[[float], float]) -> Costs:
    """Estimated for a machine that is not here.

    Args:
        looked_at: forward passes of one case (window) that a scoring takes.
        final: (seconds of one forward pass) to what is kept free at the end.
    """
    step = costs.seconds(plan) + SPARE
    forward = (
        (step - SPARE) / 3 / (micro_batch(plan) * int(plan.get("accumulate") or 1))
    )  # the way back takes twice as long
    return Costs(step, forward * looked_at, final(forward))


def choose_precision_and_layout(plan: Plan, kept: Collection[str], seconds: Callable[[Plan], float]) -> None:
    """Puts the quicker precision, and on processors the quicker memory layout, into the plan; what was set stays. On GPUs `fit_gpu`
    chooses the layout, when it knows the batch."""
    if "precision" not in kept and not machine_of(plan).dry:
        choose_precision(plan, seconds)
    if "channels_last" not in kept and not machine_of(plan).gpus:
        choose_layout(plan, seconds)


def choose_layout(plan: Plan, seconds: Callable[[Plan], float]) -> None:
    """Channels last where it is quicker as measured in turns: on GPUs in half precision (where nothing can be measured, in 2D, for
    which cuDNN's half precision is made), on processors from `LAYOUT_MINUTES` on. A training of `max_steps`, which has to repeat
    exactly, does not depend on a timing."""
    machine = machine_of(plan)
    short = float(plan["minutes"]) < LAYOUT_MINUTES or plan.get("max_steps")
    if plan["precision"] == "fp32" if machine.gpus else short:
        return
    if machine.dry:
        plan["channels_last"] = int(plan["dims"]) == 2
        return
    times = {True: float("inf"), False: float("inf")}
    for _ in range(2):
        for last in times:
            times[last] = min(times[last], seconds({**plan, "channels_last": last}))
    plan["channels_last"] = times[True] < (0.98 if machine.gpus else LAYOUT_SHARE) * times[False]


def in_parts(plan: Plan) -> str:
    """The same step in twice as many parts."""
    parts = int(plan.get("accumulate") or 1)
    if 2 * parts > PARTS or micro_batch(plan) <= max(1, int(plan.get("least_batch", 2))):
        return ""
    plan["accumulate"] = 2 * parts
    return f"steps of {plan['batch']} cases in {2 * parts} parts"


def finer_input(median: Sequence[float], dims: int, finest: int) -> Way:
    """A quarter more of each side of the input that the images have more of; pictures are square.

    Args:
        median: sides of the usual image.
        finest: no side of the input becomes longer.
    """
    usual, step = ([max(median)] * 2, 16) if dims == 2 else (list(median), 8)

    def way(plan: Plan) -> str:
        before = list(plan["size"])
        wanted = [
            max(side, min(round(1.25 * side / step) * step, finest, round(float(have) / step) * step))
            for side, have in zip(before, usual, strict=True)
        ]
        if wanted == before:
            return ""
        plan["size"] = wanted
        return f"input {wanted} instead of {before}"

    return way


def larger_batch(most: int) -> Way:
    """Twice the cases a step, and the rate that goes with it (AdamW: by the root)."""

    def way(plan: Plan) -> str:
        if 2 * int(plan["batch"]) > most:
            return ""
        plan["batch"], plan["lr"] = 2 * int(plan["batch"]), round(float(plan["lr"]) * 2**0.5, 6)
        return f"batch {plan['batch']}, lr {plan['lr']}"

    return way


def fit_memory(
    plan: Plan,
    costs: StepCosts,
    smaller: Sequence[Way],
    larger: Sequence[Way] = (),
    steps: Callable[[Plan], float] = lambda plan: float("inf"),
) -> list[str]:
    """Make the plan smaller until it fits its machine; or larger as long as it does and the minutes hold `FEWEST_STEPS`.

    Args:
        smaller, larger: ways, one after the other.
        steps: (plan) to the steps that its minutes hold.

    Returns:
        What was changed, then a line on the memory.

    Raises:
        SystemExit: even the smallest plan does not fit.
    """
    machine, said, before = machine_of(plan), [], costs.peak(plan)
    shrunk = _shrink(plan, costs, smaller, machine)
    if shrunk:
        said.append(f"made smaller, to fit {machine.memory:g} GB: {'; '.join(shrunk)}")
    else:
        grown = _grow(plan, costs, larger, steps, machine)
        said += [f"made larger, since {machine.memory:g} GB hold it: {'; '.join(grown)}"] if grown else []
    now = costs.peak(plan) if said else before
    return [*said, told_memory(plan, costs, now)]


def _shrink(plan: Plan, costs: StepCosts, ways: Sequence[Way], machine: Machine) -> list[str]:
    said = []
    while costs.peak(plan) > machine.room:
        change = next((text for way in ways if (text := way(plan))), "")
        if not change:
            need = costs.peak(plan) / GB + machine.memory - machine.room / GB
            raise SystemExit(
                f"{machine.memory:g} GB do not hold a training step of this plan, which needs {need:.1f} GB and cannot be made "
                "smaller: set patch, size or network smaller by hand (--set), or take a larger GPU"
            )
        said.append(change)
    return said


def _grow(
    plan: Plan, costs: StepCosts, ways: Sequence[Way], steps: Callable[[Plan], float], machine: Machine
) -> list[str]:
    said = []
    for way in ways:
        while True:
            trial = copy.deepcopy(plan)
            change = way(trial)
            if not change or costs.peak(trial) > machine.room or steps(trial) < FEWEST_STEPS:
                break
            plan.clear()
            plan.update(trial)
            said.append(change)
    return said


def told_memory(plan: Plan, costs: StepCosts, peak: int) -> str:
    """Where the memory goes, in a line."""
    found, machine, cases = costs.trace(plan), machine_of(plan), micro_batch(plan)
    states = (STATES + 1) * found.weights / GB
    parts = f", {plan['accumulate']} parts a step" if int(plan.get("accumulate") or 1) > 1 else ""
    return (
        f"memory of a GPU: {peak / GB:.2f} of {machine.room / GB:.1f} GB planned with ({machine.memory:g} GB there): "
        f"weights with gradients, moments and average {states:.2f} GB, {cases} case{'s' if cases > 1 else ''} of "
        f"{found.each / GB:.2f} GB each{parts}"
    )


def probe(plan: Plan, costs: StepCosts, smaller: Sequence[Way]) -> list[str]:
    """One real step at the planned size on a GPU that is here, smaller on too little memory; what it held, for people.

    Raises:
        SystemExit: even the smallest plan does not fit.
    """
    import torch

    from m3b.training.memory import says_memory

    said: list[str] = []
    while True:
        try:
            held = _held(plan, costs)
            break
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not says_memory(error):
                raise
        change = next((text for way in smaller if (text := way(plan))), "")
        if not change:
            raise SystemExit(
                "a training step does not fit into the memory of this GPU, and the plan cannot be made smaller: set patch, size "
                "or network smaller by hand (--set), or end what else runs there (nvidia-smi)"
            )
        said.append(change)
    lines = [f"a real step did not fit into memory; made smaller: {'; '.join(said)}"] if said else []
    if held:
        lines.append(f"a real step held {held / GB:.2f} GB at its peak, {costs.peak(plan) / GB:.2f} GB were expected")
    return lines


def _held(plan: Plan, costs: StepCosts) -> int:
    """Bytes of a real step's peak, AdamW and average included; 0 where the device does not count them."""
    import torch

    from m3b.training.precision import device_of
    from m3b.training.trial_step import rehearsed

    device = device_of(plan)
    counted = device.type == "cuda"
    if counted:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = costs.build(plan).to(device).train()
    batch = costs.noise(plan, micro_batch(plan))
    step = rehearsed(model, plan, lambda: batch)
    for _ in range(2):  # the moments of AdamW come with the first
        step()
    return int(torch.cuda.max_memory_allocated()) if counted else 0
