"""Scripts as jobs of an engine: their ends, restarts without two at a time, and the job of a process that is gone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.process_engine import ProcessEngine
from engines.slurm_daemons import wait_for
from m3b.engines import ClusterProcess, ClusterScripts, Resources, scripts
from m3b.engines.job_folder import JobFolder
from m3b.engines.node_job import INTERRUPTED_CODE, choose_node_sandbox
from m3b.errors import RunCancelled, SandboxError, ToolError
from m3b.isolation.sandbox import Limits, Mounts, Sandbox, choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import Roots, Toolbox
from m3b.training import interruption

TICKS = "while [ ! -e $M3B_INTERRUPT_FILE ]; do echo ${M3B_JOB##*:} $(date +%s%N) >> ticks; sleep 0.05; done; exit 143"


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return choose_sandbox("off")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessEngine]:
    engine = ProcessEngine()
    yield engine
    engine.close(tmp_path)


@pytest.fixture(autouse=True)
def _frequent_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(scripts, "FILE_INTERVAL_S", 0.05)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def make_scripts(
    engine: ProcessEngine, tmp_path: Path, sandbox: Sandbox, notes: list[str] | None = None
) -> ClusterScripts:
    resources = Resources(cpus=1, memory_gib=4)
    on_note = (notes if notes is not None else []).append
    return ClusterScripts(engine, tmp_path / "cluster", "run 1", resources, sandbox, "off", on_note)


def start(cluster: ClusterScripts, work: Path, command: str, number: int = 1, **limits: Any) -> ClusterProcess:
    return cluster.start(
        number, ["bash", "-c", command], cwd=work, mounts=Mounts(write=(work,)),
        output=cluster.folder.parent / "logs" / f"{number}.log", env={"SITE": "here"}, limits=Limits(wall_s=120, **limits),
    )  # fmt: skip


def shorten_lease(cluster: ClusterScripts, monkeypatch: pytest.MonkeyPatch, lease_s: float) -> None:
    """Let jobs take one another for dead after this time."""
    create = JobFolder.create
    monkeypatch.setattr(
        JobFolder, "create", lambda self, command: create(self, dataclasses.replace(command, lease_s=lease_s))
    )


def test_a_script_ends_with_its_code_and_output(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-4711")
    notes: list[str] = []
    process = start(make_scripts(engine, tmp_path, sandbox, notes), work, "echo $SITE; env > environment; exit 3")
    exit_status = process.wait(60)
    assert exit_status is not None
    assert (exit_status.code, exit_status.reason) == (3, "exit")
    assert process.output.read_text() == "here\n"
    assert notes[0] == "Script 1 is job 1 of local."
    assert (tmp_path / "cluster" / "001").stat().st_mode & 0o077 == 0
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"canary-4711" in file.read_bytes()]


@pytest.mark.slow
def test_a_limit_of_the_script_is_its_reason(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path
) -> None:
    process = start(make_scripts(engine, tmp_path, sandbox), work, "head -c 9M /dev/zero > big; sleep 60", disk_mib=4)
    exit_status = process.wait(60)
    assert exit_status is not None
    assert exit_status.reason == "disk"


def test_a_stopped_script_leaves_nothing(engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path) -> None:
    process = start(make_scripts(engine, tmp_path, sandbox), work, TICKS)
    wait_for((work / "ticks").exists, "no tick")
    exit_status = process.stop()
    assert (exit_status.code, exit_status.reason) == (137, "stopped")
    assert engine.poll("1").has_ended
    ticks = (work / "ticks").read_bytes()
    time.sleep(0.3)
    assert (work / "ticks").read_bytes() == ticks


def test_a_job_that_somebody_cancelled_has_a_reason_of_its_own(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path
) -> None:
    roots = Roots(work, {})
    cluster = make_scripts(engine, tmp_path, sandbox)
    with Toolbox(roots, sandbox=sandbox, logs=tmp_path / "logs", cluster=cluster) as tools:
        call = ToolCall("1", "run_script", {"command": TICKS, "wait_s": 0})
        assert tools.call(call, ["run_script"]).data["running"]
        wait_for((work / "ticks").exists, "no tick")
        engine.cancel("1")
        with pytest.raises(RunCancelled) as raised:
            tools.call(ToolCall("2", "run_script", {"job": 1, "wait_s": 60}), ["run_script"])
        assert raised.value.code == "job_cancelled"
    assert make_scripts(engine, tmp_path, sandbox).reopen(1) is None  # a resumed run starts it anew


def test_a_preempted_script_stops_and_its_job_is_submitted_again(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path
) -> None:
    """A script that knows nothing of checkpoints would be killed; this one ends as train.py does."""
    command = (
        f"echo attempt ${{M3B_JOB##*:}}; [ ${{M3B_JOB##*:}} = 2 ] && exit 0; touch begun; "
        f"while [ ! -e $M3B_INTERRUPT_FILE ]; do sleep 0.1; done; exit {INTERRUPTED_CODE}"
    )
    notes: list[str] = []
    process = start(make_scripts(engine, tmp_path, sandbox, notes), work, command)
    wait_for((work / "begun").exists, "it did not begin")
    engine.preempt("1")
    exit_status = process.wait(60)
    assert exit_status is not None
    assert (exit_status.code, exit_status.reason) == (0, "exit")
    assert process.job_id == "2"
    assert process.output.read_text() == "attempt 2\n"
    assert (tmp_path / "cluster" / "001" / "output-001.log").read_text() == "attempt 1\n"
    assert any("preempted" in note and "job 2 of local" in note for note in notes)


def test_after_a_lost_node_two_never_run_at_a_time(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is given up, but its processes go on: they stop before the new job starts."""
    cluster = make_scripts(engine, tmp_path, sandbox)
    shorten_lease(cluster, monkeypatch, 5.0)
    process = start(cluster, work, TICKS)
    wait_for((work / "ticks").exists, "no tick")
    engine.lose("1", kill=False)

    def has_second() -> bool:
        assert process.poll() is None
        return "\n2 " in (work / "ticks").read_text()

    wait_for(has_second, "no second attempt")
    process.stop()
    attempts = [line.split()[0] for line in (work / "ticks").read_text().splitlines()]
    assert attempts == sorted(attempts)
    assert engine.jobs["1"].process.wait(10) == INTERRUPTED_CODE


@pytest.mark.slow
def test_a_job_whose_node_died_starts_again_until_that_happens_too_often(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "MAX_STARTS", 2)
    cluster = make_scripts(engine, tmp_path, sandbox)
    shorten_lease(cluster, monkeypatch, 1.0)
    process = start(cluster, work, TICKS)
    for job_id in ("1", "2"):
        wait_for(lambda job_id=job_id: process.poll() is None and process.job_id == job_id, "not submitted")
        wait_for(lambda job_id=job_id: f"\n{job_id} " in f"\n{_read(work / 'ticks')}", "no tick")
        engine.lose(job_id, kill=True)
    exit_status = process.wait(60)
    assert exit_status is not None
    assert (exit_status.code, exit_status.reason) == (137, "lost")


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_another_process_finds_the_job_again(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path
) -> None:
    command = "touch begun; while [ ! -e go ]; do sleep 0.1; done; echo once >> runs"
    start(make_scripts(engine, tmp_path, sandbox), work, command)
    wait_for((work / "begun").exists, "it did not begin")
    (tmp_path / "cluster" / "001" / "submission.json").unlink()  # m3b died before it noted the job id
    cluster = make_scripts(engine, tmp_path, sandbox)
    with Toolbox(Roots(work, {}), sandbox=sandbox, logs=tmp_path / "logs", cluster=cluster) as tools:
        assert not tools.continue_command(command, {1})  # an agent has seen its result
        assert not tools.continue_command("another command", set())
        assert tools.continue_command(command, set())
        (work / "go").touch()
        result = tools.call(ToolCall("1", "run_script", {"command": command}), ["run_script"])
    assert result.data["exit_code"] == 0
    assert (work / "runs").read_text() == "once\n"
    assert len(engine.jobs) == 1


@pytest.mark.slow
def test_jobs_that_nobody_waits_for_are_cancelled(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path
) -> None:
    start(make_scripts(engine, tmp_path, sandbox), work, TICKS)
    wait_for((work / "ticks").exists, "no tick")
    make_scripts(engine, tmp_path, sandbox).cancel_all()
    assert engine.poll("1").has_ended
    assert JobFolder(tmp_path / "cluster" / "001").read_end() is not None


def test_a_node_has_no_weaker_sandbox() -> None:
    assert choose_node_sandbox("off", "off").name == "off"
    with pytest.raises(SandboxError):
        choose_node_sandbox("off", "bubblewrap")


def test_a_job_that_never_starts_its_script_is_an_error_of_the_cluster(
    engine: ProcessEngine, sandbox: Sandbox, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "SETTLE_S", 0.0)
    monkeypatch.setattr(scripts, "_node_command", lambda folder: ("/bin/sh", "-c", "echo no python here; exit 127"))
    with Toolbox(
        Roots(work, {}), sandbox=sandbox, logs=tmp_path / "logs", cluster=make_scripts(engine, tmp_path, sandbox)
    ) as tools:
        with pytest.raises(SandboxError, match="no python here"):
            tools.call(ToolCall("1", "run_script", {"command": "true"}), ["run_script"])
        with pytest.raises(ToolError):
            tools.context.jobs.find_job(2)


def test_training_and_engine_mean_the_same_code() -> None:
    assert interruption.INTERRUPTED_CODE == INTERRUPTED_CODE
