"""Script jobs: numbered bash commands in the sandbox, and the store of their logs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from m3b.engines import ClusterProcess, ClusterScripts
from m3b.errors import ToolError
from m3b.isolation import untrusted
from m3b.isolation.sandbox import ExitStatus, Limits, Mounts, Sandbox
from m3b.tools.paths import Roots

JOB_LOGS, RESULT_LOGS = "jobs", "results"
_SUFFIX = {JOB_LOGS: ".log", RESULT_LOGS: ".txt"}
_MAX_LOG_NUMBER = 9999
"""Largest log number that is accepted from file names in `work`; a script could use one in the millions."""


def _existing_numbers(root: Path, name: str, kind: str) -> list[int]:
    with contextlib.suppress(OSError):
        files = [Path(entry.name) for entry in untrusted.walk(root, name, max_depth=0)]
        return [int(file.stem) for file in files if file.suffix == _SUFFIX[kind] and file.stem.isdecimal()]
    return []


class LogStore:
    """Store of script output and long results: m3b's own copy, and one in `work/Logout` for agents and their scripts.

    m3b itself reads only its own copy: a file in `work` may have been replaced by a link or a pipe.

    Args:
        roots: its `work` gets the copies for agents.
        folder: folder of m3b's own copies, out of the scripts' reach; None creates a temporary one.
    """

    def __init__(self, roots: Roots, folder: Path | None) -> None:
        self._work = roots.work
        self._temporary = None
        if folder is None:
            self._temporary = untrusted.TemporaryFolder("logs")
            folder = self._temporary.path
        self.folder = folder

    def next_file(self, kind: str) -> tuple[int, Path]:
        """Return the next free number, and the path of m3b's own copy.

        Raises:
            OSError: the folder cannot be created.
        """
        kind_folder = self.folder / kind
        if kind_folder.is_dir():
            used_numbers = _existing_numbers(kind_folder, "", kind)
        else:  # runs started before m3b kept its own copies continue with the numbers in `work`
            used_numbers = [
                number for number in _existing_numbers(self._work, f"Logout/{kind}", kind) if number <= _MAX_LOG_NUMBER
            ]
            kind_folder.mkdir(parents=True)
        number = max(used_numbers, default=0) + 1
        return number, kind_folder / f"{number:03d}{_SUFFIX[kind]}"

    def display_name(self, log_file: Path) -> str:
        """Return the agent's path of its copy."""
        return f"Logout/{log_file.parent.name}/{log_file.name}"

    def publish(self, log_file: Path, content: bytes) -> str:
        """Write the copy into `work`; return the reason if that fails, otherwise an empty text.

        A link or pipe in place of the file is replaced; a link in the folders above it is not followed.
        """
        try:
            untrusted.write_atomic(self._work, self.display_name(log_file), content)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary is not None:
            self._temporary.close()


MAX_RUNNING_SCRIPTS = 4
"""Maximum number of scripts at the same time; more would only compete for the machine."""

_MAX_READ_BYTES = 512 * 1024


class ScriptProcess(Protocol):
    """A running script: a `Process` of the sandbox on this machine, or a `ClusterProcess`."""

    output: Path

    def poll(self) -> ExitStatus | None: ...

    def wait(self, timeout_s: float | None = None) -> ExitStatus | None: ...

    def stop(self) -> ExitStatus: ...


@dataclass
class ScriptJob:
    """One script. `started_at` is in seconds of `time.monotonic`; `stop_reason` says why m3b stopped it, if it did."""

    number: int
    command: str
    process: ScriptProcess
    started_at: float
    exit: ExitStatus | None = None
    stop_reason: str = ""
    last_output_at: float = field(default=0.0)
    _output_stamp: int = -1

    @property
    def is_running(self) -> bool:
        """Whether the script still runs; polls the process."""
        if self.exit is None:
            self.exit = self.process.poll()
        return self.exit is None

    @property
    def queue_state(self) -> str:
        """Why the script has not started yet, if it is a cluster job that waits; '' otherwise."""
        process = self.process
        return process.describe_wait() if self.exit is None and isinstance(process, ClusterProcess) else ""

    @property
    def silence_s(self) -> float:
        """Seconds since the output last grew."""
        try:
            status = self.process.output.stat()
            stamp = status.st_size * 31 + status.st_mtime_ns
        except OSError:
            stamp = -1
        if stamp != self._output_stamp:
            self._output_stamp, self.last_output_at = stamp, time.monotonic()
        return time.monotonic() - self.last_output_at

    def read_output(self) -> str:
        """Return the output of the script; if it is long, only its head and tail."""
        try:
            with self.process.output.open("rb") as file:
                length = file.seek(0, 2)
                file.seek(0)
                data = file.read(_MAX_READ_BYTES)
                if length > 2 * _MAX_READ_BYTES:
                    file.seek(length - _MAX_READ_BYTES)
                    data += b"\n[...]\n"
                data += file.read(_MAX_READ_BYTES)
        except OSError:
            return ""
        return data.decode("utf-8", "replace")


def _shell_command(command: str) -> list[str]:
    return ["bash", "-c", command]


class JobManager:
    """All scripts of one toolbox.

    Args:
        roots: `work` is the working directory of the scripts and the only folder that they may write.
        sandbox: confines the scripts.
        limits: resource limits of each script.
        mounts_read: read-only folders that they may read.
        env: environment variables for scripts, in addition to those of the sandbox.
        logs: keeps their output, out of their reach.
        cluster: starts them as cluster jobs; None starts them on this machine.
    """

    def __init__(
        self,
        roots: Roots,
        sandbox: Sandbox,
        limits: Limits,
        mounts_read: Sequence[Path],
        env: Mapping[str, str],
        logs: LogStore,
        cluster: ClusterScripts | None = None,
    ) -> None:
        self.all_jobs: list[ScriptJob] = []
        self.lost_jobs: dict[int, str] = {}
        self._roots, self._sandbox, self._limits, self._env = roots, sandbox, limits, dict(env)
        self._logs, self._cluster = logs, cluster
        self._continued: dict[str, ScriptJob] = {}
        self._mounts = Mounts(read=tuple(mounts_read), write=(roots.work,))
        self._lock = threading.Lock()
        self._closed = False

    def start(self, command: str) -> ScriptJob:
        """Start a bash command.

        Raises:
            ToolError: the maximum number of scripts is running already, or the run is over.
            OSError: the output file cannot be created.
            SandboxError: the sandbox did not start.
            EngineError: the cluster did not take the job.
        """
        with self._lock:
            if self._closed:
                raise ToolError("The run is over; no script can be started any more.")
            if (continued_job := self._continued.pop(command, None)) is not None:
                return continued_job
            running = [job.number for job in self.all_jobs if job.is_running]
            if len(running) >= MAX_RUNNING_SCRIPTS:
                raise ToolError(
                    f"{len(running)} scripts are running already (jobs {', '.join(map(str, running))}). Wait for one with "
                    f"run_script(job={running[0]}) or stop one with run_script(job={running[0]}, stop=true)."
                )
            number, output = self._logs.next_file(JOB_LOGS)
            process = self._start_process(number, _shell_command(command), output)
            return self._add_job(number, command, process)

    def _start_process(self, number: int, argv: list[str], output: Path) -> ScriptProcess:
        cwd, env, limits = self._roots.work, self._env, self._limits
        if self._cluster is not None:
            return self._cluster.start(
                number, argv, cwd=cwd, mounts=self._mounts, output=output, env=env, limits=limits
            )
        return self._sandbox.start(argv, cwd=cwd, mounts=self._mounts, output=output, env=env, limits=limits)

    def _add_job(self, number: int, command: str, process: ScriptProcess) -> ScriptJob:
        now = time.monotonic()
        job = ScriptJob(number, command, process, now, last_output_at=now)
        self.all_jobs.append(job)
        return job

    def reopen_job(self, number: int, command: str) -> bool:
        """Go on with a cluster job that an earlier process of m3b started; return whether there is one."""
        process = self._cluster.reopen(number) if self._cluster is not None else None
        if process is None or any(job.number == number for job in self.all_jobs):
            return process is not None
        self._add_job(number, command, process)
        return True

    def continue_command(self, command: str, answered_jobs: Collection[int]) -> bool:
        """Let the next start of a command go on with its newest cluster job; return whether there is such a job.

        Args:
            answered_jobs: numbers of jobs whose result agents have seen; the job that was interrupted is none of them.
        """
        number = max(self._cluster.list_numbers(), default=0) if self._cluster is not None else 0
        if self._cluster is None or not number or number in answered_jobs:
            return False
        if self._cluster.read_command_line(number) != tuple(_shell_command(command)):
            return False
        if not self.reopen_job(number, command):
            return False
        self._continued[command] = self.find_job(number)
        return True

    def find_job(self, number: int) -> ScriptJob:
        """Return a job by its number.

        Raises:
            ToolError: there is no such job; the message lists the existing jobs.
        """
        for job in self.all_jobs:
            if job.number == number:
                return job
        if number in self.lost_jobs:
            raise ToolError(
                f"Job {number} ended when m3b was interrupted; its files are there. {self.lost_jobs[number]}".strip()
            )
        job_list = (
            ", ".join(f"{job.number} ({'running' if job.is_running else 'ended'})" for job in self.all_jobs) or "none"
        )
        raise ToolError(f"There is no job {number}. Jobs: {job_list}.")

    def wait(
        self,
        job: ScriptJob,
        wait_s: float,
        is_cancelled: Callable[[], bool],
        on_tick: Callable[[ScriptJob], None] | None = None,
    ) -> bool:
        """Wait until a job ends, the time is up or the run is cancelled (which stops the job).

        Calls `on_tick` about twice a second. Returns whether the run was cancelled.
        """
        deadline = time.monotonic() + wait_s
        last_tick = time.monotonic()
        while job.is_running:
            if is_cancelled():
                job.exit = job.process.stop()
                return True
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            job.exit = job.process.wait(min(0.25, remaining_s))
            if time.monotonic() - last_tick >= 0.5:
                last_tick = time.monotonic()
                _ = job.silence_s
                if on_tick:
                    on_tick(job)
        return False

    def stop_running(self, reason: str) -> list[ScriptJob]:
        """Stop all running scripts with their child processes; return the stopped jobs.

        `reason` becomes their `stop_reason`.
        """
        with self._lock:
            stopped = [job for job in self.all_jobs if job.is_running]
            for job in stopped:
                job.exit = job.process.stop()
                if job.exit.reason != "exit":  # otherwise it ended by itself in the meantime
                    job.stop_reason = reason
            return [job for job in stopped if job.stop_reason]

    def close(self) -> None:
        """Stop all running scripts; none can be started afterwards."""
        with self._lock:
            self._closed = True
        self.stop_running("the run is over")
