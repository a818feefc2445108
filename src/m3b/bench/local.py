"""The engine of one machine: each cell a process of its own, with its own share of the processors."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.writing import replace_text

from .cell import CELL, Cell
from .rows import broken, finished
from .store import Store
from .sweep import ATTEMPTS

POLL_S = 0.02
POLITE_S = 30.0
_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass
class Running:
    """A cell at work."""

    cell: Cell
    process: subprocess.Popen[bytes]
    place: Path
    slot: int
    attempt: int
    began: float = field(default_factory=time.monotonic)


@dataclass
class Local:
    """Up to `jobs` cells at a time.

    Args:
        limit_s: a cell that takes longer is ended; its result is `budget`.
    """

    jobs: int = 1
    limit_s: float | None = None

    def run(
        self, cells: Iterator[Cell], store: Store, begin: Callable[[Cell], int], end: Callable[[dict[str, Any]], None]
    ) -> None:
        """Run everything; on Ctrl-C the cells at work are asked to stop, and killed where they do not."""
        running: list[Running] = []
        retries: list[Cell] = []
        try:
            while True:
                while (
                    len(running) < self.jobs and (cell := retries.pop() if retries else next(cells, None)) is not None
                ):
                    slot = min(set(range(self.jobs)) - {running_cell.slot for running_cell in running})
                    attempt = begin(cell)
                    running.append(start(cell, store.place(cell.key), slot, self.jobs, attempt))
                if not running:
                    return
                time.sleep(POLL_S)
                for running_cell in [running_cell for running_cell in running if self._over(running_cell)]:
                    running.remove(running_cell)
                    row = conclude(running_cell, self.limit_s)
                    if row is None:
                        retries.append(running_cell.cell)
                    else:
                        end(row)
        finally:
            stop(running)

    def _over(self, running_cell: Running) -> bool:
        if running_cell.process.poll() is not None:
            return True
        if self.limit_s is not None and time.monotonic() - running_cell.began > self.limit_s:
            stop([running_cell])
            return True
        return False


def conclude(one: Running, limit_s: float | None) -> dict[str, Any] | None:
    """The row of a cell whose process has ended; None where it is worth another attempt."""
    row = finished(one.place)
    if row is not None:
        return row
    if limit_s is not None and time.monotonic() - one.began > limit_s:
        row = broken(one.cell, f"it was ended after {limit_s:.0f} s", "budget")
        return {**row, "usage": {"wall_s": round(time.monotonic() - one.began, 1)}}
    if one.attempt < ATTEMPTS:
        return None
    log_end = _tail(one.place / "log.txt")
    return broken(one.cell, f"its process ended with status {one.process.returncode} {one.attempt} times: {log_end}")


def start(cell: Cell, place: Path, slot: int, jobs: int, attempt: int) -> Running:
    """A new process for a cell, bound to its slot's processors."""
    place.mkdir(parents=True, exist_ok=True)
    replace_text(place / CELL, json.dumps(cell.to_json(), ensure_ascii=False, indent=1))
    cores = share_of_cores(slot, jobs)
    with (place / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "m3b.bench.cell", str(place)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: bind(cores),
        )  # fmt: skip
    return Running(cell, process, place, slot, attempt)


def bind(cores: set[int]) -> None:
    """In the child: stay on these processors, and end when whoever started it does."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a sweep in the background was started with it ignored
    _LIBC.prctl(_PDEATHSIG, signal.SIGTERM)


def share_of_cores(slot: int, jobs: int) -> set[int]:
    """The processors of one slot: an equal part of those that this process may use, at least one."""
    cores = sorted(os.sched_getaffinity(0))
    slot_cores = (
        [core for position, core in enumerate(cores) if position % jobs == slot % jobs] if jobs <= len(cores) else []
    )
    return set(slot_cores) or {cores[slot % len(cores)]}


def stop(running: list[Running]) -> None:
    """Ask cells to stop, as Ctrl-C does, and kill what does not. A cell stopped so has no result and is run again later."""
    for running_cell in running:
        with contextlib.suppress(ProcessLookupError):
            running_cell.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + POLITE_S
    for running_cell in running:
        try:
            running_cell.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running_cell.process.pid, signal.SIGKILL)
            running_cell.process.wait()


def _tail(file: Path, size: int = 600) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")[-size:].strip()
    except OSError:
        return "no output"
