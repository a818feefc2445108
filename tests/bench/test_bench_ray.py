"""Sweeps on a Ray cluster of several nodes on this machine: a node is killed, the sweep is killed, another goes on."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.ray_cluster import NODE_VARIABLE, RayCluster, find_processes, run_ray, wait_for
from m3b.bench.results_store import read_lines, read_rows
from m3b.bench.sweep import SweepPlan, run_sweep
from m3b.bench.tasks import choose_tasks
from m3b.engines.local import LocalEngine
from m3b.engines.ray import RayEngine

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with run_ray("doomed", "steady") as ray_cluster:
        yield ray_cluster


@pytest.fixture
def engine(cluster: RayCluster) -> Iterator[RayEngine]:
    ray_engine = RayEngine(cluster.address, node_environment=(NODE_VARIABLE,))
    yield ray_engine
    ray_engine.close()


def count(folder: Path, event: str) -> Counter[str]:
    return Counter(line["key"] for line in read_lines(folder) if line["event"] == event)


def test_a_sweep_that_was_killed_is_taken_over(cluster: RayCluster, engine: RayEngine, tmp_path: Path) -> None:
    """The cells go on without the sweep; the next one waits for them and starts none again."""
    code = """
import sys
from pathlib import Path
from m3b.bench.sweep import SweepPlan, run_sweep
from m3b.bench.tasks import choose_tasks
from m3b.engines.ray import RayEngine
plan = SweepPlan(choose_tasks(["ct-kidney", "btcv"]), runs=2, simulate=20.0)
run_sweep(plan, Path(sys.argv[1]), RayEngine(sys.argv[2]), max_jobs=2)
"""
    sweep = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), cluster.address], start_new_session=True)
    wait_for(lambda: len(find_processes("m3b.bench.cell")) == 2, "two cells do not start")
    sweep.kill()
    sweep.wait()
    assert len(find_processes("m3b.bench.cell")) == 2
    plan = SweepPlan(choose_tasks(["ct-kidney", "btcv"]), runs=2, simulate=20.0)
    assert run_sweep(plan, tmp_path, engine, max_jobs=2) == 4
    assert len(read_rows(tmp_path)) == 4
    assert set(count(tmp_path, "claim").values()) == {1}, "no cell was started twice"
    assert set(count(tmp_path, "done").values()) == {1}
    assert not find_processes("m3b.bench.cell")


def test_ctrl_c_leaves_nothing_on_the_cluster(cluster: RayCluster, engine: RayEngine, tmp_path: Path) -> None:
    class WatchedEngine(RayEngine):
        """An engine that is interrupted when a cell runs."""

        def poll(self, job_id: str) -> Any:
            status = super().poll(job_id)
            if status.state == "running" and not interrupted:
                interrupted.append(job_id)
                raise KeyboardInterrupt
            return status

    interrupted: list[str] = []
    watched_engine = WatchedEngine(cluster.address)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(SweepPlan(choose_tasks(["btcv"]), simulate=600.0), tmp_path, watched_engine)
    watched_engine.close()
    assert not find_processes("m3b.bench.cell")
    assert count(tmp_path, "claim") == count(tmp_path, "release")
    wait_for(lambda: engine.resources().free_cpus == 3, "a cell holds its processor")


def test_a_sweep_on_ray_is_taken_up_by_the_local_engine(engine: RayEngine, tmp_path: Path) -> None:
    tasks = choose_tasks(["ct-kidney", "btcv"])
    assert run_sweep(SweepPlan(tasks, simulate=0.0), tmp_path, engine) == 2
    assert run_sweep(SweepPlan(tasks, runs=2, simulate=0.0), tmp_path, LocalEngine(), max_jobs=1) == 2
    assert len(read_rows(tmp_path)) == 4


def test_a_node_is_killed_and_another_joins_during_a_sweep(
    cluster: RayCluster, engine: RayEngine, tmp_path: Path
) -> None:
    """Fourteen cells on three nodes; none is lost, and none has two results."""
    plan = SweepPlan(choose_tasks([]), simulate=2.0)
    finished_keys: list[str] = []

    def disturb(event: str, row: dict[str, Any]) -> None:
        if event == "done":
            finished_keys.append(row["key"])
            if len(finished_keys) == 3:
                wait_for(lambda: find_processes("m3b.bench.cell", f"{NODE_VARIABLE}=doomed"), "the node gets no cell")
                cluster.kill_node("doomed")
                cluster.add_node("new")

    assert run_sweep(plan, tmp_path, engine, on_event=disturb) == 14
    rows = read_rows(tmp_path)
    assert len({row["key"] for row in rows}) == len(rows) == 14
    assert {row["reason"] for row in rows} == {"simulated"}, "no cell is lost with its node"
    assert set(count(tmp_path, "done").values()) == {1}
    claims = count(tmp_path, "claim")
    assert 14 < sum(claims.values()) <= 14 + 3, "what was lost was started again, and nothing else"
    restarted_keys = {key for key, number in claims.items() if number > 1}
    for row in rows:
        assert (tmp_path / "cells" / row["folder"] / "result.json").is_file()
        assert row["folder"].endswith("try-2") == (row["key"] in restarted_keys)
