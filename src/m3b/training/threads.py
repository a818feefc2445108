"""Processor threads of a training: as many as cores are free, followed while it runs.

Threads that share a step wait for each other by spinning, which is quickest where each has a core. Beside other programs they spin
on cores that those hold: a U-Net on two cores beside three busy programs took 2.0 s a step with two threads, 0.4 s with one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from m3b.training.entry import cores
from m3b.training.folds import at_once

STAT = Path("/proc/stat")
PAUSE = 5.0
"""Seconds between two looks at the machine while a training runs."""
FIRST = 0.3
"""Seconds that the look before a training takes."""
IDLE = (3, 4)
"""Columns of a processor's line in /proc/stat, proc(5): idle, and waiting for input and output."""


@dataclass(frozen=True)
class Load:
    """What the machine has done since some start.

    Args:
        clock: seconds of the clock.
        busy: seconds of work of all processors that this process may use, added up.
        own: of these, seconds of this process's own work.
        processors: how many it may use; trainings beside this one, and OMP_NUM_THREADS, leave it fewer threads.
    """

    clock: float
    busy: float
    own: float
    processors: int


def load_now() -> Load | None:
    """None where the machine does not say (no /proc)."""
    try:
        text = STAT.read_text()
        allowed = os.sched_getaffinity(0)
    except (OSError, AttributeError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return Load(time.monotonic(), busy_ticks(text, allowed) / ticks, time.process_time(), len(allowed))


def busy_ticks(text: str, allowed: set[int]) -> int:
    """Clock ticks that the `allowed` processors have worked, of the text of /proc/stat."""
    total = 0
    for line in text.splitlines():
        name, *values = line.split() or [""]
        if name[3:].isdecimal() and name.startswith("cpu") and int(name[3:]) in allowed:
            total += sum(int(value) for at, value in enumerate(values[:8]) if at not in IDLE)
    return total


def free_cores(most: int, before: Load, after: Load) -> int:
    """How many cores other programs leave free: at least one, at most `most`."""
    seconds = max(after.clock - before.clock, 1e-6)
    others = max(0.0, (after.busy - before.busy) - (after.own - before.own)) / seconds
    return max(1, min(most, int(after.processors - others + 0.5)))


@lru_cache(maxsize=1)
def _free_at_first() -> int:
    before = load_now()
    if before is None or cores() == 1:
        return cores()
    time.sleep(FIRST)
    after = load_now()
    return free_cores(cores(), before, after) if after else cores()


def are_fixed(plan: Mapping[str, Any]) -> bool:
    """Whether the plan says how many threads, or a training has to repeat exactly: sums depend on their number."""
    return bool(plan.get("threads") or plan.get("max_steps"))


def use_threads(plan: Mapping[str, Any]) -> None:
    """Sets the threads of what is computed from now on; where folds are trained side by side, those of one of them."""
    most = max(1, cores() // at_once(plan))
    fixed = int(plan.get("threads") or most)
    torch.set_num_threads(max(1, fixed if are_fixed(plan) else min(most, _free_at_first())))


class Threads:
    """Follows the machine: `follow` after each step sets the threads anew, every few seconds.

    Args:
        read: gives the load.
    """

    def __init__(self, plan: Mapping[str, Any], read: Callable[[], Load | None] = load_now) -> None:
        self.read, self.most = read, 1 if are_fixed(plan) else cores() // at_once(plan)
        self.before = read() if self.most > 1 else None

    def follow(self) -> None:
        if self.before is None or time.monotonic() - self.before.clock < PAUSE:
            return
        after = self.read()
        if after and (free := free_cores(self.most, self.before, after)) != torch.get_num_threads():
            torch.set_num_threads(free)
        self.before = after
