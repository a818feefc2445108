"""Whole runs whose training is a job of Ray: undisturbed, with m3b killed, and with the node of the training killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.ray_cluster import NODE_VARIABLE, RayCluster, find_processes, run_ray, wait_for
from m3b.data.synthetic import make_chest
from m3b.events import NoteAdded
from m3b.journal import read_journal

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

TRAINING_JOB = "002"
NODES = ("first", "second")
CANARY = "canary-4711"
RUN_TIMEOUT_S = 1500.0
N_CHECK_JOBS = 2
"""The check of the training project, and the prediction of validation and test cases."""
OPTIONS = (
    "--llm", "rules", "--quiet", "--json", "--seed", "1", "--steps", "240", "--folds", "1", "--network", "small_cnn",
    "--engine", "ray", "--cpus", "1", "--memory", "4", "--partition", "training",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with run_ray() as ray_cluster:
        for name in NODES:
            ray_cluster.add_node(name, resources={"training": 1})
        yield ray_cluster


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chest(tmp_path_factory.mktemp("data") / "chest", patients=60)


class StartedRun:
    """A run in a process of its own."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "m3b", *arguments], cwd=self.folder.parent, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "RAY_ADDRESS": self.cluster.address, "ANTHROPIC_API_KEY": CANARY},
        )  # fmt: skip

    def begin(self, data: Path) -> None:
        """Start a new run."""
        self.start(
            "run", "Detect lung opacities on chest X-rays", "--data", str(data), "--out", str(self.folder), *OPTIONS
        )

    def finish(self) -> dict[str, Any]:
        """Wait for the end; return the result."""
        assert self.process is not None
        output, _ = self.process.communicate(timeout=RUN_TIMEOUT_S)
        try:
            return dict(json.loads(output[output.index("{\n") :] if "{\n" in output else output))
        except ValueError:
            raise AssertionError(output) from None

    def wait_for_training(self) -> None:
        """Wait until the training has made its first epoch."""
        log = self.folder / "logs" / "jobs" / f"{TRAINING_JOB}.log"

        def trains() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.process.communicate()[0]
            return log.is_file() and "epoch 1:" in log.read_text(errors="replace")

        wait_for(trains, "no training", RUN_TIMEOUT_S)

    @property
    def job_folder(self) -> Path:
        return self.folder / "logs" / "cluster" / TRAINING_JOB

    def find_node(self) -> str:
        """Return the node of the training: that of the worker of Ray which started its job."""
        [job] = find_processes(str(self.job_folder))
        worker = Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[1]
        variables = dict(
            variable.split("=", 1) for variable in Path(f"/proc/{worker}/environ").read_text().split("\0") if variable
        )
        return variables[NODE_VARIABLE]

    def list_notes(self) -> list[str]:
        return [event.text for event in read_journal(self.folder / "journal.jsonl") if isinstance(event, NoteAdded)]

    def count_attempts(self) -> int:
        return len(list(self.job_folder.glob("attempt-*.json")))

    def kill(self) -> None:
        """End what a failed test left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def started_run(cluster: RayCluster, tmp_path: Path) -> Iterator[StartedRun]:
    started_run = StartedRun(cluster, tmp_path / "run")
    yield started_run
    started_run.kill()


@pytest.fixture(scope="module")
def undisturbed(cluster: RayCluster, data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a run that nothing happens to."""
    run = StartedRun(cluster, tmp_path_factory.mktemp("undisturbed") / "run")
    run.begin(data)
    result = run.finish()
    assert result["status"] in ("completed", "below_range"), result
    assert run.count_attempts() == 1
    assert len(list((run.folder / "logs" / "cluster").iterdir())) == 2
    assert len(list((run.folder / "logs" / "checks").glob("[0-9][0-9][0-9]"))) == N_CHECK_JOBS
    folders = (run.folder, cluster.session_folder)
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    assert not [file for file in files if CANARY.encode() in file.read_bytes()]
    return result


def assert_same_figures(result: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    assert result["status"] == undisturbed["status"]
    assert result["primary"] == undisturbed["primary"]
    assert result["metrics"] == undisturbed["metrics"]


def test_a_killed_m3b_finds_its_training_again(
    started_run: StartedRun, data: Path, undisturbed: dict[str, Any]
) -> None:
    started_run.begin(data)
    started_run.wait_for_training()
    started_run.kill()
    assert len(find_processes(str(started_run.job_folder))) == 1
    started_run.start("resume", str(started_run.folder), "--quiet", "--json")
    assert_same_figures(started_run.finish(), undisturbed)
    assert started_run.count_attempts() == 1
    assert not find_processes(str(started_run.folder))


def test_the_training_of_a_killed_node_goes_on_elsewhere(
    started_run: StartedRun, cluster: RayCluster, data: Path, undisturbed: dict[str, Any]
) -> None:
    started_run.begin(data)
    started_run.wait_for_training()
    cluster.kill_node(started_run.find_node())
    assert_same_figures(started_run.finish(), undisturbed)
    assert started_run.count_attempts() == 2
    assert any("put back into the queue" in note for note in started_run.list_notes())
    assert not find_processes(str(started_run.folder))
