"""The engine for Slurm against a real controller with two nodes on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.slurm_daemons import SlurmDaemons, find_missing_program, run_slurm, wait_for
from m3b.engines import EngineError, JobRequest, Resources
from m3b.engines.slurm import SlurmEngine
from m3b.errors import UsageError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(find_missing_program()), reason=find_missing_program() or "-"),
]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmDaemons]:
    with run_slurm(tmp_path_factory.mktemp("slurm")) as daemons:
        yield daemons


@pytest.fixture
def engine(daemons: SlurmDaemons, monkeypatch: pytest.MonkeyPatch) -> SlurmEngine:
    monkeypatch.setenv("SLURM_CONF", daemons.environment["SLURM_CONF"])
    return SlurmEngine()


def request_job(folder: Path, code: str, name: str = "job", **values: object) -> JobRequest:
    folder.mkdir(exist_ok=True)
    resources = Resources(cpus=1, memory_gib=0.25, minutes=5)
    fields = {"resources": resources, **values}
    return JobRequest(name, (sys.executable, "-c", code), folder, folder / "log 50%.txt", **fields)


def wait_until_it_ends(engine: SlurmEngine, job_id: str) -> None:
    wait_for(lambda: engine.poll(job_id).has_ended, f"job {job_id} runs")


def test_a_job_runs_on_a_node_and_its_output_is_followed(engine: SlurmEngine, tmp_path: Path) -> None:
    code = "import os, sys, time; print(os.getcwd(), flush=True)\nwhile not os.path.exists('go'): time.sleep(0.1)\nsys.exit(7)"
    job_id = engine.submit(request_job(tmp_path / "a", code, "seven"))
    assert engine.find("seven") == job_id
    wait_for(lambda: engine.tail(job_id, 0)[0], "no output")
    status = engine.poll(job_id)
    assert (status.state, status.exit_code) == ("running", None)
    assert status.node in ("node1", "node2")
    output, offset = engine.tail(job_id, 0)
    assert output.decode().strip() == str(tmp_path / "a")
    assert SlurmEngine().tail(job_id, 0)[0] == output  # another process asks the controller for the file
    assert engine.tail(job_id, offset) == (b"", offset)
    (tmp_path / "a" / "go").touch()
    wait_until_it_ends(engine, job_id)
    assert (engine.poll(job_id).state, engine.poll(job_id).exit_code) == ("failed", 7)


@pytest.mark.parametrize("name", ["a\\b", "a\\b%j", "%j", "a b%%j", "a\\\\b JobState=COMPLETED"])
def test_a_folder_with_the_symbols_of_file_patterns(engine: SlurmEngine, tmp_path: Path, name: str) -> None:
    """With a backslash in the path, no job could be started."""
    request = request_job(tmp_path / name, "raise SystemExit(print('hello') or 3)", "symbols")
    job_id = engine.submit(request)
    wait_until_it_ends(engine, job_id)
    assert (engine.poll(job_id).state, engine.poll(job_id).exit_code) == ("failed", 3)
    assert request.log_file.read_text() == "hello\n"
    if " " not in name:
        assert SlurmEngine().tail(job_id, 0)[0] == b"hello\n"


def test_a_job_gets_no_variable_but_those_that_may_pass(
    engine: SlurmEngine, daemons: SlurmDaemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-4711")
    monkeypatch.setenv("SBATCH_EXPORT", "ALL")
    monkeypatch.setenv("SITE", "a 'quoted' word")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    job_id = engine.submit(request_job(tmp_path / "a", code, "env", pass_environment=("SITE", "ABSENT")))
    wait_until_it_ends(engine, job_id)
    import json

    environment = json.loads(engine.tail(job_id, 0)[0])
    assert environment["SITE"] == "a 'quoted' word"
    assert environment["SLURM_JOB_ID"] == job_id
    assert set(environment) <= {
        "PATH", "HOME", "LANG", "LC_CTYPE", "SITE", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_CONF", "OMP_NUM_THREADS",
        "M3B_REQUEUE_COMMAND",
    }  # fmt: skip
    files = [file for folder in (tmp_path, daemons.folder) for file in folder.rglob("*") if file.is_file()]
    assert not [file for file in files if b"canary-4711" in file.read_bytes()]
    with pytest.raises(UsageError):
        request_job(tmp_path / "a", "", pass_environment=("ANTHROPIC_API_KEY",))


def test_a_cancelled_job_ends_with_its_processes(engine: SlurmEngine, daemons: SlurmDaemons, tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
    job_id = engine.submit(request_job(tmp_path / "a", code))
    wait_for(lambda: engine.tail(job_id, 0)[0], "no output")
    pid = int(engine.tail(job_id, 0)[0])
    engine.cancel(job_id)
    wait_until_it_ends(engine, job_id)
    assert engine.poll(job_id).state == "cancelled"
    assert not os.path.exists(f"/proc/{pid}")
    engine.cancel(job_id)  # again: nothing happens
    assert daemons.list_jobs() == []


def test_an_unknown_job_is_lost_and_an_impossible_one_refused(engine: SlurmEngine, tmp_path: Path) -> None:
    assert engine.poll("999999").state == "lost"
    assert engine.find("nothing-of-this-name") is None
    with pytest.raises(EngineError) as raised:
        engine.submit(request_job(tmp_path / "a", "", resources=Resources(partition="absent")))
    assert raised.value.code == "rejected"
    with pytest.raises(UsageError):
        engine.submit(request_job(tmp_path / "a", "", resources=Resources(options={"export": "ALL"})))


def test_resources_are_those_of_the_nodes(engine: SlurmEngine) -> None:
    resources = engine.resources()
    assert (resources.cpus, resources.gpus) == (4, 0)
    main = resources.find_partition("")
    assert main is not None
    assert (main.name, main.nodes, main.cpus, main.minutes) == ("main", 2, 2, 240)
    resources.check(Resources(cpus=2, memory_gib=8))
    for excessive in (Resources(cpus=3), Resources(gpus=1), Resources(memory_gib=64), Resources(partition="absent")):
        with pytest.raises(UsageError):
            resources.check(excessive)
