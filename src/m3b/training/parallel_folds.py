"""Folds of a small network side by side on a processor, each with some of its cores.

Threads that share a small step wait for each other: of a narrow U-Net of volumes two threads made a step in 0.24 s, and two trainings
of one thread each made one in 0.32 s, a step every 0.16 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from m3b.training.entry import cores
from m3b.training.folds import FEWEST, most_folds
from m3b.training.machine import machine_of
from m3b.training.time_budget import TURNS, steps_of

Plan = dict[str, Any]
MINUTES = 10.0
"""Of shorter plans the start of further processes takes too much."""
QUICKER = 1.1
"""Side by side where that makes so many times the steps."""
MEMORY = 1e9
"""Bytes of a training, as traced, up to which several at a time fit into the memory of usual machines."""


def choose_beside(
    facts: Mapping[str, Any],
    plan: Plan,
    kept: set[str],
    enough: int,
    alone: Callable[[Plan], float],
    together: Callable[[Plan, int], float],
    held: Callable[[Plan], int],
) -> list[str]:
    """Puts `processes` into a plan of several folds, where steps are quicker so, and as many folds as there is time for then; what was
    changed.

    Args:
        kept: what was set by hand and stays.
        enough: steps that each fold needs.
        alone: (plan) to the seconds of a step with all cores.
        together: (plan, trainings) to the seconds of a step of each, made at the same time.
        held: (plan) to the bytes that a training holds.
    """
    folds, several = int(plan["folds"]), min(cores(), int(plan["folds"]))
    settled = kept & {"processes", "threads", "device"} or plan.get("max_steps") or plan.get("refit")
    if folds < FEWEST or several < 2 or settled or machine_of(plan).gpus or float(plan["minutes"]) < MINUTES:
        return []
    if held(plan) > MEMORY:
        return []
    usual = own = math.inf
    for _ in range(TURNS):
        usual, own = min(usual, alone(plan)), min(own, together(plan, several))
    if own * QUICKER > several * usual:
        return []
    if "folds" not in kept:
        most = most_folds(int(facts["cases"]), int(facts["patients"]))[0]
        wanted = min(most, several * (steps_of(plan, own) // enough))
        even = wanted - wanted % several
        if wanted < FEWEST:
            return []
        plan["folds"] = even if even >= FEWEST else wanted
        plan["why_folds"] = f"{facts['cases']} cases, and steps enough in these minutes for {plan['folds']} networks"
    plan["processes"] = several
    return [
        f"{several} folds are trained at a time: a step takes {own:.2f} s then, {usual:.2f} s with all cores for one"
    ]
