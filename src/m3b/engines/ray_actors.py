"""The actors of `RayEngine`: the table of all jobs, and one for each job.

Ray's own metadata hold ids of jobs and numbers of resources. Commands, paths and variables are in the memory of the
table, which is on the head node.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from m3b.engines.base import ENDED_STATES, JobState

NAMESPACE = "m3b"
TABLE_NAME = "m3b-jobs-1"
"""Name of the actor with the table; the number changes with the methods of the actors."""

JOB_PREFIX = "m3b-job-"
MAX_RESTARTS = 3
"""Number of restarts by Ray of a job that may be restarted."""

MAX_JOBS = 10_000
"""Number of ended jobs that the table keeps; the oldest are forgotten."""

DESCRIBE_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 30.0
"""Seconds between SIGTERM and SIGKILL of a job."""

NODE_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS",
)  # fmt: skip
"""Variables that every job takes from the environment of its node."""

_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass
class JobEntry:
    """A job in the table.

    Args:
        job: the request, see `RayEngine.submit`.
        actor: its `JobActor`.
        ping: the running call by which the table sees whether the actor lives.
        starts: how often its command was started.
    """

    job: dict[str, Any]
    actor: Any
    ping: Any
    state: JobState = "pending"
    exit_code: int | None = None
    node: str = ""
    node_id: str = ""
    reason: str = ""
    starts: int = 0
    is_cancelled: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to the job."""
        return self.state in ENDED_STATES

    def end(self, state: JobState, reason: str, exit_code: int | None = None) -> None:
        """Set how the job ended."""
        self.state, self.reason, self.exit_code = state, reason, exit_code


class JobTable:
    """An actor that starts the jobs and knows their states; there is one for each cluster."""

    def __init__(self) -> None:
        import ray
        import ray.util

        self._entries: dict[str, JobEntry] = {}
        for name in ray.util.list_named_actors():  # this actor was started again after its process was killed
            if name.startswith(JOB_PREFIX):
                with contextlib.suppress(ValueError, ray.exceptions.RayError):
                    actor = ray.get_actor(name, namespace=NAMESPACE)
                    job, state = ray.get(actor.describe.remote(), timeout=DESCRIBE_TIMEOUT_S)
                    self._entries[name.removeprefix(JOB_PREFIX)] = JobEntry(job, actor, actor.ping.remote(), **state)

    def submit(self, job_id: str, job: dict[str, Any]) -> None:
        """Start the actor of a job; do nothing if it was started, because Ray repeats a call whose answer was lost."""
        import ray

        if job_id in self._entries:
            return
        ended_ids = [known_id for known_id, entry in self._entries.items() if entry.has_ended]
        for old_id in ended_ids[:-MAX_JOBS]:
            del self._entries[old_id]
        actor = (
            ray.remote(JobActor)
            .options(
                name=JOB_PREFIX + job_id,
                namespace=NAMESPACE,
                lifetime="detached",
                max_restarts=MAX_RESTARTS if job["may_restart"] else 0,
                **job["options"],
            )
            .remote(job_id)
        )
        self._entries[job_id] = JobEntry(job, actor, actor.ping.remote())

    def find(self, name: str) -> str | None:
        """Return the id of the newest job with a name."""
        return next((job_id for job_id in reversed(self._entries) if self._entries[job_id].job["name"] == name), None)

    def get_log_file(self, job_id: str) -> str | None:
        """Return the path of the log file of a job; None if it is unknown."""
        return str(self._entries[job_id].job["log_file"]) if job_id in self._entries else None

    def get_job(self, job_id: str) -> dict[str, Any] | None:
        """Return the request of a job, or None if it shall not be started any more; asked by its actor."""
        entry = self._entries.get(job_id)
        return None if entry is None or entry.is_cancelled or entry.has_ended else entry.job

    def report_start(self, job_id: str, node: str, node_id: str) -> None:
        """Note that the command of a job was started; reported by its actor."""
        entry = self._entries[job_id]
        entry.state, entry.reason, entry.node, entry.node_id = "running", "", node, node_id
        entry.starts += 1

    def report_end(self, job_id: str, state: JobState, reason: str, exit_code: int | None) -> None:
        """Note how a job ended; reported by its actor."""
        entry = self._entries[job_id]
        if not entry.has_ended:
            entry.end(state, reason, exit_code)

    def poll(self, job_id: str) -> dict[str, Any]:
        """Return the fields of the `JobStatus` of a job."""
        entry = self._entries.get(job_id)
        if entry is None:
            return {"state": "lost", "reason": "UNKNOWN"}
        if not entry.has_ended:
            self._check_actor(entry)
        return {
            "state": entry.state, "exit_code": entry.exit_code, "node": entry.node, "reason": entry.reason,
            "restarts": max(0, entry.starts - 1),
        }  # fmt: skip

    def _check_actor(self, entry: JobEntry) -> None:
        import ray

        ready, _ = ray.wait([entry.ping], timeout=0)
        if not ready:
            if entry.state == "pending" and not entry.reason:
                entry.reason = "Resources"
            return
        try:
            ray.get(entry.ping)
        except ray.exceptions.ActorUnavailableError:
            entry.state, entry.reason = "pending", "RESTARTING"
        except ray.exceptions.RayActorError as error:
            if entry.is_cancelled:
                entry.end("cancelled", "CANCELLED")
            elif error.actor_init_failed:
                entry.end("failed", f"START_FAILED: {str(error)[-500:]}")
            else:
                living_nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
                entry.end("lost", "WORKER_DIED" if entry.node_id in living_nodes else "NODE_FAIL")
            return
        else:
            if entry.starts:
                entry.state, entry.reason = "running", ""
        entry.ping = entry.actor.ping.remote()

    def cancel(self, job_id: str) -> None:
        """Cancel a job, unless it has ended."""
        import ray

        entry = self._entries.get(job_id)
        if entry is None or entry.has_ended:
            return
        entry.is_cancelled = True
        if entry.state == "running":
            entry.actor.cancel.remote()
        else:
            ray.kill(entry.actor)
            entry.end("cancelled", "CANCELLED")


class JobActor:
    """An actor that runs the command of a job while it holds its resources."""

    def __init__(self, job_id: str) -> None:
        import ray

        self._job_id = job_id
        self._stop_reason = ""
        self._table = ray.get_actor(TABLE_NAME, namespace=NAMESPACE)
        self._self = ray.get_runtime_context().current_actor
        self._node_id = ray.get_runtime_context().get_node_id()
        self._process: subprocess.Popen[bytes] | None = None
        job: dict[str, Any] | None = ray.get(self._table.get_job.remote(job_id))
        self._job = job or {}
        if job is None:
            self._self.leave.remote()
            return
        try:
            self._process = _start_command(job)
        except OSError as error:
            message = f"START_FAILED: {error.filename}: {error.strerror}"
            ray.get(self._table.report_end.remote(job_id, "failed", message, 127))
            self._self.leave.remote()
            return
        ray.get(self._table.report_start.remote(job_id, socket.gethostname(), self._node_id))
        threading.Thread(target=self._watch, daemon=True).start()

    def ping(self) -> None:
        """Return, if the actor lives."""

    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the request, and the fields of the `JobEntry` of a running job."""
        state = {"state": "running", "node": socket.gethostname(), "node_id": self._node_id, "starts": 1}
        return self._job, state

    def cancel(self) -> None:
        """Stop the command."""
        self._stop("CANCELLED")

    def leave(self) -> None:
        """End this actor, which gives its resources back."""
        import ray

        ray.actor.exit_actor()

    def _watch(self) -> None:
        """Wait for the end of the command, and report it."""
        import ray

        process = self._process
        assert process is not None
        try:
            return_code = process.wait(self._job["minutes"] * 60 or None)
        except subprocess.TimeoutExpired:
            self._stop("TIMEOUT")
            return_code = process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what the command left behind
        exit_code = return_code if return_code >= 0 else 128 - return_code
        states: dict[str, JobState] = {"CANCELLED": "cancelled", "TIMEOUT": "failed"}
        state = states.get(self._stop_reason, "finished" if exit_code == 0 else "failed")
        while True:
            try:
                ray.get(self._table.report_end.remote(self._job_id, state, self._stop_reason, exit_code))
                break
            except ray.exceptions.RayError:  # the table is being started again
                time.sleep(1)
        self._self.leave.remote()

    def _stop(self, reason: str) -> None:
        """Send SIGTERM to the command, and SIGKILL to its group if it does not end."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._stop_reason = self._stop_reason or reason
        process.terminate()
        timer = threading.Timer(STOP_TIMEOUT_S, _kill_group, [process])
        timer.daemon = True
        timer.start()


def _start_command(job: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the command of a job on this node; it ends with this process. Raises OSError."""
    names = (*NODE_VARIABLES, *job["node_environment"])
    environment = {name: os.environ[name] for name in names if name in os.environ} | job["environment"]
    program, *arguments = job["argv"]
    if program == job["python"]:  # m3b's Python may be in another place on this node
        program = sys.executable
    with open(job["log_file"], "ab") as log:
        return subprocess.Popen(
            [program, *arguments], cwd=job["folder"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip


def _end_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _LIBC.prctl(_PDEATHSIG, signal.SIGTERM)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
