"""Processor threads of a training: as many as cores are free, adjusted while it runs.

Threads that share a step wait for each other by spinning, which is fastest if each has a core. Beside other programs they spin on
cores that those hold: a U-Net on two cores beside three busy programs took 2.0 s a step with two threads, 0.4 s with one.
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

from m3b.training.entry import count_cores
from m3b.training.folds import count_parallel_folds

PROC_STAT = Path("/proc/stat")
CHECK_INTERVAL_SECONDS = 5.0
"""Seconds between two checks of the load while a training runs."""
FIRST_CHECK_SECONDS = 0.3
"""Seconds of the check before a training."""
IDLE_COLUMNS = (3, 4)
"""Columns of a processor's line in /proc/stat, proc(5): idle, and waiting for input and output."""


@dataclass(frozen=True)
class Load:
    """Work of the machine since some start.

    Args:
        clock: seconds of the clock.
        busy_seconds: work of all processors that this process may use.
        own_seconds: of these, work of this process.
        processors: that the process may use; parallel trainings and OMP_NUM_THREADS leave it fewer threads.
    """

    clock: float
    busy_seconds: float
    own_seconds: float
    processors: int


def read_load() -> Load | None:
    """Return the load; None if the machine does not report it (no /proc)."""
    try:
        text = PROC_STAT.read_text()
        allowed = os.sched_getaffinity(0)
    except (OSError, AttributeError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return Load(time.monotonic(), busy_ticks(text, allowed) / ticks, time.process_time(), len(allowed))


def busy_ticks(text: str, allowed: set[int]) -> int:
    """Return the clock ticks that the `allowed` processors have worked, from the text of /proc/stat."""
    total = 0
    for line in text.splitlines():
        name, *values = line.split() or [""]
        if name[3:].isdecimal() and name.startswith("cpu") and int(name[3:]) in allowed:
            total += sum(int(value) for column, value in enumerate(values[:8]) if column not in IDLE_COLUMNS)
    return total


def free_cores(max_cores: int, before: Load, after: Load) -> int:
    """Return how many cores other programs leave free: at least one, at most `max_cores`."""
    seconds = max(after.clock - before.clock, 1e-6)
    other_seconds = (
        max(0.0, (after.busy_seconds - before.busy_seconds) - (after.own_seconds - before.own_seconds)) / seconds
    )
    return max(1, min(max_cores, int(after.processors - other_seconds + 0.5)))


@lru_cache(maxsize=1)
def _free_cores_at_start() -> int:
    before = read_load()
    if before is None or count_cores() == 1:
        return count_cores()
    time.sleep(FIRST_CHECK_SECONDS)
    after = read_load()
    return free_cores(count_cores(), before, after) if after else count_cores()


def has_fixed_threads(plan: Mapping[str, Any]) -> bool:
    """Return whether the plan sets the threads, or must be reproducible: sums depend on their number."""
    return bool(plan.get("threads") or plan.get("max_steps"))


def use_threads(plan: Mapping[str, Any]) -> None:
    """Set the threads of this process; with parallel folds, those of one fold."""
    max_cores = max(1, count_cores() // count_parallel_folds(plan))
    threads = int(plan.get("threads") or max_cores)
    torch.set_num_threads(max(1, threads if has_fixed_threads(plan) else min(max_cores, _free_cores_at_start())))


class ThreadFollower:
    """Adjusts the threads to the load: `follow` after each step sets them every few seconds.

    Args:
        read: returns the load.
    """

    def __init__(self, plan: Mapping[str, Any], read: Callable[[], Load | None] = read_load) -> None:
        self.read, self.most = read, 1 if has_fixed_threads(plan) else count_cores() // count_parallel_folds(plan)
        self.before = read() if self.most > 1 else None

    def follow(self) -> None:
        if self.before is None or time.monotonic() - self.before.clock < CHECK_INTERVAL_SECONDS:
            return
        after = self.read()
        if after and (free := free_cores(self.most, self.before, after)) != torch.get_num_threads():
            torch.set_num_threads(free)
        self.before = after
