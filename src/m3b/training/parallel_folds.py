"""Parallel folds of a small network on a processor, each with some of its cores.

Threads that share a small step wait for each other: for a narrow 3D U-Net, two threads took 0.24 s a step, and two parallel trainings
of one thread 0.32 s each, a step every 0.16 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from m3b.training.entry import count_cores
from m3b.training.folds import MIN_FOLDS, max_folds
from m3b.training.machine import machine_of
from m3b.training.time_budget import TIMING_ROUNDS, estimate_steps

Plan = dict[str, Any]
MIN_MINUTES = 10.0
"""Minimum minutes of a plan; in shorter ones, starting further processes takes too long."""
MIN_SPEEDUP = 1.1
"""Minimum gain in steps for parallel folds."""
MAX_TRAINING_BYTES = 1e9
"""Maximum estimated bytes of a training for several to fit into the memory of usual machines."""


def choose_parallel_folds(
    facts: Mapping[str, Any],
    plan: Plan,
    overrides: set[str],
    min_steps: int,
    single_seconds: Callable[[Plan], float],
    parallel_seconds: Callable[[Plan, int], float],
    training_bytes: Callable[[Plan], float],
) -> list[str]:
    """Set `processes` of a plan with several folds if that makes steps faster, and as many folds as the time allows; return the
    change.

    Args:
        overrides: keys that were set by hand and stay.
        min_steps: that each fold needs.
        single_seconds: (plan) to the seconds of a step with all cores.
        parallel_seconds: (plan, trainings) to the seconds of a step of each parallel training.
        training_bytes: (plan) to the bytes of a training.
    """
    folds, parallel = int(plan["folds"]), min(count_cores(), int(plan["folds"]))
    is_fixed = overrides & {"processes", "threads", "device"} or plan.get("max_steps") or plan.get("refit")
    if folds < MIN_FOLDS or parallel < 2 or is_fixed or machine_of(plan).gpus or float(plan["minutes"]) < MIN_MINUTES:
        return []
    if training_bytes(plan) > MAX_TRAINING_BYTES:
        return []
    seconds_alone = seconds_parallel = math.inf
    for _ in range(TIMING_ROUNDS):
        seconds_alone, seconds_parallel = (
            min(seconds_alone, single_seconds(plan)),
            min(seconds_parallel, parallel_seconds(plan, parallel)),
        )
    if seconds_parallel * MIN_SPEEDUP > parallel * seconds_alone:
        return []
    if "folds" not in overrides:
        limit = max_folds(int(facts["cases"]), int(facts["patients"]))[0]
        folds_wanted = min(limit, parallel * (estimate_steps(plan, seconds_parallel) // min_steps))
        full_rounds = folds_wanted - folds_wanted % parallel
        if folds_wanted < MIN_FOLDS:
            return []
        plan["folds"] = full_rounds if full_rounds >= MIN_FOLDS else folds_wanted
        plan["why_folds"] = f"{facts['cases']} cases, and enough steps in these minutes for {plan['folds']} networks"
    plan["processes"] = parallel
    return [
        f"{parallel} folds train in parallel: a step takes {seconds_parallel:.2f} s then, {seconds_alone:.2f} s with all cores for one"
    ]
