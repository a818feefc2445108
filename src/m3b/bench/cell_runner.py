"""The loop of a sweep: submits the cells to an engine, collects their rows, and starts again what was lost.

A cell is a job with a folder below `cells`. If its process has ended, the next attempt continues in the same folder. If
its node was lost, the process may still be writing, so the next attempt gets a new folder.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.bench.cell import CELL_FILE, Cell, make_broken_row, read_finished_row
from m3b.bench.results_store import Attempt, SweepStore
from m3b.engines import Engine, EngineError, EngineName, JobRequest, JobStatus, Resources
from m3b.writing import write_text_atomically

MAX_ATTEMPTS = 3
"""Maximum number of starts of a cell whose process crashes or whose node is lost; then the crash is its result."""

SPARE_JOBS = 4
"""Number of cells submitted beyond the capacity of a cluster, so that a new node gets work at once."""

POLL_S: dict[EngineName, float] = {"local": 0.02, "ray": 0.5, "slurm": 5.0}
"""Seconds between two looks at the running cells."""

STOP_TIMEOUT_S = 60.0
"""Seconds that cancelled cells have to end."""

PASSED_VARIABLES = ("M3B_MODELS", "M3B_WEIGHTS")
"""Variables of this process that cells get on a cluster; keys come from the environment of the node."""

LOG_FILE = "log.txt"

OnEvent = Callable[[str, dict[str, Any]], None]
"""Called with `begun` and {"key"} when a cell starts, and with `done` and its row when it ends."""


@dataclass
class RunningCell:
    """A cell whose job is pending or running. `started_at` is when it was last pending, in seconds of `time.monotonic`."""

    cell: Cell
    attempt: Attempt
    started_at: float = field(default_factory=time.monotonic)


class CellRunner:
    """Runs the cells of a sweep on an engine.

    Args:
        resources: what one cell needs.
        max_jobs: number of cells at a time; None for as many as the cluster can run, and a few more.
    """

    def __init__(
        self, store: SweepStore, engine: Engine, resources: Resources, max_jobs: int | None, on_event: OnEvent
    ) -> None:
        self.finished_count = 0
        self._store, self._engine, self._resources, self._max_jobs = store, engine, resources, max_jobs
        self._on_event = on_event
        self._running: list[RunningCell] = []
        self._retries: list[tuple[Cell, str]] = []

    def run(self, cells: Iterator[Cell]) -> None:
        """Run the cells that have no result yet.

        If this is interrupted, the running cells are cancelled and do not count as started. If the engine cannot be
        reached any more, they are left to it, and the next sweep takes them over.
        """
        open_cells = (cell for cell in cells if cell.key not in self._store.finished_keys)
        try:
            while True:
                self._start_cells(open_cells)
                if not self._running:
                    return
                time.sleep(POLL_S[self._engine.name])
                for running_cell in list(self._running):
                    self._poll(running_cell)
        except EngineError:
            self._running.clear()
            raise
        finally:
            self._cancel_all()

    def _poll(self, running_cell: RunningCell) -> None:
        status = self._engine.poll(running_cell.attempt.job_id)
        if status.state == "pending":
            running_cell.started_at = time.monotonic()
        elif status.has_ended:
            self._running.remove(running_cell)
            self._settle(running_cell, status)

    def _start_cells(self, open_cells: Iterator[Cell]) -> None:
        """Start cells, or take over their last attempts, while there is room for more."""
        max_jobs = self._count_jobs()
        while len(self._running) < max_jobs:
            if self._retries:
                self._start(*self._retries.pop())
                continue
            cell = next(open_cells, None)
            if cell is None:
                return
            attempt = self._store.open_attempts.get(cell.key)
            if attempt is None:
                self._start(cell, cell.key)
            else:
                self._take_over(cell, attempt)

    def _count_jobs(self) -> int:
        """Return how many cells may be submitted at a time; computed each time, because nodes join and leave."""
        if self._max_jobs is not None:
            return self._max_jobs
        cluster, needed = self._engine.resources(), self._resources
        capacities = [cluster.cpus // needed.cpus] if needed.cpus else []
        capacities += [cluster.gpus // needed.gpus] if needed.gpus else []
        return min(capacities, default=1) + SPARE_JOBS

    def _start(self, cell: Cell, folder: str) -> None:
        """Claim and submit a cell. `folder` is below `cells`."""
        self._on_event("begun", {"key": cell.key})
        attempt = self._store.claim(cell.key, self._engine.name, folder)
        path = self._store.get_cell_folder(folder)
        path.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path / CELL_FILE, json.dumps(cell.to_json(), ensure_ascii=False, indent=1))
        request = JobRequest(
            name=attempt.job_name,
            argv=(sys.executable, "-m", "m3b.bench.cell", str(path)),
            folder=path,
            log_file=path / LOG_FILE,
            resources=self._resources,
            pass_environment=PASSED_VARIABLES,
            may_restart=False,  # every start is claimed
        )
        try:
            job_id = self._engine.submit(request)
        except EngineError as error:
            if error.code != "unreachable":  # otherwise it may have been submitted
                self._store.release(cell.key)
            raise
        except KeyboardInterrupt:
            if (submitted_id := self._engine.find(attempt.job_name)) is None:
                self._store.release(cell.key)
            else:
                self._running.append(RunningCell(cell, self._store.record_job(cell.key, submitted_id)))
            raise
        self._running.append(RunningCell(cell, self._store.record_job(cell.key, job_id)))

    def _take_over(self, cell: Cell, attempt: Attempt) -> None:
        """Wait for the job that an earlier sweep has started, or settle it if it has ended."""
        job_id = attempt.job_id
        if attempt.engine != self._engine.name:
            status = JobStatus("lost", reason=f"the engine {attempt.engine} was left")
        elif not job_id and (job_id := self._engine.find(attempt.job_name) or "") == "":
            status = JobStatus("failed", reason="it was not submitted")
        else:
            status = self._engine.poll(job_id)
        if status.has_ended:
            self._settle(RunningCell(cell, attempt), status)
            return
        if not attempt.job_id:
            attempt = self._store.record_job(cell.key, job_id)
        self._running.append(RunningCell(cell, attempt))

    def _settle(self, running_cell: RunningCell, status: JobStatus) -> None:
        """Record the row of a cell whose job has ended, or plan its next attempt."""
        cell, attempt = running_cell.cell, running_cell.attempt
        row = self._collect_row(running_cell, status)
        if row is not None:
            self._store.finish({**row, "folder": attempt.folder})
            self.finished_count += 1
            self._on_event("done", row)
        elif status.state == "lost":
            self._retries.append((cell, self._choose_new_folder(cell.key)))
        else:
            self._retries.append((cell, attempt.folder))

    def _collect_row(self, running_cell: RunningCell, status: JobStatus) -> dict[str, Any] | None:
        """Return the row of a cell whose job has ended, or None if the cell should be started again."""
        cell, attempt = running_cell.cell, running_cell.attempt
        path = self._store.get_cell_folder(attempt.folder)
        row = read_finished_row(path)
        if row is not None:
            return row
        if status.reason == "TIMEOUT":
            row = make_broken_row(cell, f"it was stopped after {self._resources.minutes * 60:.0f} s", "budget")
            return {**row, "usage": {"wall_s": round(time.monotonic() - running_cell.started_at, 1)}}
        if status.state == "cancelled":
            return make_broken_row(cell, f"its job was cancelled by another program: {status.reason}", "cancelled")
        if attempt.number < MAX_ATTEMPTS:
            return None
        if status.state == "lost":
            return make_broken_row(cell, f"its node or job was lost {attempt.number} times: {status.reason}")
        log_end = _read_log_end(path / LOG_FILE)
        code = "unknown" if status.exit_code is None else status.exit_code
        return make_broken_row(cell, f"its process ended with status {code} {attempt.number} times: {log_end}")

    def _choose_new_folder(self, key: str) -> str:
        """Return a folder below `cells` that no attempt of the cell has used."""
        number = 2
        while self._store.get_cell_folder(f"{key}/try-{number}").exists():
            number += 1
        return f"{key}/try-{number}"

    def _cancel_all(self) -> None:
        """Cancel the running cells and wait for them. Those that end do not count as started."""
        with contextlib.suppress(EngineError):  # what cannot be cancelled stays claimed, and is taken over later
            for running_cell in self._running:
                self._engine.cancel(running_cell.attempt.job_id)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while self._running and time.monotonic() < deadline:
                for running_cell in list(self._running):
                    if self._engine.poll(running_cell.attempt.job_id).has_ended:
                        self._running.remove(running_cell)
                        self._store.release(running_cell.cell.key)
                time.sleep(POLL_S["local"])


def _read_log_end(file: Path, size: int = 600) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")[-size:].strip()
    except OSError:
        return "no output"
