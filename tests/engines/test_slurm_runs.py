"""Whole runs whose training is a Slurm job: undisturbed, and with each part of the chain killed in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.ray_cluster import find_processes
from engines.slurm_daemons import NODES, SlurmDaemons, find_missing_program, run_slurm, wait_for
from m3b.data.synthetic import make_chest
from m3b.events import NoteAdded
from m3b.journal import read_journal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(find_missing_program()), reason=find_missing_program() or "-"),
]

REQUEST = "Detect lung opacities on chest X-rays"
PLAN_JOB, TRAINING_JOB = "001", "002"
RUN_TIMEOUT_S = 900.0
N_CHECK_JOBS = 2
"""The check of the training project, and the prediction of validation and test cases."""
OPTIONS = (
    "--llm", "rules", "--quiet", "--json", "--seed", "1", "--steps", "240", "--folds", "1", "--network", "small_cnn",
    "--engine", "slurm", "--cpus", "1", "--memory", "4", "--partition", "main",
)  # fmt: skip


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmDaemons]:
    with run_slurm(tmp_path_factory.mktemp("slurm")) as daemons:
        yield daemons


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chest(tmp_path_factory.mktemp("data") / "chest", patients=60)


class StartedRun:
    """A run in a process of its own."""

    def __init__(self, daemons: SlurmDaemons, folder: Path) -> None:
        self.daemons, self.folder = daemons, folder
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str) -> None:
        environment = {**os.environ, **self.daemons.environment, "ANTHROPIC_API_KEY": "canary-4711"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "m3b", *arguments], env=environment, cwd=self.folder.parent, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def begin(self, data: Path, *options: str) -> None:
        """Start a new run."""
        self.start("run", REQUEST, "--data", str(data), "--out", str(self.folder), *OPTIONS, *options)

    def finish(self) -> dict[str, Any]:
        """Wait for the end; return the result."""
        assert self.process is not None
        output, _ = self.process.communicate(timeout=RUN_TIMEOUT_S)
        try:
            return dict(json.loads(output[output.index("{\n") :] if "{\n" in output else output))
        except ValueError:
            raise AssertionError(output) from None

    def wait_for_training(self) -> str:
        """Wait until the training has made its first epoch; return the id of its job."""
        log = self.folder / "logs" / "jobs" / f"{TRAINING_JOB}.log"

        def trains() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.process.communicate()[0]
            return log.is_file() and "epoch 1:" in log.read_text(errors="replace")

        wait_for(trains, "no training", RUN_TIMEOUT_S)
        return self.read_job_id()

    def read_job_id(self) -> str:
        submission = json.loads((self.job_folder / "submission.json").read_text())
        return str(submission["job"])

    @property
    def job_folder(self) -> Path:
        return self.folder / "logs" / "cluster" / TRAINING_JOB

    def list_notes(self) -> list[str]:
        return [event.text for event in read_journal(self.folder / "journal.jsonl") if isinstance(event, NoteAdded)]

    def count_attempts(self) -> int:
        return len(list(self.job_folder.glob("attempt-*.json")))

    def wait_for_prediction(self) -> str:
        """Wait until the prediction of cases runs on a node; return the id of its job."""

        def predicts() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.process.communicate()[0]
            return len(self.check_folders) == N_CHECK_JOBS and (self.check_folders[-1] / "owner.json").exists()

        wait_for(predicts, "no prediction", RUN_TIMEOUT_S)
        return str(json.loads((self.check_folders[-1] / "submission.json").read_text())["job"])

    @property
    def check_folders(self) -> list[Path]:
        return sorted((self.folder / "logs" / "checks").glob("[0-9][0-9][0-9]"))

    def count_check_attempts(self) -> list[int]:
        return [len(list(folder.glob("attempt-*.json"))) for folder in self.check_folders]

    def kill(self) -> None:
        """End what a failed test left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def started_run(daemons: SlurmDaemons, tmp_path: Path) -> Iterator[StartedRun]:
    started_run = StartedRun(daemons, tmp_path / "run")
    yield started_run
    started_run.kill()


@pytest.fixture(scope="module")
def undisturbed(daemons: SlurmDaemons, data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a run that nothing happens to."""
    run = StartedRun(daemons, tmp_path_factory.mktemp("undisturbed") / "run")
    run.begin(data)
    result = run.finish()
    assert result["status"] in ("completed", "below_range"), result
    assert run.count_attempts() == 1
    assert daemons.list_jobs() == []
    assert sorted(path.name for path in (run.folder / "logs" / "cluster").iterdir()) == [PLAN_JOB, TRAINING_JOB]
    assert run.count_check_attempts() == [1] * N_CHECK_JOBS
    assert not (run.folder / ".predictions").exists()
    files = [file for folder in (run.folder, daemons.folder) for file in folder.rglob("*") if file.is_file()]
    assert not [file for file in files if b"canary-4711" in file.read_bytes()]
    return result


def assert_same_figures(result: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    assert result["status"] == undisturbed["status"]
    assert result["primary"] == undisturbed["primary"]
    assert result["metrics"] == undisturbed["metrics"]


def assert_measured(run: StartedRun, result: dict[str, Any]) -> None:
    """Training that goes on from a checkpoint draws other random numbers, so its figures differ a little."""
    assert result["status"] in ("completed", "below_range"), result["reason"]
    assert result["primary"]["n"] > 0
    log = (run.folder / "logs" / "jobs" / f"{TRAINING_JOB}.log").read_text()
    assert "going on from checkpoint-" in log
    assert "epoch 1:" not in log
    assert "240 steps" in log
    assert json.loads((run.job_folder / "attempt-001.json").read_text())["reason"] == "interrupted"
    assert "epoch 1:" in (run.job_folder / "output-001.log").read_text()
    assert run.daemons.list_jobs() == []


def test_a_killed_m3b_finds_its_training_again(
    started_run: StartedRun, daemons: SlurmDaemons, data: Path, undisturbed: dict[str, Any]
) -> None:
    started_run.begin(data)
    job_id = started_run.wait_for_training()
    started_run.kill()
    assert job_id in daemons.list_jobs()
    started_run.start("resume", str(started_run.folder), "--quiet", "--json")
    assert_same_figures(started_run.finish(), undisturbed)
    assert started_run.read_job_id() == job_id
    assert started_run.count_attempts() == 1
    assert daemons.list_jobs() == []


def test_a_killed_m3b_finds_its_prediction_again(
    started_run: StartedRun, daemons: SlurmDaemons, data: Path, undisturbed: dict[str, Any]
) -> None:
    started_run.begin(data)
    job_id = started_run.wait_for_prediction()
    started_run.kill()
    started_run.start("resume", str(started_run.folder), "--quiet", "--json")
    assert_same_figures(started_run.finish(), undisturbed)
    assert job_id in [
        json.loads((folder / "submission.json").read_text())["job"] for folder in started_run.check_folders
    ]
    assert started_run.count_check_attempts() == [1] * N_CHECK_JOBS
    assert started_run.count_attempts() == 1
    assert daemons.list_jobs() == []


def test_a_lost_node_is_found_and_its_training_goes_on_elsewhere(
    started_run: StartedRun, daemons: SlurmDaemons, data: Path, undisturbed: dict[str, Any]
) -> None:
    started_run.begin(data)
    node = daemons.find_node(started_run.wait_for_training())
    [job_process] = find_processes(str(started_run.job_folder))
    daemons.crash_node(node, job_process)
    try:
        assert_same_figures(started_run.finish(), undisturbed)
    finally:
        daemons.start_node(node)
    assert started_run.count_attempts() == 2
    assert any(node in note and "queue" in note for note in started_run.list_notes())
    wait_for(lambda: daemons.list_jobs() == [], "the job of the lost node remains")
    wait_for(lambda: daemons.run("sinfo", "-hN", "-o", "%N %T").count("idle") >= len(NODES), "the node stays away")


def test_a_prediction_on_a_lost_node_is_made_elsewhere(
    started_run: StartedRun, daemons: SlurmDaemons, data: Path, undisturbed: dict[str, Any]
) -> None:
    started_run.begin(data)
    node = daemons.find_node(started_run.wait_for_prediction())
    [job_process] = find_processes(str(started_run.check_folders[-1]))
    daemons.crash_node(node, job_process)
    try:
        assert_same_figures(started_run.finish(), undisturbed)
    finally:
        daemons.start_node(node)
    assert started_run.count_check_attempts() == [1, 2]
    assert started_run.count_attempts() == 1
    wait_for(lambda: daemons.list_jobs() == [], "the job of the lost node remains")
    wait_for(lambda: daemons.run("sinfo", "-hN", "-o", "%N %T").count("idle") >= len(NODES), "the node stays away")


def test_a_preempted_training_goes_on_from_its_checkpoint(
    started_run: StartedRun, daemons: SlurmDaemons, data: Path
) -> None:
    started_run.begin(data)
    job_id = started_run.wait_for_training()
    urgent = ["--parsable", "--export=NONE", "-p", "urgent", "-N", "2", "--exclusive", "-t", "1", "-o", "/dev/null"]
    assert daemons.run("sbatch", *urgent, "--wrap", "sleep 1")
    assert_measured(started_run, started_run.finish())
    assert started_run.read_job_id() == job_id


def test_a_job_before_its_time_limit_writes_a_checkpoint_and_is_put_back(
    started_run: StartedRun, daemons: SlurmDaemons, data: Path
) -> None:
    started_run.begin(data)
    job_id = started_run.wait_for_training()
    daemons.run("scancel", "--batch", "--signal=USR1", job_id)
    assert_measured(started_run, started_run.finish())
    assert started_run.read_job_id() == job_id


def test_a_cancelled_job_ends_the_run_with_a_reason(started_run: StartedRun, daemons: SlurmDaemons, data: Path) -> None:
    started_run.begin(data)
    job_id = started_run.wait_for_training()
    daemons.run("scancel", job_id)
    result = started_run.finish()
    assert result["status"] == "cancelled"
    assert "cluster job" in result["reason"]
    assert daemons.list_jobs() == []
    started_run.start("resume", str(started_run.folder), "--quiet", "--json")
    assert started_run.finish()["status"] in ("completed", "below_range")
    assert daemons.list_jobs() == []


def test_ctrl_c_cancels_the_job(started_run: StartedRun, daemons: SlurmDaemons, data: Path) -> None:
    started_run.begin(data)
    started_run.wait_for_training()
    assert started_run.process is not None
    started_run.process.terminate()
    assert started_run.finish()["status"] == "cancelled"
    assert daemons.list_jobs() == []
