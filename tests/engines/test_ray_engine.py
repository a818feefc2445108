"""The engine for Ray against a real cluster of several nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.ray_cluster import NODE_VARIABLE, RayCluster, find_processes, run_ray, wait_for
from m3b.engines import EngineError, JobRequest, JobStatus, Resources
from m3b.engines.ray import RayEngine

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with run_ray("second") as ray_cluster:
        yield ray_cluster


@pytest.fixture(scope="module")
def shared_engine(cluster: RayCluster) -> Iterator[RayEngine]:
    engine = RayEngine(cluster.address, node_environment=(NODE_VARIABLE,))
    yield engine
    engine.close()


def request_job(folder: Path, code: str, name: str = "job", **values: object) -> JobRequest:
    folder.mkdir(exist_ok=True)
    return JobRequest(name, (sys.executable, "-c", code), folder, folder / "log.txt", **values)


def wait_for_end(engine: RayEngine, job_id: str) -> JobStatus:
    wait_for(lambda: engine.poll(job_id).has_ended, f"job {job_id} does not end")
    return engine.poll(job_id)


PATIENCE = (
    "import os, time\nprint(os.getpid(), flush=True)\nwhile not os.path.exists('go'): time.sleep(0.1)\nprint('end')"
)
"""A job that ends when its folder has a file `go`."""


def test_output_variables_and_exit_code(
    shared_engine: RayEngine, cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE", "a 'quoted' word")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-4711")
    code = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); print('canary', file=sys.stderr); sys.exit(7)"
    job_id = shared_engine.submit(request_job(tmp_path, code, "seven", pass_environment=("SITE", "ABSENT")))
    status = wait_for_end(shared_engine, job_id)
    assert (status.state, status.exit_code) == ("failed", 7)
    output, offset = shared_engine.tail(job_id, 0)
    assert shared_engine.tail(job_id, offset) == (b"", offset)
    environment = json.loads(output.splitlines()[0])
    assert environment["SITE"] == "a 'quoted' word"
    assert environment[NODE_VARIABLE] in ("head", "second")
    assert not [name for name in environment if "KEY" in name or name.startswith("RAY")]
    assert "canary-4711" not in output.decode()
    # neither variables nor commands get into the files of the cluster
    logs = [file for file in cluster.session_folder.rglob("*") if file.is_file()]
    assert len(logs) > 5
    assert not [file for file in logs if b"canary" in file.read_bytes() or b"quoted" in file.read_bytes()]


def test_the_metadata_of_ray_name_neither_commands_nor_requests(
    shared_engine: RayEngine, cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE", "canary-value")
    request = request_job(tmp_path / "canary-folder", "print('canary-argv')", "canary-name", pass_environment=("SITE",))
    wait_for_end(shared_engine, shared_engine.submit(request))
    code = """
import sys
import ray
from ray._private.state import state
ray.init(address=sys.argv[1], logging_level="error", log_to_driver=False)
print(state.job_table())
print(state.actor_table(None))
"""
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, cluster.address], capture_output=True, text=True, check=True, cwd="/"
    )
    assert "m3b.engines.ray_driver" in result.stdout, "the driver of the engine is listed"
    assert "m3b-job-" in result.stdout, "and its jobs"
    assert "canary" not in result.stdout
    assert "pytest" not in result.stdout, "but not what runs here"


def test_jobs_outlive_the_process_that_submitted_them(
    shared_engine: RayEngine, cluster: RayCluster, tmp_path: Path
) -> None:
    code = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from engines.test_ray_engine import PATIENCE, request_job
from m3b.engines.ray import RayEngine
engine = RayEngine(sys.argv[2])
engine.submit(request_job(Path(sys.argv[1]), PATIENCE, "orphan"))
print("submitted", flush=True)
sys.stdin.read()
"""
    tests = str(Path(__file__).parents[1])
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), cluster.address, tests],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with parent:
        assert parent.stdout.readline() == "submitted\n"
        parent.kill()
    job_id = shared_engine.find("orphan")
    assert job_id is not None
    wait_for(lambda: shared_engine.tail(job_id, 0)[0], "the job does not start")
    assert shared_engine.poll(job_id).state == "running"
    (tmp_path / "go").touch()
    assert wait_for_end(shared_engine, job_id).state == "finished"
    assert len((tmp_path / "log.txt").read_text().split()) == 2, "it was started once, and ended"


def test_a_cancelled_job_leaves_nothing_behind(shared_engine: RayEngine, tmp_path: Path) -> None:
    code = "import subprocess, sys\nprint('up', flush=True)\nsubprocess.run(['sleep', '86399'])"
    job_id = shared_engine.submit(request_job(tmp_path, code))
    wait_for(lambda: find_processes("86399"), "the job does not start")
    shared_engine.cancel(job_id)
    status = wait_for_end(shared_engine, job_id)
    assert (status.state, status.exit_code) == ("cancelled", 143)
    wait_for(lambda: not find_processes("86399"), "a child process of the job still runs")
    shared_engine.cancel(job_id)
    assert shared_engine.poll(job_id) == status
    wait_for(lambda: shared_engine.resources().free_cpus == 2, "the job holds its processor")


def test_jobs_wait_for_processors_and_can_be_cancelled(shared_engine: RayEngine, tmp_path: Path) -> None:
    job_id = shared_engine.submit(request_job(tmp_path, "print(1)", resources=Resources(cpus=64)))
    assert shared_engine.poll(job_id).state == "pending"
    shared_engine.cancel(job_id)
    assert shared_engine.poll(job_id).state == "cancelled"
    assert not (tmp_path / "log.txt").exists()


def test_a_job_ends_after_its_minutes(shared_engine: RayEngine, tmp_path: Path) -> None:
    job_id = shared_engine.submit(request_job(tmp_path, PATIENCE, resources=Resources(minutes=1 / 60)))
    status = wait_for_end(shared_engine, job_id)
    assert (status.state, status.reason, status.exit_code) == ("failed", "TIMEOUT", 143)


def test_a_program_that_is_missing_fails(shared_engine: RayEngine, tmp_path: Path) -> None:
    request = JobRequest("job", ("/no/such/program",), tmp_path, tmp_path / "log.txt")
    status = wait_for_end(shared_engine, shared_engine.submit(request))
    assert (status.state, status.exit_code) == ("failed", 127)
    assert status.reason.startswith("START_FAILED: /no/such/program")


def test_the_connection_is_made_again(shared_engine: RayEngine, tmp_path: Path) -> None:
    job_id = shared_engine.submit(request_job(tmp_path, "print(1)"))
    for pid in find_processes("m3b.engines.ray_driver"):
        if os.getsid(pid) == pid and _parent_of(pid) == os.getpid():
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineError) as raised:
        shared_engine.poll(job_id)
    assert raised.value.code == "unreachable"
    assert wait_for_end(shared_engine, job_id).state == "finished"


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_unknown_jobs_are_lost(shared_engine: RayEngine) -> None:
    assert shared_engine.poll("0123") == JobStatus("lost", reason="UNKNOWN")
    assert shared_engine.find("no such name") is None
    assert shared_engine.tail("0123", 5) == (b"", 5)
    shared_engine.cancel("0123")


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    engine = RayEngine("127.0.0.1:1")
    with pytest.raises(EngineError) as raised:
        engine.poll("0123")
    assert raised.value.code == "unreachable"


def test_the_table_of_jobs_is_made_again(shared_engine: RayEngine, cluster: RayCluster, tmp_path: Path) -> None:
    job_id = shared_engine.submit(request_job(tmp_path, PATIENCE))
    wait_for(lambda: shared_engine.tail(job_id, 0)[0], "the job does not start")
    [table] = find_processes("JobTable")
    os.kill(table, signal.SIGKILL)
    wait_for(lambda: _poll_or_none(shared_engine, job_id), "the table does not come back")
    assert shared_engine.poll(job_id).state == "running"
    (tmp_path / "go").touch()
    assert wait_for_end(shared_engine, job_id).state == "finished"


def _poll_or_none(engine: RayEngine, job_id: str) -> JobStatus | None:
    try:
        return engine.poll(job_id)
    except EngineError:
        return None


def test_a_lost_node(shared_engine: RayEngine, cluster: RayCluster, tmp_path: Path) -> None:
    """Of two jobs on a node that is killed, one may be restarted, and goes on elsewhere."""
    cluster.add_node("doomed", {"rack": "a"})
    cluster.add_node("doomed-too", {"rack": "a"})
    for name, may_restart in (("fixed", False), ("movable", True)):
        code = f"import os\nprint(os.environ['{NODE_VARIABLE}'], flush=True)\n{PATIENCE}"
        resources = Resources(options={"rack": "a"})
        request = request_job(tmp_path / name, code, name, resources=resources, may_restart=may_restart)
        shared_engine.submit(request)
    fixed_id, movable_id = shared_engine.find("fixed"), shared_engine.find("movable")
    assert fixed_id
    assert movable_id
    nodes = [
        wait_for(lambda job_id=job_id: shared_engine.tail(job_id, 0)[0], "no job").split()[0].decode()
        for job_id in (fixed_id, movable_id)
    ]
    assert sorted(nodes) == ["doomed", "doomed-too"]
    for name in nodes:
        cluster.kill_node(name)
    status = wait_for_end(shared_engine, fixed_id)
    assert (status.state, status.reason) == ("lost", "NODE_FAIL")
    assert shared_engine.poll(movable_id).state in ("running", "pending")
    cluster.add_node("rescue", {"rack": "a"})
    wait_for(lambda: b"rescue" in shared_engine.tail(movable_id, 0)[0], "the job does not start again")
    (tmp_path / "movable" / "go").touch()
    status = wait_for_end(shared_engine, movable_id)
    assert (status.state, status.restarts) == ("finished", 1)
    assert (tmp_path / "fixed" / "log.txt").read_text().split()[0] not in ("", "rescue")
    assert "end" not in (tmp_path / "fixed" / "log.txt").read_text()
