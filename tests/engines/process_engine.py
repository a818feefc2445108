"""An engine whose jobs are processes of this machine, for tests without a cluster. `lose` and `preempt` are what clusters do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from m3b.engines import ClusterResources, EngineName, JobRequest, JobState, JobStatus, Partition, read_tail


@dataclass
class SubmittedJob:
    """A job; `ended_as` is what the engine says of it from now on, whatever its process does."""

    request: JobRequest
    process: subprocess.Popen[bytes]
    ended_as: JobState | None = None


class ProcessEngine:
    """Starts each job at once as a process in a session of its own, with an empty environment."""

    name: EngineName = "local"

    def __init__(self) -> None:
        self.jobs: dict[str, SubmittedJob] = {}

    def submit(self, request: JobRequest) -> str:
        with request.log_file.open("ab") as log:
            process = subprocess.Popen(
                request.argv, cwd=request.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}, start_new_session=True,
            )  # fmt: skip
        job_id = str(len(self.jobs) + 1)
        self.jobs[job_id] = SubmittedJob(request, process)
        return job_id

    def find(self, name: str) -> str | None:
        return next((job_id for job_id, job in reversed(self.jobs.items()) if job.request.name == name), None)

    def poll(self, job_id: str) -> JobStatus:
        job = self.jobs.get(job_id)
        if job is None:
            return JobStatus("lost")
        code = job.process.poll()
        if job.ended_as is not None:
            return JobStatus(job.ended_as, code, "here")
        if code is None:
            return JobStatus("running", node="here")
        return JobStatus("finished" if code == 0 else "failed", code, "here")

    def tail(self, job_id: str, offset: int) -> tuple[bytes, int]:
        return read_tail(self.jobs[job_id].request.log_file, offset)

    def cancel(self, job_id: str) -> None:
        job = self.jobs[job_id]
        if job.process.poll() is None:
            job.ended_as = "cancelled"
            job.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(20)
            job.process.kill()
            job.process.wait()

    def resources(self) -> ClusterResources:
        part = Partition("here", 1, os.cpu_count() or 1, 0, 8.0, None, is_default=True)
        return ClusterResources(part.cpus, 0, part.cpus, 0, (part,))

    def lose(self, job_id: str, *, kill: bool) -> None:
        """Take a node for lost; with `kill` its processes are gone, without they go on, as behind a broken switch."""
        self.jobs[job_id].ended_as = "lost"
        if kill:
            self.jobs[job_id].process.kill()
            self.jobs[job_id].process.wait()

    def preempt(self, job_id: str) -> None:
        """Ask the job to make room, and wait until it has."""
        self.jobs[job_id].process.send_signal(signal.SIGTERM)
        self.jobs[job_id].process.wait(60)
        self.jobs[job_id].ended_as = "preempted"

    def close(self, folder: Path) -> None:
        """Kill what a failed test left."""
        for job in self.jobs.values():
            if job.process.poll() is None and folder in job.request.folder.parents:
                job.process.kill()
                job.process.wait()
