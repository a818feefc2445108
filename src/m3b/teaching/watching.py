"""What watches a training: its time, and whether its figures are numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from m3b.errors import DataError


def make_time_limit(minutes: float | None) -> list[Any]:
    """What ends a training after so many minutes, for the trainer's list of callbacks; nothing for None."""
    if minutes is None:
        return []
    import time

    from transformers import TrainerCallback

    deadline = time.monotonic() + 60 * minutes

    class _TimeLimit(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = control.should_training_stop or time.monotonic() > deadline

    return [_TimeLimit()]


def check_finite(curve: Sequence[Mapping[str, float]], lr: float) -> None:
    """Raises where a training has diverged.

    Raises:
        DataError: a loss or the norm of a gradient is not a number.
    """
    for entry in curve:
        if any(not math.isfinite(entry.get(name, 0.0)) for name in ("loss", "grad_norm")):
            step = int(entry.get("step", 0))
            raise DataError(f"The training diverged at step {step}: its loss is not a number. Lower lr ({lr:g}).")
