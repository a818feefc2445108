"""The engine for one machine: each job is a child process with its own share of the processors."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from m3b.engines.base import ClusterResources, EngineError, EngineName, JobRequest, JobStatus, Partition, read_tail

STOP_TIMEOUT_S = 30.0
"""Seconds between SIGTERM and SIGKILL of a cancelled job."""

_ENDED_PROCESS_STATES = ("Z", "X", "x")
_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass
class _ChildJob:
    """A child process. `cancelled_at` and `timed_out_at` are in seconds of `time.monotonic`."""

    request: JobRequest
    process: subprocess.Popen[bytes]
    slot: int
    started_at: float = field(default_factory=time.monotonic)
    cancelled_at: float | None = None
    timed_out_at: float | None = None


class LocalEngine:
    """Runs jobs as child processes, which end with this process.

    A job inherits the environment of this process. A job id also names the host and the time when the process started,
    so that a later process can tell whether the job has ended.

    The thread that submits a job must live as long as the job: the system ends a child process with that thread.

    Args:
        slots: number of jobs that share the processors; each job is bound to the processors of its slot.
    """

    name: EngineName = "local"

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self._jobs: dict[str, _ChildJob] = {}
        self._running_ids: set[str] = set()
        self._lock = threading.Lock()

    def submit(self, request: JobRequest) -> str:
        """Start a job at once and return its id, `HOST:PID:START`.

        Raises:
            EngineError: the program, the folder or the log file cannot be opened (`start_failed`).
        """
        with self._lock:
            used_slots = {job.slot for job in self._list_running()}
            slot = min(set(range(len(used_slots) + 1)) - used_slots)
            cores = choose_cores(slot, self.slots)
            try:
                with request.log_file.open("ab") as log:
                    process = subprocess.Popen(
                        request.argv, cwd=request.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                        start_new_session=True, preexec_fn=lambda: bind_child(cores),
                    )  # fmt: skip
            except OSError as error:
                raise EngineError(
                    f"The job {request.name} did not start: {error.filename}: {error.strerror}.", code="start_failed"
                ) from error
            job_id = f"{socket.gethostname()}:{process.pid}:{_read_state(process.pid)[1]}"
            self._jobs[job_id] = _ChildJob(request, process, slot)
            self._running_ids.add(job_id)
            return job_id

    def find(self, name: str) -> str | None:
        """Return the id of the newest job of this process with the name; jobs do not outlive their process."""
        with self._lock:
            return next((job_id for job_id in reversed(self._jobs) if self._jobs[job_id].request.name == name), None)

    def poll(self, job_id: str) -> JobStatus:
        """Return the status of a job. A job of an earlier process of this host has failed if it does not run any more."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is not None:
                return self._poll_child(job_id, job)
        host, _, process = job_id.partition(":")
        pid, _, start_time = process.partition(":")
        if host != socket.gethostname() or not (pid.isdecimal() and start_time):
            return JobStatus("lost", reason="UNKNOWN")
        state, actual_start_time = _read_state(int(pid))
        if actual_start_time == start_time and state not in _ENDED_PROCESS_STATES:
            return JobStatus("running", node=host)
        return JobStatus("failed", node=host, reason="PARENT_DIED")

    def _list_running(self) -> list[_ChildJob]:
        self._running_ids = {job_id for job_id in self._running_ids if self._jobs[job_id].process.poll() is None}
        return [self._jobs[job_id] for job_id in self._running_ids]

    def _poll_child(self, job_id: str, job: _ChildJob) -> JobStatus:
        host = job_id.partition(":")[0]
        return_code = job.process.poll()
        if return_code is None:
            self._enforce_limits(job)
            return JobStatus("running", node=host)
        exit_code = return_code if return_code >= 0 else 128 - return_code
        if job.cancelled_at is not None:
            return JobStatus("cancelled", exit_code, host, "CANCELLED")
        if job.timed_out_at is not None:
            return JobStatus("failed", exit_code, host, "TIMEOUT")
        return JobStatus("finished" if exit_code == 0 else "failed", exit_code, host)

    def _enforce_limits(self, job: _ChildJob) -> None:
        """Send SIGTERM to a job that runs too long, and SIGKILL to one that does not stop."""
        now = time.monotonic()
        limit_s = job.request.resources.minutes * 60
        if limit_s and job.timed_out_at is None and now - job.started_at > limit_s:
            job.timed_out_at = now
            _send_signal(job.process.pid, signal.SIGTERM)
        stopped_at = min((at for at in (job.cancelled_at, job.timed_out_at) if at is not None), default=now)
        if now - stopped_at > STOP_TIMEOUT_S:
            _send_signal(job.process.pid, signal.SIGKILL, to_group=True)

    def tail(self, job_id: str, offset: int) -> tuple[bytes, int]:
        """Return what the log file of a job of this process has from a byte on, and where to go on."""
        job = self._jobs.get(job_id)
        return (b"", offset) if job is None else read_tail(job.request.log_file, offset)

    def cancel(self, job_id: str) -> None:
        """Send SIGTERM to a job of this process. `poll` kills it if it still runs `STOP_TIMEOUT_S` later."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is not None and job.cancelled_at is None and job.process.poll() is None:
                job.cancelled_at = time.monotonic()
                _send_signal(job.process.pid, signal.SIGTERM)

    def resources(self) -> ClusterResources:
        """Return the processors that this process may use; GPUs are not counted."""
        cpus = len(os.sched_getaffinity(0))
        memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        with self._lock:
            running = len(self._list_running())
        free_cpus = max(0, cpus - running * max(1, cpus // self.slots))
        return ClusterResources(cpus, 0, free_cpus, 0, (Partition("local", 1, cpus, 0, memory_gib, is_default=True),))


def bind_child(cores: set[int]) -> None:
    """Bind this child process to processors, and let it end with its parent."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # SIGINT is ignored in a process that was started in the background
    _LIBC.prctl(_PDEATHSIG, signal.SIGTERM)


def choose_cores(slot: int, slots: int) -> set[int]:
    """Return the processors of a slot: an equal part of those that this process may use, at least one."""
    cores = sorted(os.sched_getaffinity(0))
    slot_cores = (
        [core for position, core in enumerate(cores) if position % slots == slot % slots] if slots <= len(cores) else []
    )
    return set(slot_cores) or {cores[slot % len(cores)]}


def _send_signal(pid: int, number: signal.Signals, *, to_group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number) if to_group else os.kill(pid, number)


def _read_state(pid: int) -> tuple[str, str]:
    """Return state (as in /proc) and start time (in clock ticks since boot) of a process; two empty texts if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
