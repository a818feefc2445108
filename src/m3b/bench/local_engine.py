"""The engine for one machine: each cell is a separate process with its own share of the processors."""

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

from m3b.bench.cell import CELL_FILE, Cell, make_broken_row, read_finished_row
from m3b.bench.results_store import SweepStore
from m3b.bench.sweep import MAX_ATTEMPTS
from m3b.writing import write_text_atomically

POLL_S = 0.02
STOP_TIMEOUT_S = 30.0
_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass
class RunningCell:
    """A running cell."""

    cell: Cell
    process: subprocess.Popen[bytes]
    folder: Path
    slot: int
    attempt: int
    started: float = field(default_factory=time.monotonic)


@dataclass
class LocalEngine:
    """Runs up to `jobs` cells at a time.

    Args:
        limit_s: maximum duration of a cell in seconds; a longer one is stopped with the result `budget`.
    """

    jobs: int = 1
    limit_s: float | None = None

    def run(
        self,
        cells: Iterator[Cell],
        store: SweepStore,
        begin: Callable[[Cell], int],
        end: Callable[[dict[str, Any]], None],
    ) -> None:
        """Run all cells. On Ctrl-C the running cells are interrupted, and killed if they do not stop."""
        running: list[RunningCell] = []
        retries: list[Cell] = []
        try:
            while True:
                while (
                    len(running) < self.jobs and (cell := retries.pop() if retries else next(cells, None)) is not None
                ):
                    slot = min(set(range(self.jobs)) - {running_cell.slot for running_cell in running})
                    attempt = begin(cell)
                    running.append(start_cell(cell, store.get_cell_folder(cell.key), slot, self.jobs, attempt))
                if not running:
                    return
                time.sleep(POLL_S)
                for running_cell in [running_cell for running_cell in running if self._is_over(running_cell)]:
                    running.remove(running_cell)
                    row = collect_row(running_cell, self.limit_s)
                    if row is None:
                        retries.append(running_cell.cell)
                    else:
                        end(row)
        finally:
            stop_cells(running)

    def _is_over(self, running_cell: RunningCell) -> bool:
        if running_cell.process.poll() is not None:
            return True
        if self.limit_s is not None and time.monotonic() - running_cell.started > self.limit_s:
            stop_cells([running_cell])
            return True
        return False


def collect_row(running_cell: RunningCell, limit_s: float | None) -> dict[str, Any] | None:
    """Return the row of a cell whose process has ended, or None if it should be started again."""
    row = read_finished_row(running_cell.folder)
    if row is not None:
        return row
    if limit_s is not None and time.monotonic() - running_cell.started > limit_s:
        row = make_broken_row(running_cell.cell, f"it was stopped after {limit_s:.0f} s", "budget")
        return {**row, "usage": {"wall_s": round(time.monotonic() - running_cell.started, 1)}}
    if running_cell.attempt < MAX_ATTEMPTS:
        return None
    log_end = _read_log_end(running_cell.folder / "log.txt")
    return make_broken_row(
        running_cell.cell,
        f"its process ended with status {running_cell.process.returncode} {running_cell.attempt} times: {log_end}",
    )


def start_cell(cell: Cell, folder: Path, slot: int, jobs: int, attempt: int) -> RunningCell:
    """Start a process for a cell, bound to the processors of its slot."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / CELL_FILE, json.dumps(cell.to_json(), ensure_ascii=False, indent=1))
    cores = choose_cores(slot, jobs)
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "m3b.bench.cell", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: bind_to_cores(cores),
        )  # fmt: skip
    return RunningCell(cell, process, folder, slot, attempt)


def bind_to_cores(cores: set[int]) -> None:
    """Bind this child process to processors, and let it end with its parent."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # SIGINT is ignored in a sweep that was started in the background
    _LIBC.prctl(_PDEATHSIG, signal.SIGTERM)


def choose_cores(slot: int, jobs: int) -> set[int]:
    """Return the processors of a slot: an equal part of those that this process may use, at least one."""
    cores = sorted(os.sched_getaffinity(0))
    slot_cores = (
        [core for position, core in enumerate(cores) if position % jobs == slot % jobs] if jobs <= len(cores) else []
    )
    return set(slot_cores) or {cores[slot % len(cores)]}


def stop_cells(running: list[RunningCell]) -> None:
    """Interrupt cells as Ctrl-C does, and kill those that do not stop. They have no result and are run again later."""
    for running_cell in running:
        with contextlib.suppress(ProcessLookupError):
            running_cell.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for running_cell in running:
        try:
            running_cell.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running_cell.process.pid, signal.SIGKILL)
            running_cell.process.wait()


def _read_log_end(file: Path, size: int = 600) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")[-size:].strip()
    except OSError:
        return "no output"
