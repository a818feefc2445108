"""Sweeps of simulated cells: each once, in order to be taken up again after anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench_kit import by_id

from m3b.bench.cell import Cell, run_cell
from m3b.bench.local_engine import LocalEngine, choose_cores
from m3b.bench.results_store import SweepStore, read_lines, read_rows
from m3b.bench.sweep import SweepPlan, run_sweep
from m3b.bench.tasks import choose_tasks, load_tasks
from m3b.errors import UsageError


def plan(runs: int = 1, simulate: float = 0.0, tasks: tuple[str, ...] = ("ct-kidney", "btcv")) -> SweepPlan:
    return SweepPlan(tuple(map(by_id, tasks)), runs=runs, simulate=simulate)


class Inline:
    """An engine without processes."""

    def __init__(self, fail_at: int = -1) -> None:
        self.fail_at, self.seen = fail_at, 0

    def run(self, cells: Any, store: SweepStore, begin: Any, end: Any) -> None:
        for cell in cells:
            begin(cell)
            if self.seen == self.fail_at:
                raise KeyboardInterrupt
            self.seen += 1
            end(run_cell(cell, store.get_cell_folder(cell.key)))


def lines_of(folder: Path, event: str) -> Counter[str]:
    return Counter(line["key"] for line in read_lines(folder) if line["event"] == event)


def test_cells_run_in_processes_of_their_own(tmp_path: Path) -> None:
    assert run_sweep(plan(runs=2), tmp_path, LocalEngine(jobs=2)) == 4
    rows = read_rows(tmp_path)
    assert len(rows) == 4
    assert set(lines_of(tmp_path, "done").values()) == {1}
    assert run_sweep(plan(runs=2), tmp_path, LocalEngine(jobs=2)) == 0, "nothing is run twice"
    assert (tmp_path / "cells" / rows[0]["key"] / "cell.json").is_file()


def test_a_sweep_that_was_stopped_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan(runs=3), tmp_path, Inline(fail_at=4))
    assert sum(lines_of(tmp_path, "done").values()) == 4
    assert run_sweep(plan(runs=3), tmp_path, Inline()) == 2
    assert set(lines_of(tmp_path, "done").values()) == {1}
    assert len(read_rows(tmp_path)) == 6


def test_being_stopped_again_and_again_is_no_failure_of_the_cell(tmp_path: Path) -> None:
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            run_sweep(plan(), tmp_path, Inline(fail_at=0))
    run_sweep(plan(), tmp_path, Inline())
    assert {row["reason"] for row in read_rows(tmp_path)} == {"simulated"}


def test_a_torn_last_line_is_cut_and_its_cell_run_again(tmp_path: Path) -> None:
    run_sweep(plan(), tmp_path, Inline())
    file = tmp_path / "results.jsonl"
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    assert run_sweep(plan(), tmp_path, Inline()) == 1
    assert all(json.loads(line) for line in file.read_text().splitlines())
    assert len(read_rows(tmp_path)) == 2


def test_a_result_in_the_folder_is_not_run_again(tmp_path: Path) -> None:
    """The process of the cell finished, and the sweep died before it wrote the line down."""
    run_sweep(plan(), tmp_path, Inline())
    file = tmp_path / "results.jsonl"
    file.write_bytes(b"".join(line for line in file.read_bytes().splitlines(keepends=True) if b'"done"' not in line))
    engine = Inline()
    assert run_sweep(plan(), tmp_path, engine) == 2
    assert engine.seen == 0


def test_a_cell_that_kills_its_process_three_times_is_a_failure(tmp_path: Path) -> None:
    for _ in range(3):
        with SweepStore(tmp_path) as store:
            store.claim(Cell("m3b", "rules", by_id("ct-kidney"), 0).key)
    engine = Inline()
    run_sweep(plan(), tmp_path, engine)
    kinds = {row["task"]: row["kind"] for row in read_rows(tmp_path)}
    assert kinds["ct-kidney"] == "crashed"
    assert engine.seen == 1


def test_retry_runs_what_failed_for_the_worlds_fault(tmp_path: Path) -> None:
    for _ in range(3):
        with SweepStore(tmp_path) as store:
            store.claim(Cell("m3b", "rules", by_id("ct-kidney"), 0).key)
    run_sweep(plan(), tmp_path, Inline())
    assert run_sweep(plan(), tmp_path, Inline()) == 0
    assert run_sweep(plan(), tmp_path, Inline(), retry=True) == 1
    assert {row["reason"] for row in read_rows(tmp_path)} == {"simulated"}


def test_too_long_cells_are_ended(tmp_path: Path) -> None:
    run_sweep(plan(simulate=60.0, tasks=("btcv",)), tmp_path, LocalEngine(limit_s=2.0))
    row = read_rows(tmp_path)[0]
    assert (row["kind"], row["ok"]) == ("budget", False)


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    with SweepStore(tmp_path), pytest.raises(UsageError, match="Another sweep"):
        SweepStore(tmp_path)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"contains thesis\.tex, and is not a sweep.*-o"):
        SweepStore(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_holds_cells_that_can_be_compared(tmp_path: Path) -> None:
    run_sweep(plan(), tmp_path, Inline())
    other_plan = SweepPlan(plan().tasks, options={"train_minutes": 9.0}, simulate=0.0)
    with pytest.raises(UsageError, match="other options"):
        run_sweep(other_plan, tmp_path, Inline())


def test_ctrl_c_stops_cells_and_leaves_nothing_running(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]; from test_sweep import plan; "
        "from m3b.bench.sweep import run_sweep; from m3b.bench.local_engine import LocalEngine\n"
        "run_sweep(plan(runs=2, simulate=300.0), Path(sys.argv[1]), LocalEngine(jobs=2))"
    )
    kits = [str(Path(__file__).parents[up]) for up in (0, 1)]
    command = [sys.executable, "-c", code, str(tmp_path), *kits]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while len(cell_processes(tmp_path)) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(cell_processes(tmp_path)) == 2
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert cell_processes(tmp_path) == []
    assert not lines_of(tmp_path, "done")
    assert sum(lines_of(tmp_path, "release").values()) == 2


def cell_processes(folder: Path) -> list[str]:
    pids = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if "m3b.bench.cell" in line and str(folder) in line:
                pids.append(place.name)
    return pids


def test_slots_share_the_processors() -> None:
    cores = sorted(os.sched_getaffinity(0))
    shares = [choose_cores(slot, len(cores)) for slot in range(len(cores))]
    assert sorted(core for share in shares for core in share) == cores
    assert all(choose_cores(slot, 64) for slot in range(64))


def test_the_tasks_are_whole() -> None:
    tasks = load_tasks()
    assert len({task.id for task in tasks}) == len(tasks)
    assert len(choose_tasks([])) == 14
    assert len({task.dataset for task in choose_tasks([])}) == 14
    assert {task.family for task in tasks} == {"diagnosis", "segmentation", "detection", "report", "decline"}
    assert {task.layout for task in choose_tasks(["layout"])} == {"official"}
    for task in tasks:
        assert len(task.request) > 15
        for name in task.dataset_names:
            from m3b.bench.datasets import get_dataset

            assert task.layout in get_dataset(name).layouts
    assert choose_tasks(["CT-Kidney"]) == choose_tasks(["ct-kidney"])
    with pytest.raises(UsageError, match="No task"):
        choose_tasks(["bananas"])


def test_simulated_cells_come_one_at_a_time(tmp_path: Path) -> None:
    """Ten thousand cells are never a list."""
    import tracemalloc

    big = SweepPlan(load_tasks()[:20], models=tuple(f"p:m{k}" for k in range(10)), runs=50, simulate=0.0)
    assert len(big) == 10_000
    tracemalloc.start()
    count = sum(1 for _ in big.iterate_cells(tmp_path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 2_000_000
