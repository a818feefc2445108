"""The engine for a Ray cluster: each job is a detached actor, which outlives the process that submitted it.

m3b's own process never connects to Ray. A child process does (`m3b.engines.ray_driver`), for two reasons: Ray ends the
processes of its drivers if the cluster fails, and it records the command line of each driver, which may hold the
user's request.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from m3b.engines.base import (
    ClusterResources,
    EngineError,
    EngineName,
    JobRequest,
    JobStatus,
    Partition,
    Resources,
    read_tail,
)
from m3b.errors import UsageError

DEFAULT_PARTITION = "ray"
_CLOSE_TIMEOUT_S = 10.0


class RayEngine:
    """Runs jobs on a Ray cluster.

    `Resources.partition` is the name of a custom resource of the nodes, and `Resources.options` are node labels. A job
    gets the usual variables of its node's environment (`PATH`, `HOME`, proxies, what Ray sets for GPUs), and no others
    unless they are named.

    Args:
        address: address of the cluster; None for that of `RAY_ADDRESS` or of a cluster on this machine. If there is
            none, one is started, which ends with this process.
        node_environment: names of further variables that a job takes from the environment of its node, such as
            those with keys of language models. Their values are never sent.
        on_note: gets a line if a cluster is started on this machine because there is none.

    Raises:
        UsageError: Ray is not installed.
    """

    name: EngineName = "ray"

    def __init__(
        self,
        address: str | None = None,
        node_environment: Sequence[str] = (),
        on_note: Callable[[str], None] = lambda text: None,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError("The engine ray needs the package ray: pip install 'm3b[cluster]'.")
        self._address, self._node_environment, self._on_note = address, tuple(node_environment), on_note
        self._log_files: dict[str, Path] = {}
        self._driver: _DriverProcess | None = None
        self._lock = threading.Lock()

    def submit(self, request: JobRequest) -> str:
        """Submit a job and return its id.

        The job is found by its name from then on, even if this process dies before the id is returned.
        """
        job_id = uuid.uuid4().hex[:16]
        self._call("submit", job_id=job_id, job={
            "name": request.name,
            "argv": list(request.argv),
            "python": sys.executable,
            "folder": str(request.folder),
            "log_file": str(request.log_file),
            "environment": {name: os.environ[name] for name in request.pass_environment if name in os.environ},
            "node_environment": list(self._node_environment),
            "minutes": request.resources.minutes,
            "may_restart": request.may_restart,
            "options": _make_actor_options(request.resources),
        })  # fmt: skip
        self._log_files[job_id] = request.log_file
        return job_id

    def find(self, name: str) -> str | None:
        """Return the id of the newest job with the name; None if the cluster knows none."""
        found_id = self._call("find", name=name)
        return None if found_id is None else str(found_id)

    def poll(self, job_id: str) -> JobStatus:
        """Return the status of a job.

        The reason of a lost job is `NODE_FAIL`, `WORKER_DIED` or `UNKNOWN`, that of a failed one `TIMEOUT` or
        `START_FAILED`, if it is not the exit code.
        """
        return JobStatus(**self._call("poll", job_id=job_id))

    def tail(self, job_id: str, offset: int) -> tuple[bytes, int]:
        """Return what the log file of a job has from a byte on, and where to go on; empty if the job is unknown."""
        if job_id not in self._log_files:
            log_file = self._call("get_log_file", job_id=job_id)
            if log_file is None:
                return b"", offset
            self._log_files[job_id] = Path(log_file)
        return read_tail(self._log_files[job_id], offset)

    def cancel(self, job_id: str) -> None:
        """Send SIGTERM to a job, and SIGKILL if it still runs later; do nothing if it has ended."""
        self._call("cancel", job_id=job_id)

    def resources(self) -> ClusterResources:
        """Return what the nodes that are alive have.

        The partition `ray` has all nodes, and each custom resource is a partition of the nodes that have it.
        """
        nodes: list[dict[str, float]] = self._call("list_nodes")
        free: dict[str, float] = self._call("get_free_resources")
        custom_names = sorted({name for node in nodes for name in node if not _is_builtin_resource(name)})
        return ClusterResources(
            cpus=int(sum(node.get("CPU", 0) for node in nodes)),
            gpus=int(sum(node.get("GPU", 0) for node in nodes)),
            free_cpus=int(free.get("CPU", 0)),
            free_gpus=int(free.get("GPU", 0)),
            partitions=(
                replace(_make_partition(DEFAULT_PARTITION, nodes), is_default=True),
                *(_make_partition(name, [node for node in nodes if name in node]) for name in custom_names),
            ),
        )

    def close(self) -> None:
        """End the child process; jobs on a cluster that runs elsewhere go on."""
        with self._lock:
            if self._driver is not None:
                self._driver.close()
                self._driver = None

    def _call(self, method: str, **arguments: Any) -> Any:
        with self._lock:
            if self._driver is None or not self._driver.is_alive:
                self._driver = _DriverProcess(self._address)
                if self._driver.starts_cluster:
                    self._on_note(
                        "There is no Ray cluster (--address, RAY_ADDRESS, `ray start`): one is started on this machine alone, and "
                        "ends with this command."
                    )
            return self._driver.call(method, arguments)


def _make_actor_options(resources: Resources) -> dict[str, Any]:
    """Return the options of the actor of a job, by their names in Ray."""
    options: dict[str, Any] = {"num_cpus": resources.cpus, "num_gpus": resources.gpus}
    if resources.memory_gib:
        options["memory"] = int(resources.memory_gib * 2**30)
    if resources.partition not in ("", DEFAULT_PARTITION):
        options["resources"] = {resources.partition: 0.001}
    if resources.options:
        options["label_selector"] = dict(resources.options)
    return options


def _is_builtin_resource(name: str) -> bool:
    return name in ("CPU", "GPU", "memory", "object_store_memory") or ":" in name


def _make_partition(name: str, nodes: Sequence[Mapping[str, float]]) -> Partition:
    return Partition(
        name=name,
        nodes=len(nodes),
        cpus=int(max((node.get("CPU", 0) for node in nodes), default=0)),
        gpus=int(max((node.get("GPU", 0) for node in nodes), default=0)),
        memory_gib=max((node.get("memory", 0) / 2**30 for node in nodes), default=0),
    )


class _DriverProcess:
    """The child process that is connected to Ray. Calls and answers are lines of JSON."""

    def __init__(self, address: str | None) -> None:
        self._call_count = 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "m3b.engines.ray_driver"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8", cwd="/",
            env={"RAY_USAGE_STATS_ENABLED": "0", **os.environ}, start_new_session=True,
        )  # fmt: skip
        try:
            self.starts_cluster: bool = self.call("connect", {"address": address})
        except EngineError:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def call(self, method: str, arguments: dict[str, Any]) -> Any:
        """Return the result of a method of `m3b.engines.ray_driver`.

        Raises:
            EngineError: the call failed, or the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._call_count += 1
        try:
            self._process.stdin.write(json.dumps([self._call_count, method, arguments]) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = {}
            while answer.get("call") != self._call_count:  # the answer to an interrupted call may still come
                line = self._process.stdout.readline()
                if not line:
                    raise BrokenPipeError
                answer = json.loads(line)
        except BrokenPipeError as error:
            self._process.wait()
            self._errors.seek(0)
            last_words = self._errors.read()[-500:].decode("utf-8", "replace").strip()
            raise EngineError(
                f"The connection to Ray ended with status {self._process.returncode}: {last_words}", code="unreachable"
            ) from error
        if "error" in answer:
            raise EngineError(answer["error"], code=answer["code"])
        return answer["result"]

    def close(self) -> None:
        """Close the connection and wait for the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
