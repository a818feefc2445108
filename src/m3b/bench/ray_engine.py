"""The engine for a Ray cluster: each cell is a Ray task that starts a separate process. Nodes may join and leave.

The folder of the sweep must be on storage that every node sees under the same path. Only the line that the driver
writes counts: a cell whose node is lost is started again in a new folder, and only its first result is recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.bench.cell import CELL_FILE, Cell, make_broken_row, read_finished_row
from m3b.bench.local_engine import bind_to_cores
from m3b.bench.results_store import SweepStore
from m3b.bench.sweep import MAX_ATTEMPTS
from m3b.errors import UsageError
from m3b.writing import write_text_atomically

WAIT_S = 0.5
SPARE_CELLS = 4
"""Number of cells submitted to Ray beyond the capacity of the cluster, so that a new node gets work at once."""


@dataclass
class RayEngine:
    """Runs cells on a Ray cluster.

    Args:
        address: address of the cluster; None starts or joins a local one.
        cpus, gpus, memory_gib: resources of one cell.
        limit_s: maximum duration of a cell in seconds.
        env: environment variables for the processes of the cells, such as API keys of language models.
    """

    address: str | None = None
    cpus: float = 2.0
    gpus: float = 0.0
    memory_gib: float = 0.0
    limit_s: float | None = None
    env: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        cells: Iterator[Cell],
        store: SweepStore,
        begin: Callable[[Cell], int],
        end: Callable[[dict[str, Any]], None],
    ) -> None:
        """Run all cells. Only as many cells as fit into the cluster, and a few more, are submitted to Ray at a time."""
        ray = _import_ray()
        if not ray.is_initialized():
            ray.init(address=self.address, logging_level="warning", log_to_driver=False)
        task = ray.remote(_run_cell_on_node).options(**self._task_resources())
        pending: dict[Any, tuple[Cell, int]] = {}
        retries: list[Cell] = []
        try:
            while True:
                while (
                    len(pending) < self._count_slots(ray)
                    and (cell := retries.pop() if retries else next(cells, None)) is not None
                ):
                    attempt = begin(cell)
                    raw = json.dumps(cell.to_json(), ensure_ascii=False)
                    reference = task.remote(raw, str(store.get_cell_folder(cell.key)), self.limit_s, self.env)
                    pending[reference] = (cell, attempt)
                if not pending:
                    return
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=WAIT_S)
                for reference in ready:
                    cell, attempt = pending.pop(reference)
                    row = _collect_row(ray, reference, cell, attempt)
                    retries.append(cell) if row is None else end(row)
        finally:
            for reference in pending:
                with contextlib.suppress(Exception):
                    ray.cancel(reference, force=True)

    def _task_resources(self) -> dict[str, Any]:
        """Return the resources of a task. Ray does not retry: every attempt is claimed and has its own folder."""
        resources: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": 0}
        return {**resources, "memory": int(self.memory_gib * 2**30)} if self.memory_gib else resources

    def _count_slots(self, ray: Any) -> int:
        """Return how many cells may be submitted now; computed each time, because nodes join and leave."""
        cluster = ray.cluster_resources()
        capacities = [cluster.get("CPU", 0.0) / self.cpus] if self.cpus else []
        capacities += [cluster.get("GPU", 0.0) / self.gpus] if self.gpus else []
        return int(min(capacities, default=1.0)) + SPARE_CELLS


def _collect_row(ray: Any, reference: Any, cell: Cell, attempt: int) -> dict[str, Any] | None:
    """Return the row of a finished task, or None if it was lost and should be started again."""
    try:
        row = ray.get(reference)
    except ray.exceptions.RayError as error:
        if attempt < MAX_ATTEMPTS:
            return None
        return make_broken_row(cell, f"its node or worker was lost {attempt} times: {type(error).__name__}")
    if row is None:
        return None if attempt < MAX_ATTEMPTS else make_broken_row(cell, f"its process crashed {attempt} times")
    return dict(row)


def _run_cell_on_node(raw: str, cell_folder: str, limit_s: float | None, env: dict[str, str]) -> dict[str, Any] | None:
    """Run a cell in a separate process, which ends with this Ray worker; return its row, or None if it has none."""
    folder = Path(cell_folder) / f"try-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    write_text_atomically(folder / CELL_FILE, raw)
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "m3b.bench.cell", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **env},
            preexec_fn=lambda: bind_to_cores(os.sched_getaffinity(0)),
        )  # fmt: skip
    started = time.monotonic()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    row = read_finished_row(folder)
    if row is None and limit_s is not None and time.monotonic() - started >= limit_s:
        return make_broken_row(Cell.from_json(json.loads(raw)), f"it was stopped after {limit_s:.0f} s", "budget")
    return None if row is None else {**row, "folder": folder.relative_to(Path(cell_folder).parent).as_posix()}


def _import_ray() -> Any:
    """Return the package ray.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError("--engine ray needs the package ray: pip install 'm3b[ray]', or pip install ray.") from error
    return ray
