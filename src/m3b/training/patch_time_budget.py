"""How far the minutes of a training on patches go, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from m3b.training.folds import each, rounds, trainings
from m3b.training.pretrained.plan_start import trained_share
from m3b.training.time_budget import Costs, epochs_told, note_expected


def told_pace(plan: dict[str, Any], price: Callable[[], Costs], epoch: int, least: int) -> str:
    """A sentence for the end of plan.py; the plan gets the steps and epochs that are expected.

    Args:
        price: measures what a step costs; ends with RuntimeError where a patch does not fit the network or the memory.
        epoch: steps of one.
        least: fewer steps than this are called few.
    """
    try:
        found = price()
    except RuntimeError as error:
        if "memory" not in str(error):
            raise SystemExit(f"patch {plan['patch']} does not go through the network: {error}") from error
        return "a step does not fit into memory: train.py will go on with a smaller batch or patch"
    seconds = 60 * float(plan["minutes"]) * trained_share(plan) / rounds(plan)
    steps = found.steps(seconds, epoch)
    if counted := int(plan.get("max_steps") or 0):
        steps = counted
    note_expected(plan, steps, epoch)
    few = " (few: more minutes, a smaller patch or a coarser grid would help)" if steps < least else ""
    whose = f"{each(plan)}, " if trainings(plan) > 1 else ""
    return (
        f"{whose}{found.told(seconds, epoch, counted)}; {epochs_told(plan, steps, epoch)}, {plan['batch']} patches each, in "
        f"{plan['precision']}{few}"
    )
