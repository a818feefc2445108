"""A Ray cluster of several nodes on this machine; each node has the variable `NODE_VARIABLE` with its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NODE_VARIABLE = "M3B_TEST_NODE"
DEADLINE_S = 240.0
"""Starting a process of Ray takes 20 s on a machine that others use too."""

MAX_NODE_STARTS = 4
"""Ray gives a node 30 s for its start, which is short on a machine that others use too."""

HEALTH_CHECKS = {"health_check_period_ms": 2000, "health_check_timeout_ms": 20000, "health_check_failure_threshold": 3}
"""Patient with nodes that get little time of the processor; a killed one is noticed at once, since its port is closed."""


class RayCluster:
    """A running cluster of nodes with one processor each. `address` is that of its head."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._nodes: dict[str, Any] = {}
        self.add_node("head", include_dashboard=False, _system_config=HEALTH_CHECKS)
        self.address: str = self._cluster.address

    def add_node(self, name: str, labels: dict[str, str] | None = None, **options: Any) -> None:
        """Start a node and wait until the cluster knows it."""
        for attempt in range(MAX_NODE_STARTS):
            try:
                self._nodes[name] = self._cluster.add_node(
                    num_cpus=1, env_vars={NODE_VARIABLE: name}, labels=labels or {}, **options
                )
                return
            except Exception as error:
                if attempt + 1 == MAX_NODE_STARTS or "timed out during startup" not in str(error):
                    raise

    def kill_node(self, name: str) -> None:
        """Kill all processes of Ray of a node."""
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    @property
    def session_folder(self) -> Path:
        """Folder with the logs of the cluster."""
        return Path(self._cluster.head_node.get_session_dir_path())

    def stop(self) -> None:
        """Stop all nodes."""
        self._cluster.shutdown()


@contextmanager
def run_ray(*names: str) -> Iterator[RayCluster]:
    """Run a cluster with a head and nodes of these names."""
    cluster = RayCluster()
    try:
        for name in names:
            cluster.add_node(name)
        yield cluster
    finally:
        cluster.stop()


def wait_for(condition: Callable[[], Any], message: str, timeout_s: float = DEADLINE_S) -> Any:
    """Return the first true value of a condition; fail with the message after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, message
        time.sleep(0.1)
    return value


def find_processes(word: str, variable: str = "") -> list[int]:
    """Return the ids of the processes with a word in their command line, and `NAME=value` in their environment."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() not in (process / "cmdline").read_bytes():
                continue
            if not variable or variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                pids.append(int(process.name))
        except OSError:
            continue
    return pids
