"""The protocol of engines: what runs a job elsewhere than in a child process of m3b, such as Slurm or Ray.

A job is a command with a folder on storage that every node sees under the same path. Engines submit, poll and cancel;
what a job computes, and whether it has finished its work, is in the files of its folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from m3b.errors import M3bError, UsageError

EngineName = Literal["local", "slurm", "ray"]
JobState = Literal["pending", "running", "finished", "failed", "cancelled", "lost", "preempted"]
ENDED_STATES: tuple[JobState, ...] = ("finished", "failed", "cancelled", "lost", "preempted")

REQUEUE_VARIABLE = "M3B_REQUEUE_COMMAND"
"""Variable of a job with the command by which it asks to be started again; words are separated by blanks."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class EngineError(M3bError):
    """An engine cannot be reached, refuses a job, or lost it. The message has the engine's own words.

    Args:
        code: the reason for programs: `unreachable`, `rejected`, `start_failed` or `lost`; empty for others.
    """

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Resources:
    """What one job asks for.

    Args:
        cpus: processor cores on one node.
        gpus: GPUs on one node.
        memory_gib: memory in GiB; 0 leaves it to the cluster.
        minutes: wall time after which the engine may end the job; 0 leaves it to the cluster.
        partition: partition, queue or node label; empty leaves it to the cluster.
        options: further options of the engine, by their names there: `{"account": "radiology"}`.
    """

    cpus: int = 1
    gpus: int = 0
    memory_gib: float = 0.0
    minutes: float = 0.0
    partition: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobRequest:
    """One job.

    Args:
        name: unique name, by which `Engine.find` finds the job again if m3b died before it could note the job id.
        argv: the command; its first word is an absolute path.
        folder: working directory on shared storage.
        log_file: receives standard output and error of the job on shared storage.
        resources: what the job asks for.
        pass_environment: names of variables of this process that the job gets; it gets no others.
        may_restart: whether the engine may start the job again itself after a preemption or the loss of its node.

    Raises:
        UsageError: a variable may not be passed on, or the command is empty or has no absolute path.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    log_file: Path
    resources: Resources = field(default_factory=Resources)
    pass_environment: tuple[str, ...] = ()
    may_restart: bool = True

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0].startswith("/") or any("\0" in word for word in self.argv):
            raise UsageError(f"The command of a job begins with an absolute path and has no NUL bytes: {self.argv!r}.")
        for name in self.pass_environment:
            if not _VARIABLE_NAME.fullmatch(name) or _SECRET_NAME.search(name):
                raise UsageError(
                    f"The variable {name!r} is not passed on to jobs: its name is none, or that of a key. Jobs of a "
                    "cluster need no keys; language models are asked by the process that submits them."
                )


@dataclass(frozen=True)
class JobStatus:
    """What an engine knows of a job.

    Args:
        state: `failed` includes a job that its engine ended for its time or memory; `lost` is a job whose node failed,
            or that the engine does not know any more; `preempted` is one that is not started again by the engine.
        exit_code: code of the command, 128 + signal if a signal ended it; None while it runs or if it is unknown.
        node: host name; empty before the start.
        reason: the engine's own word, such as `Resources`, `TIMEOUT` or `NODE_FAIL`.
        restarts: how often the engine started the job again.
    """

    state: JobState
    exit_code: int | None = None
    node: str = ""
    reason: str = ""
    restarts: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the engine will do nothing more for this job."""
        return self.state in ENDED_STATES


@dataclass(frozen=True)
class Partition:
    """A part of a cluster. `minutes` is the longest job, None without a limit; the other figures are the
    largest of a node; `memory_gib` is 0 if the cluster does not know it."""

    name: str
    nodes: int
    cpus: int
    gpus: int
    memory_gib: float
    minutes: float | None = None
    is_default: bool = False


@dataclass(frozen=True)
class ClusterResources:
    """What a cluster has.

    Args:
        cpus, gpus: of all nodes that work.
        free_cpus, free_gpus: of these, what no job uses now.
        partitions: what a job may ask for.
    """

    cpus: int
    gpus: int
    free_cpus: int
    free_gpus: int
    partitions: tuple[Partition, ...] = ()

    def find_partition(self, name: str) -> Partition | None:
        """Return a partition by its name, the default one for an empty name; None if there is none."""
        return next((part for part in self.partitions if (part.name == name if name else part.is_default)), None)

    def check(self, resources: Resources) -> None:
        """Check that some node could run a job.

        Raises:
            UsageError: there is no such partition, or no node of it is large enough.
        """
        names = resources.partition.split(",") if resources.partition else [""]
        partitions = [part for name in names if (part := self.find_partition(name)) is not None]
        known_names = ", ".join(part.name for part in self.partitions) or "none"
        if not partitions:
            if resources.partition or not self.partitions:
                raise UsageError(
                    f"The cluster has no partition {resources.partition!r} with a working node: {known_names}."
                )
            return  # no default partition: the cluster decides
        largest_memory = max(part.memory_gib for part in partitions) or math.inf
        for noun, amount, largest in (
            ("cores (--cpus)", resources.cpus, max(part.cpus for part in partitions)),
            ("GPUs (--gpus)", resources.gpus, max(part.gpus for part in partitions)),
            ("GiB of memory (--memory)", resources.memory_gib, largest_memory),
        ):
            if amount > largest:
                raise UsageError(
                    f"No node of the partition {', '.join(part.name for part in partitions)} has {amount:g} {noun}; the "
                    f"largest has {largest:g}. Partitions: {known_names}."
                )


class Engine(Protocol):
    """Runs jobs. All methods may be called by several threads.

    Every method raises `EngineError` with the code `unreachable` if the engine does not answer.
    """

    name: EngineName

    def submit(self, request: JobRequest) -> str:
        """Submit a job and return its id.

        Raises:
            EngineError: the engine refuses the job (`rejected`).
        """
        ...

    def find(self, name: str) -> str | None:
        """Return the id of the newest job with the name of a request; None if the engine knows none."""
        ...

    def poll(self, job_id: str) -> JobStatus:
        """Return the status of a job; of one that the engine does not know the state `lost`."""
        ...

    def tail(self, job_id: str, offset: int) -> tuple[bytes, int]:
        """Return what the log file of a job has from a byte on, and where to go on; empty if there is none."""
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a job; do nothing if it has ended. `poll` says when its processes are gone."""
        ...

    def resources(self) -> ClusterResources:
        """Return what the cluster has, what is free, and what a job may ask for."""
        ...


MAX_TAIL_BYTES = 1 << 20


def read_tail(file: Path, offset: int) -> tuple[bytes, int]:
    """Return up to 1 MiB of a log file from a byte on, and where to go on; empty if there is no file yet.

    A file that became shorter (a restarted job writes a new one) is read from its beginning.
    """
    try:
        with file.open("rb") as stream:
            length = stream.seek(0, 2)
            start = offset if offset <= length else 0
            stream.seek(start)
            data = stream.read(MAX_TAIL_BYTES)
    except OSError:
        return b"", offset
    return data, start + len(data)
