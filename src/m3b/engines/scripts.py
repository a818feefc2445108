"""Scripts of a run as cluster jobs: submitted, watched, found again by another process of m3b, and cancelled."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from m3b.engines.base import ClusterResources, Engine, EngineError, EngineName, JobRequest, JobStatus, Resources
from m3b.engines.job_folder import JobFolder, ScriptCommand, ScriptEnd, make_exit_status
from m3b.errors import SandboxError, UsageError
from m3b.isolation.sandbox import ExitStatus, Limits, Mounts, Sandbox
from m3b.isolation.sandbox.environment import SOURCE_FOLDER

POLL_INTERVAL_S = 2.0
"""Seconds between two questions to the engine about one job; the files of the job are looked at more often."""
FILE_INTERVAL_S = 0.25
SETTLE_S = 20.0
"""Seconds that shared storage may take to show the last files of a job that has ended."""
STOP_S = 10.0
"""Seconds that a running job may take to end its script itself before it is cancelled."""
CANCEL_S = 90.0
MAX_STARTS = 4
"""A job that was lost with its node is submitted again until it was submitted so often."""
TIME_RESERVE_MINUTES = 10
"""Minutes of a job beyond the time limit of its script."""
LOG_FILE = "job.log"
ENGINE_NAMES: tuple[EngineName, ...] = ("local", "slurm", "ray")


@dataclass(frozen=True)
class EngineOptions:
    """Where the scripts of training run, and what each of their jobs asks for; the choice of the user.

    Args:
        name: `local` is this machine, without jobs.
        cpus: processor cores; None is 4, or what the default partition has at most.
        gpus: GPUs.
        memory_gib: memory in GiB.
        partition: partition or queue; empty for the default.
        options: further options of the engine: `{"account": "radiology"}`.

    Raises:
        UsageError: the engine is unknown, or a value makes no sense.
    """

    name: EngineName = "local"
    cpus: int | None = None
    gpus: int = 0
    memory_gib: float | None = None
    partition: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ENGINE_NAMES:
            raise UsageError(f"There is no engine {self.name!r}; choose one of {', '.join(ENGINE_NAMES)}.")
        if self.cpus is not None and self.cpus < 1:
            raise UsageError(f"A job needs at least one core; cpus (--cpus) is {self.cpus}.")
        if self.memory_gib is not None and not 0.5 <= self.memory_gib <= 65536:
            raise UsageError(f"memory (--memory) is in GiB, from 0.5 to 65536; it is {self.memory_gib}.")
        if re.search(r"[^\w.,@+-]", self.partition):
            raise UsageError(f"{self.partition!r} is no name of a partition.")
        if self.name == "local" and (self.cpus or self.memory_gib or self.partition or self.options):
            raise UsageError(
                "Cores, memory, partition and options are those of a cluster job; give --engine slurm or ray too."
            )
        if self.name == "slurm":
            from m3b.engines.slurm import check_options

            check_options(self.options)

    def to_json(self) -> dict[str, Any]:
        """Return the options for run.json."""
        return {**vars(self), "options": dict(self.options)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> EngineOptions:
        """Return the options of run.json; those of this machine for a run that has none."""
        return cls(**{name: value for name, value in (values or {}).items() if name in cls.__dataclass_fields__})


DEFAULT_CPUS = 4
DEFAULT_MEMORY_GIB = 16.0
SUPERVISOR_MIB = 512
"""Memory of a job beyond that of its script, for the processes that watch it."""
LOCAL = EngineOptions()


def open_engine(name: EngineName) -> Engine:
    """Return an engine.

    Raises:
        UsageError: it is no engine for jobs, or is not installed.
    """
    if name == "slurm":
        from m3b.engines.slurm import SlurmEngine

        return SlurmEngine()
    if name == "ray":
        return _open_ray()
    raise UsageError(f"Scripts of a run cannot be jobs of the engine {name!r}; choose slurm or ray.")


@cache
def _open_ray() -> Engine:
    """Return the only engine for Ray of this process: each has a child process that is connected to the cluster."""
    from m3b.engines.ray import RayEngine

    return RayEngine("auto")


def resolve_resources(options: EngineOptions, cluster: ClusterResources) -> Resources:
    """Return what each job asks for.

    Raises:
        UsageError: no node has this much.
    """
    partition = cluster.find_partition(options.partition)
    cpus = options.cpus or min(DEFAULT_CPUS, partition.cpus if partition else DEFAULT_CPUS)
    node_memory_gib = partition.memory_gib if partition else 0.0
    memory_gib = options.memory_gib or min(DEFAULT_MEMORY_GIB, 0.9 * node_memory_gib)  # 0: as the cluster does it
    wanted = Resources(
        cpus, options.gpus, memory_gib, 0.0 if partition is None else partition.minutes or 0.0, options.partition,
        dict(options.options),
    )  # fmt: skip
    cluster.check(wanted)
    return wanted


class ClusterScripts:
    """Starts the scripts of one run as jobs.

    Args:
        folder: below the run folder, out of the scripts' reach: a folder for each job.
        run_id: part of the names of jobs.
        resources: what each job asks for; `minutes` is the longest time that the partition allows, 0 without a limit.
        sandbox: the sandbox of the run; no node may have a weaker one.
        sandbox_mode: mode by which nodes choose theirs.
        on_note: gets messages for the journal, such as the id of a job.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        run_id: str,
        resources: Resources,
        sandbox: Sandbox,
        sandbox_mode: str,
        on_note: Callable[[str], None],
    ) -> None:
        self.engine, self.folder, self.resources, self.on_note = engine, folder, resources, on_note
        self.sandbox, self.sandbox_mode = sandbox, sandbox_mode
        self._run_id = run_id

    def describe_device(self) -> str:
        """Return the GPUs and cores of a job in words for an agent."""
        gpus, cpus = self.resources.gpus, self.resources.cpus
        cores = f"{cpus} CPU core{'s' if cpus > 1 else ''}"
        return f"{gpus} GPU{'s' if gpus > 1 else ''} and {cores}" if gpus else f"{cores}, no GPU"

    def start(
        self,
        number: int,
        command: Sequence[str],
        *,
        cwd: Path,
        mounts: Mounts,
        output: Path,
        env: Mapping[str, str],
        limits: Limits,
        title: str = "",
        confines_itself: bool = False,
    ) -> ClusterProcess:
        """Submit a command as the job with a number; the other arguments are those of `Sandbox.start`.

        Args:
            title: what the job is, for the journal; `Script NUMBER` if empty.
            confines_itself: whether the command is a program of m3b, which starts what it does not trust in the sandbox
                of the node itself. All others run in that sandbox.

        Raises:
            EngineError: the engine cannot be reached or refuses the job.
            OSError: the folder of the job cannot be made.
        """
        name = f"m3b-{re.sub(r'[^A-Za-z0-9._-]', '-', self._run_id)[:60]}-{number:03d}-{uuid.uuid4().hex[:6]}"
        if self.resources.memory_gib:
            limits = replace(limits, memory_mib=max(256, int(self.resources.memory_gib * 1024) - SUPERVISOR_MIB))
        mode, minimum = ("off", "off") if confines_itself else (self.sandbox_mode, self.sandbox.name)
        script = ScriptCommand(name, tuple(command), cwd, mounts, output, dict(env), limits, mode, minimum)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.touch()
        folder = self._folder_of(number)
        folder.create(script)
        process = ClusterProcess(self, folder, script, self._submit(folder, script))
        self.on_note(f"{title or f'Script {number}'} is {process.describe_job()}.")
        return process

    def reopen(self, number: int) -> ClusterProcess | None:
        """Return the job with a number that another process of m3b started.

        Returns None if it was never submitted, or somebody cancelled it: then its script can be started anew.

        Raises:
            EngineError: the engine cannot be reached.
        """
        folder = self._folder_of(number)
        script = folder.read_command()
        if script is None:
            return None
        submission = folder.read_submission()
        job_id = submission[1] if submission and submission[0] == self.engine.name else self.engine.find(script.name)
        if folder.read_end() is None and (job_id is None or self.engine.poll(job_id).state == "cancelled"):
            return None
        if job_id is not None and submission is None:
            folder.record_submission(self.engine.name, job_id)
        return ClusterProcess(self, folder, script, job_id or "")

    def list_numbers(self) -> list[int]:
        """Return the numbers of all jobs of the run, in order."""
        names = [path.name for path in self.folder.glob("[0-9]*")] if self.folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdecimal())

    def list_unfinished(self) -> list[int]:
        """Return the numbers of jobs that have left no word of their end, in order."""
        return [number for number in self.list_numbers() if self._folder_of(number).read_end() is None]

    def read_command_line(self, number: int) -> tuple[str, ...]:
        """Return the command of a job; empty if there is none."""
        script = self._folder_of(number).read_command()
        return script.command if script else ()

    def request_stop(self, number: int) -> None:
        """Ask a job to end its script, also one that another engine runs; do not wait for it."""
        self._folder_of(number).request_stop()

    def cancel_all(self, keep: int | None = None) -> None:
        """Cancel every job that has not ended but the one with the number `keep`, also those of earlier processes of m3b."""
        for number in self.list_unfinished():
            if number == keep:
                continue
            try:
                process = self.reopen(number)
                if process is not None and not self.engine.poll(process.job_id).has_ended:
                    process.stop()
            except EngineError as error:
                self.on_note(f"The job of script {number} could not be cancelled: {error}")

    def _folder_of(self, number: int) -> JobFolder:
        return JobFolder(self.folder / f"{number:03d}")

    def _submit(self, folder: JobFolder, script: ScriptCommand) -> str:
        minutes = math.ceil(script.limits.wall_s / 60) + TIME_RESERVE_MINUTES
        longest = self.resources.minutes
        resources = replace(self.resources, minutes=min(minutes, longest) if longest else minutes)
        if "time" in resources.options:
            resources = replace(resources, minutes=0.0)
        job_id = self.engine.submit(
            JobRequest(script.name, _node_command(folder.path), folder.path, folder.path / LOG_FILE, resources)
        )
        folder.record_submission(self.engine.name, job_id)
        return job_id


def _node_command(folder: Path) -> tuple[str, ...]:
    """Return the command of a job."""
    return make_program_command("from m3b.engines.node_job import main", folder)


def make_program_command(import_line: str, folder: Path) -> tuple[str, ...]:
    """Return the command that runs `main([FOLDER])` of a program of m3b on a node.

    It has the Python and the m3b of this process, which the nodes see under the same paths. `-I` keeps the working
    directory and the variables of the node out of the path that modules are imported from.
    """
    code = f"import sys; sys.path.append({str(SOURCE_FOLDER)!r}); {import_line}; sys.exit(main(sys.argv[1:]))"
    return sys.executable, "-I", "-c", code, str(folder)


class ClusterProcess:
    """A script that runs as a job; to the tools it is as a `Process` of the sandbox. Thread-safe."""

    def __init__(self, scripts: ClusterScripts, folder: JobFolder, script: ScriptCommand, job_id: str) -> None:
        self.output, self.job_id = script.output, job_id
        self._scripts, self._folder, self._script = scripts, folder, script
        self._lock = threading.RLock()
        self._exit: ExitStatus | None = None
        self._status = JobStatus("pending")
        self._starts = 1
        self._polled_at, self._ended_at = -math.inf, math.inf
        self._is_unreachable = False

    def describe_job(self) -> str:
        """Return the engine and the id of the job."""
        return f"job {self.job_id} of {self._scripts.engine.name}"

    def describe_wait(self) -> str:
        """Return why the script has not started yet; '' if it runs."""
        status = self._status
        if self._exit is not None or status.state != "pending":
            return ""
        again = " to start again" if self._folder.count_attempts() else ""
        return f"{self.describe_job()} waits{again} in the queue{f' ({status.reason})' if status.reason else ''}"

    def poll(self) -> ExitStatus | None:
        """Return the exit status, or None while the script waits or runs.

        Raises:
            SandboxError: the script could not be started on the node.
        """
        with self._lock:
            if self._exit is None:
                self._exit = self._look()
            return self._exit

    def wait(self, timeout_s: float | None = None) -> ExitStatus | None:
        """Wait for the end, at most `timeout_s` seconds; see `poll`."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while (status := self.poll()) is None and (remaining_s := deadline - time.monotonic()) > 0:
            time.sleep(min(FILE_INTERVAL_S, remaining_s))
        return status

    def stop(self) -> ExitStatus:
        """End the script, and cancel its job; return the exit status (it may have ended by itself).

        Returns when nothing of the script runs any more, or the engine does not answer for `CANCEL_S`.
        """
        with self._lock:
            if self._exit is None:
                self._exit = self._stop()
            return self._exit

    def _look(self) -> ExitStatus | None:
        if (end := self._folder.read_end()) is not None:
            return self._take_end(end)
        if time.monotonic() - self._polled_at < POLL_INTERVAL_S:
            return None
        status = self._ask_engine()
        if status is None or not status.has_ended:
            return None
        self._ended_at = min(self._ended_at, time.monotonic())
        return self._judge(status)

    def _take_end(self, end: ScriptEnd) -> ExitStatus:
        if end.status is None:
            raise SandboxError(f"The script could not be started on the node {end.error}")
        return end.status

    def _ask_engine(self) -> JobStatus | None:
        """Return the status; None if the engine does not answer, which may be temporary."""
        before = self._status
        try:
            self._status = self._scripts.engine.poll(self.job_id)
        except EngineError as error:
            if not self._is_unreachable:
                self._scripts.on_note(f"The state of {self.describe_job()} is unknown for now: {error}")
            self._is_unreachable = True
            return None
        finally:
            self._polled_at = time.monotonic()
        self._is_unreachable = False
        if self._status.restarts > before.restarts:
            where = f" after it ran on {before.node}" if before.node else ""
            self._scripts.on_note(f"{self.describe_job()} was put back into the queue{where}; it goes on by itself.")
        elif self._status.node and self._status.node != before.node:
            self._scripts.on_note(f"{self.describe_job()} runs on {self._status.node}.")
        return self._status

    def _judge(self, status: JobStatus) -> ExitStatus | None:
        """Return how a job ended that left no word of its own; None if it was submitted again, or storage may lag."""
        if status.state == "cancelled":
            return make_exit_status("cancelled")
        if status.reason in ("TIMEOUT", "DEADLINE"):
            return make_exit_status("wall_time")
        if status.reason == "OUT_OF_MEMORY":
            return make_exit_status("memory")
        if status.state in ("lost", "preempted"):
            return self._submit_again(status)
        if time.monotonic() - self._ended_at < SETTLE_S:
            return None
        if self._folder.count_attempts():  # what watched the script was killed itself
            return self._submit_again(status)
        with contextlib.suppress(EngineError):  # it may still be pending, and never start
            self._scripts.engine.cancel(self.job_id)
        log = self._scripts.engine.tail(self.job_id, 0)[0].decode("utf-8", "replace").strip()[-600:]
        raise SandboxError(
            f"{self.describe_job()} did not start the script{f' on {status.node}' if status.node else ''} "
            f"({status.reason or status.state}, code {status.exit_code}): {log or 'it wrote nothing'}. The nodes must see the "
            f"run folder {self._folder.path} and the Python {sys.executable} under the same paths."
        )

    def _submit_again(self, status: JobStatus) -> ExitStatus | None:
        """Submit the job again; if it had finished its work, the new one ends at once."""
        if self._starts >= MAX_STARTS:
            return make_exit_status("preempted" if status.state == "preempted" else "lost")
        lost_job = self.describe_job()
        self._starts += 1
        self.job_id = self._scripts._submit(self._folder, self._script)
        self._status, self._ended_at = JobStatus("pending"), math.inf
        where = f" with {status.node}" if status.node else ""
        self._scripts.on_note(
            f"{lost_job} was lost{where} ({status.reason or status.state}); {self.describe_job()} goes on."
        )
        return None

    def _stop(self) -> ExitStatus:
        self._folder.request_stop()
        started_at, is_cancelled = time.monotonic(), False
        while time.monotonic() - started_at < CANCEL_S:
            if (end := self._folder.read_end()) is not None and end.status is not None:
                if not is_cancelled and end.status.reason != "stopped":
                    return end.status
                return self._wait_until_gone(end.status)
            status = self._ask_engine()
            if status is not None and status.has_ended:
                return make_exit_status("stopped")
            is_waiting = status is not None and status.state == "pending"
            if not is_cancelled and (is_waiting or time.monotonic() - started_at > STOP_S):
                with contextlib.suppress(EngineError):
                    self._scripts.engine.cancel(self.job_id)
                    is_cancelled = True
            time.sleep(FILE_INTERVAL_S)
        self._scripts.on_note(f"{self.describe_job()} did not end in {CANCEL_S:.0f} s; cancel it by hand.")
        return make_exit_status("lost")

    def _wait_until_gone(self, status: ExitStatus) -> ExitStatus:
        """Wait a little until the queue no longer shows the job, whose script has ended."""
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            job = self._ask_engine()
            if job is None or job.has_ended:
                break
            time.sleep(FILE_INTERVAL_S)
        return status
