"""How long training steps take on this machine, and a plan made cheap enough that its minutes hold enough of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Plan = dict[str, Any]
Way = Callable[[Plan], str]
"""Makes a plan cheaper and says how, or leaves it and says nothing where it cannot become cheaper so."""

USED = 0.7
"""Share of the minutes that steps get while plans are compared; `Costs` says it exactly for the one that is taken."""
SCORING_SHARE = 0.15
"""Scoring the validation part may take so much of the time; where it is slow, epochs are passed over."""
WORTH = 1.15
"""bf16 is taken where it is quicker by this factor: it is a little less exact."""
NO_LIMIT = 1_000_000
"""`max_epochs` of plans: the minutes end a training, and the learning rate ends with them."""
TURNS = 2
"""So many times the two precisions take turns, so that a busy moment does not decide."""


@dataclass(frozen=True)
class Costs:
    """Seconds that parts of a training take here.

    Args:
        step: of a step, with loading, augmentation and the averaging of weights.
        scoring: of one look at the validation part while training.
        final: kept free at the end, for the figures of the kept weights.
    """

    step: float
    scoring: float = 0.0
    final: float = 0.0

    def steps(self, seconds: float, epoch: int) -> int:
        """Steps that fit, where the validation part is scored after epochs of `epoch` steps, but not too often."""
        if self.step == float("inf"):
            return 0
        left = max(0.0, seconds - self.final - self.scoring)  # the last scoring has its time kept free
        between = max(epoch * self.step, self.scoring * (1 - SCORING_SHARE) / SCORING_SHARE)
        return int(left / (between + self.scoring) * between / self.step)

    def told(self, seconds: float, epoch: int, counted: int = 0) -> str:
        """Where the time goes, in a line; `counted` steps (`max_steps`), if not 0, are made whatever time they take."""
        if counted:
            return (
                f"{counted} steps (max_steps) of {self.step:.3f} s (loading included), about "
                f"{counted * self.step + self.final:.0f} s in all, whatever the minutes"
            )
        steps = self.steps(seconds, epoch)
        scoring = max(0.0, seconds - self.final - steps * self.step)
        return (
            f"of {seconds:.0f} s: {steps} steps of {self.step:.3f} s (loading included), {scoring:.0f} s for scoring, "
            f"{min(self.final, seconds):.0f} s for the final figures"
        )


def epochs_told(plan: Plan, steps: int, epoch: int) -> str:
    """How many epochs of `epoch` steps the time holds; of `max_epochs` that were set, how many do not fit, or that they end the
    training before the time does."""
    most = int(plan["max_epochs"])
    if steps <= most * epoch:
        asked = f"only {steps / epoch:.1f} of max_epochs={most} epochs of {epoch} steps fit"
        return f"{steps / epoch:.1f} epochs of {epoch} steps" if most == NO_LIMIT or steps == most * epoch else asked
    share = f"{100 * most * epoch / steps:.0f} %"
    return f"max_epochs ends it after {most} epoch(s) of {epoch} steps, {share if share != '0 %' else 'less than 1 %'} of these"


def note_expected(plan: Plan, steps: float, epoch: int) -> None:
    """Puts into the plan how many steps and epochs each network is expected to make, for whoever reads plan.json."""
    most = int(plan.get("max_steps") or 0) or min(int(steps), int(plan["max_epochs"]) * epoch)
    plan["expected"] = {"steps": most, "epochs": round(most / epoch, 2), "epoch_steps": epoch}


def quickest(step: Callable[[], object], tries: int = 4, seconds: float = 1.0) -> float:
    """Seconds of the quickest of a few calls. The first call is never counted: it sets things up."""
    return max(min(_timed(step, tries, seconds)), 1e-4)


def typical(step: Callable[[], object], tries: int = 9, seconds: float = 2.0) -> float:
    """Seconds of the median of a few calls, the first one left out: what a training may expect."""
    return max(median(_timed(step, tries, seconds)), 1e-4)


def _timed(step: Callable[[], object], tries: int, seconds: float) -> list[float]:
    step()
    taken: list[float] = []
    while not taken or (len(taken) < tries and sum(taken) < seconds):
        start = time.monotonic()
        step()
        taken.append(time.monotonic() - start)
    return taken


def real_bf16() -> bool:
    """Whether the device computes in bfloat16 itself; where it is emulated, timing it is a waste."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    check = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(check and check())


def choose_precision(plan: Plan, seconds: Callable[[Plan], float]) -> None:
    """Puts the quicker of fp32 and a half precision into the plan, as measured in turns with the batch that it trains with: bf16
    where the device has it, fp16 on a GPU that has not."""
    plan["precision"] = "fp32"
    half = "bf16" if real_bf16() else (plan.get("machine") or {}).get("half", "fp32")
    if half == "fp32":
        return
    times = {half: float("inf"), "fp32": float("inf")}
    for _ in range(TURNS):
        for name in times:
            times[name] = min(times[name], seconds({**plan, "precision": name}))
    plan["precision"] = half if times[half] * WORTH < times["fp32"] else "fp32"


def steps_of(plan: Plan, seconds: float, models: int = 1) -> int:
    """Training steps that each of `models` gets, roughly: for comparing plans."""
    return int(USED * 60 * float(plan["minutes"]) / models / seconds)


def fit(plan: Plan, ways: Sequence[Way], steps: Callable[[Plan], int], least: int) -> list[str]:
    """Make the plan cheaper, the ways one after the other, until `least` steps fit into its minutes; what was changed."""
    said: list[str] = []
    while steps(plan) < least:
        change = next((text for way in ways if (text := way(plan))), "")
        if not change:
            break
        said.append(change)
    return said


def told(said: Sequence[str]) -> list[str]:
    """A line about what `fit` did, or none."""
    return [f"made cheaper, so that more steps fit into these few minutes: {'; '.join(said)}"] if said else []
