"""Time of training steps on this machine, and plan reduction until the minutes hold enough of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Plan = dict[str, Any]
PlanChange = Callable[[Plan], str]
"""Reduces a plan and says how; returns "" if this reduction is exhausted."""
ComparePlans = Callable[[Sequence[Plan]], list[float]]
"""Returns the seconds of each plan, measured in turns, so that a busy moment does not decide."""

STEP_SHARE = 0.7
"""Share of the minutes for steps while plans are compared; `TrainingCosts` is exact for the chosen plan."""
MAX_SCORING_SHARE = 0.15
"""Maximum share of the time for scoring; if it is slow, epochs are skipped."""
MIN_HALF_SPEEDUP = 1.15
"""Minimum speed-up by half precision, which is slightly less exact."""
MIN_REDUCTION_GAIN = 1.15
"""Minimum factor by which a smaller input, which shows less, has to raise the number of steps: where each step is short, its
overhead decides, and nothing is gained."""
NO_LIMIT = 1_000_000
"""`max_epochs` of plans: the minutes end a training, and the learning rate schedule with it."""
TIMING_ROUNDS = 2
"""Alternating measurements of each variant, so that a busy moment does not decide."""


@dataclass(frozen=True)
class TrainingCosts:
    """Seconds of the parts of a training on this machine.

    Args:
        step: of a step, with loading, augmentation and the averaging of weights.
        scoring: of one scoring of the validation part while training.
        final: reserved at the end for the figures of the best weights.
        is_measured: here; else estimated for another machine.
    """

    step: float
    scoring: float = 0.0
    final: float = 0.0
    is_measured: bool = True

    def count_steps(self, seconds: float, epoch: int) -> int:
        """Return the steps that fit, with a scoring after epochs of `epoch` steps, but not too often."""
        if self.step == float("inf"):
            return 0
        available = max(0.0, seconds - self.final - self.scoring)  # time for the last scoring is reserved
        training_seconds = max(epoch * self.step, self.scoring * (1 - MAX_SCORING_SHARE) / MAX_SCORING_SHARE)
        return int(available / (training_seconds + self.scoring) * training_seconds / self.step)

    def describe(self, seconds: float, epoch: int, max_steps: int = 0) -> str:
        """Return a line on the use of the time; with `max_steps`, so many steps are run whatever time they take."""
        source = "measured just now, beside whatever else runs here" if self.is_measured else "estimated"
        load = f"{source}; reading of cases included"
        if max_steps:
            return (
                f"{max_steps} steps (max_steps) of {self.step:.3f} s ({load}), about "
                f"{max_steps * self.step + self.final:.0f} s in all, whatever the minutes"
            )
        steps = self.count_steps(seconds, epoch)
        scoring = max(0.0, seconds - self.final - steps * self.step)
        return (
            f"of {seconds:.0f} s: {steps} steps of {self.step:.3f} s ({load}), {scoring:.0f} s for scoring, "
            f"{min(self.final, seconds):.0f} s for the final figures"
        )


def describe_epochs(plan: Plan, steps: int, epoch: int) -> str:
    """Return how many epochs of `epoch` steps the time holds, how many of `max_epochs` do not fit, or that they end the training
    before the time does."""
    max_epochs = int(plan["max_epochs"])
    if steps <= max_epochs * epoch:
        limited_text = f"only {steps / epoch:.1f} of max_epochs={max_epochs} epochs of {epoch} steps fit"
        return (
            f"{steps / epoch:.1f} epochs of {epoch} steps"
            if max_epochs == NO_LIMIT or steps == max_epochs * epoch
            else limited_text
        )
    share = f"{100 * max_epochs * epoch / steps:.0f} %"
    return f"max_epochs ends it after {max_epochs} epoch(s) of {epoch} steps, {share if share != '0 %' else 'less than 1 %'} of these"


def record_expected_steps(plan: Plan, steps: float, epoch: int) -> None:
    """Record the expected steps and epochs of each network in the plan."""
    expected_steps = int(plan.get("max_steps") or 0) or min(int(steps), int(plan["max_epochs"]) * epoch)
    plan["expected"] = {"steps": expected_steps, "epochs": round(expected_steps / epoch, 2), "epoch_steps": epoch}


def describe_planned_steps(plan: Plan, steps: int) -> str:
    """Return how many steps were planned, if a training made others: the load of the machine has changed."""
    expected = (plan.get("expected") or {}).get("steps")
    return f" ({expected} were planned)" if expected and expected != steps else ""


def min_seconds(step: Callable[[], object], tries: int = 3, seconds: float = 0.6) -> float:
    """Return the seconds of the fastest of a few calls; the first one is a warm-up."""
    return max(min(_time_calls(step, tries, seconds)), 1e-4)


def median_seconds(step: Callable[[], object], tries: int = 9, seconds: float = 2.0) -> float:
    """Return the median seconds of a few calls; the first one is a warm-up."""
    return max(median(_time_calls(step, tries, seconds)), 1e-4)


def _time_calls(step: Callable[[], object], tries: int, seconds: float) -> list[float]:
    step()
    durations: list[float] = []
    while not durations or (len(durations) < tries and sum(durations) < seconds):
        durations.append(time_call(step))
    return durations


def time_call(step: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.monotonic()
    step()
    return time.monotonic() - start


def has_native_bf16() -> bool:
    """Return whether the device computes in bfloat16 natively; timing an emulation is useless."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(is_supported and is_supported())


def choose_precision(plan: Plan, compare: ComparePlans) -> None:
    """Set the faster of fp32 and a half precision, measured with the training batch: bf16 if native, fp16 on other GPUs. A training of
    `max_steps` must be reproducible, so nothing is measured for it: it has half precision on GPUs alone."""
    plan["precision"] = "fp32"
    machine = plan.get("machine") or {}
    half = "bf16" if has_native_bf16() else machine.get("half", "fp32")
    if half == "fp32" or plan.get("max_steps"):
        plan["precision"] = half if machine.get("gpus") else "fp32"
        return
    half_seconds, seconds = compare([{**plan, "precision": name} for name in (half, "fp32")])
    plan["precision"] = half if half_seconds * MIN_HALF_SPEEDUP < seconds else "fp32"


def compare_in_turns(seconds: Callable[[Plan], float]) -> ComparePlans:
    """Return a function of plans to the least of two measurements of each."""

    def compare(plans: Sequence[Plan]) -> list[float]:
        rounds = [[seconds(plan) for plan in plans] for _ in range(TIMING_ROUNDS)]
        return [min(times) for times in zip(*rounds, strict=True)]

    return compare


def estimate_steps(plan: Plan, seconds: float, models: int = 1) -> int:
    """Estimate the training steps of each of `models`, for comparing plans."""
    probe_seconds = float((plan.get("linear_probe") or {}).get("seconds") or 0)
    return int(STEP_SHARE * max(0.0, 60 * float(plan["minutes"]) - probe_seconds) / models / seconds)


def reduce_plan(
    plan: Plan,
    reductions: Sequence[PlanChange],
    steps: Callable[[Plan], float],
    min_steps: int,
    min_gain: float = 0.0,
) -> list[str]:
    """Reduce the plan, one reduction after the other, until its minutes hold `min_steps`; return the changes.

    Args:
        min_gain: a reduction is undone, and not tried again, if it multiplies the steps by less.
    """
    changes: list[str] = []
    left, count = list(reductions), steps(plan)
    while left and count < min_steps:
        before = copy.deepcopy(plan)
        change = left[0](plan)
        count_after = steps(plan) if change else count
        if change and count_after + 1 > min_gain * count:  # a whole number of few steps may hide a gain of almost one
            changes.append(change)
            count = count_after
        else:
            plan.clear()
            plan.update(before)
            left.pop(0)
    return changes


def describe_reductions(changes: Sequence[str]) -> list[str]:
    """Return a line on the changes of `reduce_plan`, if there are any."""
    return [f"reduced, so that more steps fit into these few minutes: {'; '.join(changes)}"] if changes else []
