"""Training by the clock: how much of the time is used up, and the learning rate that follows from it."""

from __future__ import annotations

import math
import time

MIN_STEPS = 40
"""Steps below which a network has learnt next to nothing."""
MAX_OVERTIME = 2.0
"""A training that has not made its least steps goes on up to this multiple of its seconds."""


class Clock:
    """Seconds spent on one model, earlier starts of a resumed training included.

    Args:
        budget: seconds of wall time.
        max_epochs: ends the training before the time does.
        spent: seconds that earlier starts used.
        max_steps: if not 0, steps are counted instead of seconds and epochs, so that a seeded training repeats exactly.
        least_steps: number of steps that are made even if they take longer than the budget, up to `MAX_OVERTIME` times it: on a
            busy machine, seconds say little about how much was learnt.
        enough_steps: if not 0, the training ends after this number of steps although time may be left.
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
        self._start, self._agreed_s = time.monotonic() - spent, -1.0
        self.excluded = 0.0

    def exclude(self, seconds: float, share: float) -> None:
        """Leave out seconds that were used to prepare the training; a share of them is taken off the budget."""
        self._start += seconds
        self.excluded += seconds
        self.budget = max(1.0, self.budget - share * seconds)

    def spent(self) -> float:
        """Return the seconds so far; of several processes those of the last `set_spent`."""
        return self._agreed_s if self._agreed_s >= 0 else self.measure()

    def measure(self) -> float:
        """Return the seconds so far by this process's own clock."""
        return time.monotonic() - self._start

    def set_spent(self, seconds: float) -> None:
        """Fix what `spent` returns until the next call."""
        self._agreed_s = seconds

    def progress(self) -> float:
        """Return the share of time, steps or epochs that is used up, whichever is largest, from 0 to 1."""
        used = self.step / self.max_steps if self.max_steps else self.spent() / self.budget
        if not self.max_steps and self.step < self.least_steps:
            used = min(used, max(self.step / self.least_steps, self.spent() / (MAX_OVERTIME * self.budget)))
        if self.enough_steps:
            used = max(used, self.step / self.enough_steps)
        return min(1.0, max(used, self.epoch / self.max_epochs))

    def is_over(self, reserve: float = 0.0) -> bool:
        """Return whether the training has to end now so that `reserve` seconds are left."""
        if self.max_steps:
            return self.step >= self.max_steps
        if self.epoch >= self.max_epochs or (self.enough_steps and self.step >= self.enough_steps):
            return True
        budget = self.budget if self.step >= self.least_steps else MAX_OVERTIME * self.budget
        return self.spent() + reserve >= budget

    def count_steps_left(self, timed_steps: int, epoch_steps: int) -> int:
        """Return the steps that are left, of which the seconds allow `timed_steps`."""
        if self.max_steps:
            return max(0, self.max_steps - self.step)
        limits = [timed_steps, math.ceil((self.max_epochs - self.epoch) * epoch_steps)]
        return max(0, min([*limits, self.enough_steps - self.step] if self.enough_steps else limits))


def one_cycle(progress: float, warmup: float = 0.08) -> float:
    """Return the learning rate as a share of its peak: a linear rise over the first `warmup` of the time, a half cosine to 0.2 %."""
    if progress < warmup:
        return 0.1 + 0.9 * progress / warmup
    return 0.002 + 0.998 * 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))
