"""How long training steps take on this machine, and a plan made cheap enough that its minutes hold enough of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

Plan = dict[str, Any]
Way = Callable[[Plan], str]
"""Makes a plan cheaper and says how, or leaves it and says nothing where it cannot become cheaper so."""

USED = 0.7
"""Share of the minutes that steps get; loading, scoring and the averaging of weights take the rest."""
SLOW = 2.0
"""Seconds of a step after which nobody needs to know more exactly."""
WORTH = 1.15
"""bf16 is taken where it is quicker by this factor: it is a little less exact."""


def quickest(step: Callable[[], object], tries: int = 4, seconds: float = 1.0) -> float:
    """Seconds of the quickest of a few calls: two at least, since the first is slower than the rest."""
    taken: list[float] = []
    while len(taken) < 2 or (len(taken) < tries and sum(taken) < seconds):
        start = time.monotonic()
        step()
        taken.append(time.monotonic() - start)
        if taken[0] > SLOW:
            break
    return max(min(taken), 1e-4)


def choose_precision(plan: Plan, seconds: Callable[[Plan], float], cases: int = 2) -> None:
    """Puts the quicker of fp32 and bf16 into the plan; a batch of so few `cases` is enough to compare them.

    Many processors are quick in bfloat16, others emulate it: only the clock tells.
    """
    small = {**plan, "batch": min(cases, int(plan["batch"]))}
    times = {name: seconds({**small, "precision": name}) for name in ("bf16", "fp32")}
    plan["precision"] = "bf16" if times["bf16"] * WORTH < times["fp32"] else "fp32"


def steps_of(plan: Plan, seconds: float, models: int = 1) -> int:
    """Training steps that each of `models` gets."""
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
