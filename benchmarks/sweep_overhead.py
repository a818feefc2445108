"""What a sweep costs beside its cells: scheduling and isolation per cell, and the memory of ten thousand cells.

python benchmarks/sweep_overhead.py [--cell-seconds 240] [--cells 20] [--many 10000]

Cells sleep instead of working. `per cell` is the wall time of a sweep, one cell at a time, less the time slept: starting a
process, its imports, the claim and the result on disk, polling. `share` compares it with a cell of the given length.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from m3b.bench.local import Local
from m3b.bench.rows import broken
from m3b.bench.store import Store
from m3b.bench.sweep import Plan, run_sweep
from m3b.bench.tasks import choose


class Instant:
    """An engine whose cells take no time: what is left is the sweep's own work."""

    def run(self, cells: Any, store: Store, begin: Any, end: Any) -> None:
        for cell in cells:
            begin(cell)
            end(broken(cell, "simulated"))


def peak_mib() -> float:
    """The largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def processes(count: int, slept: float) -> float:
    """Seconds beside the sleep, for each of `count` cells in processes of their own."""
    plan = Plan(choose([])[:1], runs=count, simulate=slept)
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        run_sweep(plan, Path(place), Local())
        return (time.perf_counter() - started) / count - slept


def many(count: int) -> dict[str, float]:
    """Scheduling alone: seconds a cell, and MiB that the process grew by."""
    tasks = choose(["all"])
    runs = -(-count // (len(tasks) * 10))
    plan = Plan(tasks, models=tuple(f"provider:model-{k}" for k in range(10)), runs=runs, simulate=0.0)
    with tempfile.TemporaryDirectory() as place:
        memory_before, started = peak_mib(), time.perf_counter()
        finished_cells = run_sweep(plan, Path(place), Instant())
        return {
            "cells": finished_cells,
            "seconds_a_cell": (time.perf_counter() - started) / finished_cells,
            "grew_mib": peak_mib() - memory_before,
        }


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell-seconds", type=float, default=240.0, help="a real cell's length, for the share")
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--many", type=int, default=10_000)
    options = parser.parse_args()
    cost = processes(options.cells, 0.2)
    figures = {"per_cell_s": round(cost, 3), "share": round(cost / options.cell_seconds, 5),
             "scheduling": {k: round(v, 5) for k, v in many(options.many).items()}}  # fmt: skip
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
