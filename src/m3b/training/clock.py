"""Training by the clock: how much of the time is used up, and the learning rate that follows from it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

MIN_STEPS = 40
"""Steps below which a network has learnt next to nothing."""
LONGEST = 2.0
"""A training that has not made its least steps goes on up to so many times its seconds."""


class NotFinite(RuntimeError):
    """The loss became NaN or infinite."""


class OutOfMemory(RuntimeError):
    """Nothing is left that could be made smaller."""


class StartAgain(RuntimeError):
    """One of several processes has too little memory: all have to start again, with --resume, with the smaller plan."""


class Clock:
    """Seconds spent on one model, earlier starts of a resumed training included.

    Args:
        budget: seconds of wall time.
        max_epochs: ends the training before the time does.
        spent: seconds that earlier starts used.
        max_steps: where it is not 0, steps are counted instead of seconds, so that a seeded training repeats exactly.
        least_steps: so many steps are made even if they take longer than the budget, up to `LONGEST` times it: on a
            machine that is busy with something else, seconds say little about how much was learnt.
        enough_steps: where it is not 0, the training ends after so many steps although time may be left.
    """

    def __init__(
        self,
        budget: float,
        max_epochs: int,
        spent: float = 0.0,
        max_steps: int = 0,
        least_steps: int = MIN_STEPS,
        enough_steps: int = 0,
    ) -> None:
        self.budget, self.max_epochs, self.max_steps = max(budget, 1.0), max_epochs, max_steps
        self.least_steps, self.enough_steps = least_steps, enough_steps
        self.epoch, self.step = 0.0, 0
        self._start, self._told = time.monotonic() - spent, -1.0

    def spent(self) -> float:
        return self._told if self._told >= 0 else time.monotonic() - self._start

    def tick(self, agree: Callable[[float], float]) -> None:
        """Of several processes: from now until the next tick, `spent` is what they agree on, the first one's seconds."""
        self._told = agree(time.monotonic() - self._start)

    def progress(self) -> float:
        """0 at the start, 1 when time (or steps) or epochs are used up, whichever comes first."""
        used = self.step / self.max_steps if self.max_steps else self.spent() / self.budget
        if not self.max_steps and self.step < self.least_steps:
            used = min(used, max(self.step / self.least_steps, self.spent() / (LONGEST * self.budget)))
        if self.enough_steps:
            used = max(used, self.step / self.enough_steps)
        return min(1.0, max(used, self.epoch / self.max_epochs))

    def over(self, reserve: float = 0.0) -> bool:
        """Whether the training has to end now so that `reserve` seconds are left."""
        if self.max_steps:
            return self.step >= self.max_steps
        if self.enough_steps and self.step >= self.enough_steps:
            return True
        budget = self.budget if self.step >= self.least_steps else LONGEST * self.budget
        return self.spent() + reserve >= budget

    def steps_left(self) -> int:
        """About so many steps are made still, at the pace so far."""
        spent = self.spent()
        timed = round((self.budget - spent) * self.step / max(spent, 1e-6))
        left = self.max_steps - self.step if self.max_steps else timed
        return max(0, min(left, self.enough_steps - self.step) if self.enough_steps else left)


def rate(progress: float, warm: float = 0.08) -> float:
    """One cycle: linear rise over the first `warm` of the time, then a half cosine down to 0.2 % of the peak."""
    if progress < warm:
        return 0.1 + 0.9 * progress / warm
    return 0.002 + 0.998 * 0.5 * (1 + math.cos(math.pi * (progress - warm) / (1 - warm)))


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint below a folder that was written to its end."""
    found = [file.parent for file in folder.glob("checkpoint-*/complete.json")]
    return max(found, key=lambda place: int(place.name.split("-")[1])) if found else None


def seconds_spent(folder: Path) -> float:
    """Seconds that the model of this folder has been trained for so far, finished or not."""
    done = folder / "done.json"
    if done.exists():
        return float(json.loads(done.read_text())["seconds"])
    last = last_checkpoint(folder)
    return float(json.loads((last / "complete.json").read_text())["spent"]) if last else 0.0
