"""Measure the overhead of a sweep: scheduling and isolation per cell, and the memory of ten thousand cells.

    python benchmarks/sweep_overhead.py [--cell-seconds 240] [--cells 20] [--many 10000]

Cells sleep instead of working. `per cell` is the wall time of a sweep, one cell at a time, minus the time slept: starting a
process, its imports, the claim and the result on disk, polling. `share` compares it with a cell of the given length.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from m3b.bench.cell import CELL_FILE, RESULT_FILE, Cell, make_broken_row
from m3b.bench.sweep import SweepPlan, run_sweep
from m3b.bench.tasks import choose_tasks
from m3b.engines import JobRequest, JobStatus
from m3b.engines.local import LocalEngine


class InstantEngine(LocalEngine):
    """An engine whose cells write their result at once, so that only the sweep's own work and its files remain."""

    def submit(self, request: JobRequest) -> str:
        """Write the result of a cell."""
        cell = Cell.from_json(json.loads((request.folder / CELL_FILE).read_text(encoding="utf-8")))
        row = make_broken_row(cell, "simulated")
        (request.folder / RESULT_FILE).write_text(json.dumps(row), encoding="utf-8")
        return request.name

    def poll(self, job_id: str) -> JobStatus:
        """Return that the job has finished."""
        return JobStatus("finished", 0)


def get_peak_mib() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_cell_overhead(count: int, sleep_s: float) -> float:
    """Return the seconds in addition to the sleep, for each of `count` cells in separate processes."""
    plan = SweepPlan(choose_tasks([])[:1], runs=count, simulate=sleep_s)
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        run_sweep(plan, Path(place), LocalEngine(), max_jobs=1)
        return (time.perf_counter() - started) / count - sleep_s


def measure_scheduling(count: int) -> dict[str, float]:
    """Return seconds a cell of scheduling alone, and the MiB by which the process grew."""
    tasks = choose_tasks(["all"])
    runs = -(-count // (len(tasks) * 10))
    plan = SweepPlan(tasks, models=tuple(f"provider:model-{k}" for k in range(10)), runs=runs, simulate=0.0)
    with tempfile.TemporaryDirectory() as place:
        memory_before, started = get_peak_mib(), time.perf_counter()
        finished_cells = run_sweep(plan, Path(place), InstantEngine(), max_jobs=50)
        return {
            "cells": finished_cells,
            "seconds_a_cell": (time.perf_counter() - started) / finished_cells,
            "grew_mib": get_peak_mib() - memory_before,
        }


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell-seconds", type=float, default=240.0, help="a real cell's length, for the share")
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--many", type=int, default=10_000)
    options = parser.parse_args()
    cost = measure_cell_overhead(options.cells, 0.2)
    figures = {"per_cell_s": round(cost, 3), "share": round(cost / options.cell_seconds, 5),
             "scheduling": {k: round(v, 5) for k, v in measure_scheduling(options.many).items()}}  # fmt: skip
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
