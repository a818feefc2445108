"""Sweeps on a Ray cluster of several nodes on this machine; one is killed in mid-sweep, one is found."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from m3b.bench.ray_engine import RayEngine
from m3b.bench.results_store import read_lines, read_rows
from m3b.bench.sweep import SweepPlan, run_sweep
from m3b.bench.tasks import choose_tasks

ray: Any = pytest.importorskip("ray")
cluster_utils: Any = pytest.importorskip("ray.cluster_utils")


MARK = "M3B_TEST_DOOMED"


@pytest.fixture
def cluster() -> Any:
    ray_cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    yield ray_cluster
    ray.shutdown()
    ray_cluster.shutdown()


def count(folder: Path, event: str) -> Counter[str]:
    return Counter(line["key"] for line in read_lines(folder) if line["event"] == event)


def a_cell_of_the_doomed_node() -> bool:
    """Whether the node that is to be killed has a cell at work."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            at_work = b"m3b.bench.cell" in (process / "cmdline").read_bytes()
            if at_work and f"{MARK}=1".encode() in (process / "environ").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.slow
def test_a_node_is_killed_and_another_found_in_mid_sweep(cluster: Any, tmp_path: Path) -> None:
    """Twenty-eight cells on three nodes; nothing is lost, and no result stands twice."""
    doomed = cluster.add_node(num_cpus=1, env_vars={MARK: "1"})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    plan = SweepPlan(choose_tasks([]), runs=2, simulate=2.0)
    done: list[str] = []

    def disturb(event: str, row: dict[str, Any]) -> None:
        done.append(row["key"]) if event == "done" else None
        if event == "done" and len(done) == 4:
            while not a_cell_of_the_doomed_node():
                time.sleep(0.02)
            cluster.remove_node(doomed, allow_graceful=False)
            cluster.add_node(num_cpus=1)

    assert run_sweep(plan, tmp_path, RayEngine(cpus=1.0), on_event=disturb) == 28
    rows = read_rows(tmp_path)
    assert len(rows) == 28
    assert {row["reason"] for row in rows} == {"simulated"}, "no cell is lost with its node"
    assert set(count(tmp_path, "done").values()) == {1}, "and none has two results"
    claims = count(tmp_path, "claim")
    assert sum(claims.values()) > 28, "the lost cell was begun again"
    assert sum(claims.values()) <= 28 + 3, "and only what was lost"
    assert len({row["key"] for row in rows}) == 28
    for row in rows:
        assert (tmp_path / "cells" / row["folder"] / "result.json").is_file()


@pytest.mark.slow
def test_a_sweep_on_ray_is_taken_up_by_the_local_engine(cluster: Any, tmp_path: Path) -> None:
    from m3b.bench.local_engine import LocalEngine

    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    tasks = choose_tasks(["ct-kidney", "btcv"])
    assert run_sweep(SweepPlan(tasks, simulate=0.0), tmp_path, RayEngine(cpus=1.0)) == 2
    assert run_sweep(SweepPlan(tasks, runs=2, simulate=0.0), tmp_path, LocalEngine()) == 2
    assert len(read_rows(tmp_path)) == 4
