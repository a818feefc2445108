"""Sweeps of simulated cells: each once, in order to be taken up again after anything."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench_kit import by_id
from typer.testing import CliRunner

from m3b.bench.cell import CELL_FILE, Cell, run_cell
from m3b.bench.results_store import SweepStore, read_lines, read_rows
from m3b.bench.sweep import SweepPlan, run_sweep
from m3b.bench.systems import CellOutcome
from m3b.bench.tasks import choose_tasks, load_tasks
from m3b.cli.bench import app
from m3b.engines import ClusterResources, Engine, EngineError, EngineName, JobRequest, JobStatus, Resources
from m3b.engines.local import LocalEngine, choose_cores
from m3b.errors import UsageError


def plan(runs: int = 1, simulate: float = 0.0, tasks: tuple[str, ...] = ("ct-kidney", "btcv")) -> SweepPlan:
    return SweepPlan(tuple(map(by_id, tasks)), runs=runs, simulate=simulate)


class Inline:
    """An engine that runs each cell in this process as it is submitted."""

    name: EngineName = "local"

    def __init__(self, fail_at: int = -1) -> None:
        self.fail_at, self.seen = fail_at, 0

    def submit(self, request: JobRequest) -> str:
        if self.seen == self.fail_at:
            raise KeyboardInterrupt
        self.seen += 1
        run_cell(Cell.from_json(json.loads((request.folder / CELL_FILE).read_text())), request.folder)
        return request.name

    def find(self, name: str) -> str | None:
        return None

    def poll(self, job_id: str) -> JobStatus:
        return JobStatus("finished", 0)

    def tail(self, job_id: str, offset: int) -> tuple[bytes, int]:
        return b"", offset

    def cancel(self, job_id: str) -> None:
        raise AssertionError(f"{job_id} has ended")

    def resources(self) -> ClusterResources:
        return ClusterResources(1, 0, 1, 0)


def sweep(sweep_plan: SweepPlan, folder: Path, engine: Engine | None = None, **options: Any) -> int:
    """Run a sweep of one cell at a time, in this process if no engine is given."""
    return run_sweep(sweep_plan, folder, engine or Inline(), max_jobs=1, **options)


def lines_of(folder: Path, event: str) -> Counter[str]:
    return Counter(line["key"] for line in read_lines(folder) if line["event"] == event)


def test_cells_run_in_processes_of_their_own(tmp_path: Path) -> None:
    assert run_sweep(plan(runs=2), tmp_path, LocalEngine(2), max_jobs=2) == 4
    rows = read_rows(tmp_path)
    assert len(rows) == 4
    assert set(lines_of(tmp_path, "done").values()) == {1}
    assert run_sweep(plan(runs=2), tmp_path, LocalEngine(2), max_jobs=2) == 0, "nothing is run twice"
    assert (tmp_path / "cells" / rows[0]["key"] / "cell.json").is_file()


def test_a_sweep_that_was_stopped_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        sweep(plan(runs=3), tmp_path, Inline(fail_at=4))
    assert sum(lines_of(tmp_path, "done").values()) == 4
    assert sweep(plan(runs=3), tmp_path) == 2
    assert set(lines_of(tmp_path, "done").values()) == {1}
    assert len(read_rows(tmp_path)) == 6


def test_being_stopped_again_and_again_is_no_failure_of_the_cell(tmp_path: Path) -> None:
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            sweep(plan(), tmp_path, Inline(fail_at=0))
    sweep(plan(), tmp_path)
    assert {row["reason"] for row in read_rows(tmp_path)} == {"simulated"}


def test_a_torn_last_line_is_cut_and_its_cell_run_again(tmp_path: Path) -> None:
    sweep(plan(), tmp_path)
    file = tmp_path / "results.jsonl"
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    assert sweep(plan(), tmp_path) == 1
    assert all(json.loads(line) for line in file.read_text().splitlines())
    assert len(read_rows(tmp_path)) == 2


def test_a_result_in_the_folder_is_not_run_again(tmp_path: Path) -> None:
    """The process of the cell finished, and the sweep died before it wrote the line down."""
    sweep(plan(), tmp_path)
    file = tmp_path / "results.jsonl"
    file.write_bytes(b"".join(line for line in file.read_bytes().splitlines(keepends=True) if b'"done"' not in line))
    engine = Inline()
    assert sweep(plan(), tmp_path, engine) == 2
    assert engine.seen == 0


def test_a_cell_that_kills_its_process_three_times_is_a_failure(tmp_path: Path) -> None:
    for _ in range(3):
        with SweepStore(tmp_path) as store:
            store.claim(Cell("m3b", "rules", by_id("ct-kidney"), 0).key)
    engine = Inline()
    sweep(plan(), tmp_path, engine)
    kinds = {row["task"]: row["kind"] for row in read_rows(tmp_path)}
    assert kinds["ct-kidney"] == "crashed"
    assert engine.seen == 1


class Crashing(Inline):
    """An engine whose jobs end without a result."""

    def __init__(self, status: JobStatus) -> None:
        super().__init__()
        self.status, self.folders = status, []

    def submit(self, request: JobRequest) -> str:
        self.folders.append(request.folder.name)
        return request.name

    def poll(self, job_id: str) -> JobStatus:
        return self.status


@pytest.mark.parametrize(
    ("status", "kind", "folders"),
    [
        (JobStatus("failed", 9), "crashed", ["", "", ""]),
        (JobStatus("finished", 0), "crashed", ["", "", ""]),
        (JobStatus("lost", reason="NODE_FAIL"), "crashed", ["", "try-2", "try-3"]),
        (JobStatus("failed", 143, reason="TIMEOUT"), "budget", [""]),
        (JobStatus("cancelled", 143), "cancelled", [""]),
    ],
)
def test_ends_without_a_result(tmp_path: Path, status: JobStatus, kind: str, folders: list[str]) -> None:
    """A lost process may still be writing, so the next attempt has a new folder."""
    engine = Crashing(status)
    sweep(plan(tasks=("btcv",)), tmp_path, engine)
    [row] = read_rows(tmp_path)
    assert row["kind"] == kind
    assert engine.folders == [folder or row["key"] for folder in folders]


def test_a_cell_that_still_runs_is_taken_over(tmp_path: Path) -> None:
    """The sweep was killed, and its cell was not."""
    one_cell = plan(simulate=1.0, tasks=("btcv",))
    [cell] = one_cell.iterate_cells(tmp_path)
    with SweepStore(tmp_path) as store:
        attempt = store.claim(cell.key)
        folder = store.get_cell_folder(cell.key)
        folder.mkdir()
        (folder / CELL_FILE).write_text(json.dumps(cell.to_json()))
        argv = (sys.executable, "-m", "m3b.bench.cell", str(folder))
        job_id = LocalEngine().submit(JobRequest(attempt.job_name, argv, folder, folder / "log.txt"))
        store.record_job(cell.key, job_id)
    assert sweep(one_cell, tmp_path, LocalEngine()) == 1
    assert lines_of(tmp_path, "claim") == lines_of(tmp_path, "done") == {cell.key: 1}


@pytest.mark.parametrize(
    "name", ["../../outside", "/outside", "link", "link/try-2", "a/../../../outside", ".", "cell.json"]
)
def test_folders_outside_of_the_sweep_are_refused(tmp_path: Path, name: str) -> None:
    """Results that somebody sent could name any folder, whose results were removed or written."""
    folder, outside_folder = tmp_path / "sweep", tmp_path / "outside"
    one_cell = plan(tasks=("btcv",))
    sweep(one_cell, folder)
    [row] = read_rows(folder)
    shutil.move(folder / "cells" / row["key"], outside_folder)
    (outside_folder / "outcome.json").write_text(json.dumps(CellOutcome("failed", "as it ended").to_json()))
    shutil.copytree(outside_folder, outside_folder / "try-2")
    (folder / "cells" / "link").symlink_to(outside_folder)
    (folder / "cells" / "cell.json").write_text("{}")
    with SweepStore(folder) as store:
        store.replace({**row, "kind": "crashed", "folder": str(tmp_path / name[1:]) if name[0] == "/" else name})
    content = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    score_result = CliRunner().invoke(app, ["score", str(folder)])
    assert isinstance(score_result.exception, UsageError)
    with pytest.raises(UsageError, match=r"results\.jsonl"):
        sweep(one_cell, folder, retry=True)
    assert {path: path.read_bytes() for path in content} == content


def test_cells_of_another_engine_get_a_new_folder(tmp_path: Path) -> None:
    [cell] = plan(tasks=("btcv",)).iterate_cells(tmp_path)
    with SweepStore(tmp_path) as store:
        store.claim(cell.key, "slurm")
        store.record_job(cell.key, "17")
        store.get_cell_folder(cell.key).mkdir()
    sweep(plan(tasks=("btcv",)), tmp_path)
    [row] = read_rows(tmp_path)
    assert (row["folder"], row["reason"]) == (f"{cell.key}/try-2", "simulated")


def test_what_an_engine_may_still_run_stays_claimed(tmp_path: Path) -> None:
    """The cluster cannot be reached: its cells go on, and are not cancelled."""

    class Unreachable(Inline):
        def poll(self, job_id: str) -> JobStatus:
            raise EngineError("no answer", code="unreachable")

    with pytest.raises(EngineError):
        sweep(plan(), tmp_path, Unreachable())
    assert not lines_of(tmp_path, "release")
    engine = Inline()
    assert sweep(plan(), tmp_path, engine) == 2
    assert engine.seen == 1


def test_retry_runs_what_failed_for_the_worlds_fault(tmp_path: Path) -> None:
    for _ in range(3):
        with SweepStore(tmp_path) as store:
            store.claim(Cell("m3b", "rules", by_id("ct-kidney"), 0).key)
    sweep(plan(), tmp_path)
    assert sweep(plan(), tmp_path) == 0
    assert sweep(plan(), tmp_path, Inline(), retry=True) == 1
    assert {row["reason"] for row in read_rows(tmp_path)} == {"simulated"}


def test_too_long_cells_are_ended(tmp_path: Path) -> None:
    too_long = plan(simulate=60.0, tasks=("btcv",))
    sweep(too_long, tmp_path, LocalEngine(), resources=Resources(minutes=2 / 60))
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
    sweep(plan(), tmp_path)
    other_plan = SweepPlan(plan().tasks, options={"train_minutes": 9.0}, simulate=0.0)
    with pytest.raises(UsageError, match="other options"):
        sweep(other_plan, tmp_path)


def test_ctrl_c_stops_cells_and_leaves_nothing_running(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]; from test_sweep import plan; "
        "from m3b.bench.sweep import run_sweep; from m3b.engines.local import LocalEngine\n"
        "run_sweep(plan(runs=2, simulate=300.0), Path(sys.argv[1]), LocalEngine(2), max_jobs=2)"
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
