"""The engine for this machine: child processes with their own processors, which end with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from m3b.engines import EngineError, JobRequest, JobStatus, Resources
from m3b.engines.local import LocalEngine, choose_cores


def request_job(folder: Path, command: str, name: str = "job", minutes: float = 0.0) -> JobRequest:
    return JobRequest(name, ("/bin/sh", "-c", command), folder, folder / f"{name}.txt", Resources(minutes=minutes))


def wait_for_end(engine: LocalEngine, job_id: str) -> JobStatus:
    return wait_for(lambda: engine.poll(job_id), lambda status: status.has_ended)


def wait_for(look: Callable[[], JobStatus], is_enough: Callable[[JobStatus], bool]) -> JobStatus:
    deadline = time.monotonic() + 60
    while not is_enough(status := look()):
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def test_output_and_exit_code(tmp_path: Path) -> None:
    engine = LocalEngine()
    job_id = engine.submit(request_job(tmp_path, "pwd; exit 3"))
    status = wait_for_end(engine, job_id)
    assert (status.state, status.exit_code) == ("failed", 3)
    output, offset = engine.tail(job_id, 0)
    assert output.decode().split() == [str(tmp_path)]
    assert engine.tail(job_id, offset) == (b"", offset)
    assert wait_for_end(engine, engine.submit(request_job(tmp_path, "true"))).state == "finished"


def test_the_newest_job_of_a_name_is_found(tmp_path: Path) -> None:
    engine = LocalEngine()
    engine.submit(request_job(tmp_path, "true"))
    newest_id = engine.submit(request_job(tmp_path, "true"))
    assert engine.find("job") == newest_id
    assert engine.find("other") is None


def test_a_cancelled_job_can_clean_up(tmp_path: Path) -> None:
    engine = LocalEngine()
    job_id = engine.submit(
        request_job(tmp_path, "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.02; done")
    )
    wait_for(lambda: engine.poll(job_id), lambda status: engine.tail(job_id, 0)[0] == b"ready\n")
    engine.cancel(job_id)
    status = wait_for_end(engine, job_id)
    assert (status.state, status.exit_code, engine.tail(job_id, 0)[0]) == ("cancelled", 5, b"ready\nbye\n")
    engine.cancel(job_id)
    assert engine.poll(job_id) == status


def test_a_job_ends_after_its_minutes(tmp_path: Path) -> None:
    engine = LocalEngine()
    job_id = engine.submit(request_job(tmp_path, "exec sleep 600", minutes=0.2 / 60))
    status = wait_for_end(engine, job_id)
    assert (status.state, status.exit_code, status.reason) == ("failed", 143, "TIMEOUT")


def test_a_program_that_is_missing_is_an_error(tmp_path: Path) -> None:
    request = JobRequest("job", ("/no/such/program",), tmp_path, tmp_path / "log.txt")
    with pytest.raises(EngineError, match="/no/such/program") as raised:
        LocalEngine().submit(request)
    assert raised.value.code == "start_failed"


def test_jobs_share_the_processors(tmp_path: Path) -> None:
    engine = LocalEngine(slots=2)
    command = f"{sys.executable} -c 'import os; print(sorted(os.sched_getaffinity(0)))'; sleep 600"
    job_ids = [engine.submit(request_job(tmp_path, command, name)) for name in "ab"]
    for slot, job_id in enumerate(job_ids):
        wait_for(
            lambda job_id=job_id: engine.poll(job_id), lambda status, job_id=job_id: bool(engine.tail(job_id, 0)[0])
        )
        assert engine.tail(job_id, 0)[0].decode().strip() == str(sorted(choose_cores(slot, 2)))
    assert engine.resources().free_cpus <= engine.resources().cpus - 2 or engine.resources().cpus == 1
    for job_id in job_ids:
        engine.cancel(job_id)
        assert wait_for_end(engine, job_id).state == "cancelled"
    assert engine.resources().free_cpus == engine.resources().cpus == len(os.sched_getaffinity(0))


def test_another_process_can_tell_whether_a_job_has_ended(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from engines.test_local_engine import request_job
from m3b.engines.local import LocalEngine
print(LocalEngine().submit(request_job(Path(sys.argv[1]), "exec sleep 600")), flush=True)
sys.stdin.read()
"""
    tests = str(Path(__file__).parents[1])
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), tests], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        job_id = parent.stdout.readline().strip()
        engine = LocalEngine()
        assert engine.poll(job_id).state == "running"
        parent.kill()
    assert wait_for_end(engine, job_id) == JobStatus("failed", node=os.uname().nodename, reason="PARENT_DIED")


@pytest.mark.parametrize("job_id", ["", "elsewhere:1:1", "17", f"{os.uname().nodename}:x:1"])
def test_jobs_of_other_machines_are_unknown(job_id: str) -> None:
    assert LocalEngine().poll(job_id) == JobStatus("lost", reason="UNKNOWN")
