"""Sentence about the steps and epochs that a training on patches reaches in its minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from m3b.training.folds import count_networks, count_rounds, name_training
from m3b.training.pretrained.plan_start import training_share
from m3b.training.time_budget import TrainingCosts, describe_epochs, record_expected_steps


def describe_pace(
    plan: dict[str, Any], measure_costs: Callable[[], TrainingCosts], epoch_steps: int, min_steps: int
) -> str:
    """Return a sentence about the expected training for the output of plan.py; write expected steps and epochs into the plan.

    Args:
        measure_costs: measures the time of a step; raises RuntimeError if a patch does not fit the network or the memory.
        epoch_steps: steps of an epoch.
        min_steps: fewer steps are called few.
    """
    try:
        costs = measure_costs()
    except RuntimeError as error:
        if "memory" not in str(error):
            raise SystemExit(f"patch {plan['patch']} does not go through the network: {error}") from error
        return "a training step does not fit into memory: train.py will use a smaller batch or patch"
    seconds = 60 * float(plan["minutes"]) * training_share(plan) / count_rounds(plan)
    steps = costs.count_steps(seconds, epoch_steps)
    if max_steps := int(plan.get("max_steps") or 0):
        steps = max_steps
    record_expected_steps(plan, steps, epoch_steps)
    remark = " (few: more minutes, a smaller patch or a coarser grid would help)" if steps < min_steps else ""
    prefix = f"{name_training(plan)}, " if count_networks(plan) > 1 else ""
    return (
        f"{prefix}{costs.describe(seconds, epoch_steps, max_steps)}; {describe_epochs(plan, steps, epoch_steps)}, "
        f"{plan['batch']} patches each, in {plan['precision']}{remark}"
    )
