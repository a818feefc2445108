"""The process that is connected to a Ray cluster for a `RayEngine`.

`python -m m3b.engines.ray_driver` reads calls from standard input and writes answers to standard output, as lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from m3b.engines.ray_actors import NAMESPACE, TABLE_NAME, JobTable

HEAD_RESOURCE = "node:__internal_head__"
CALL_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 180.0
PORT_TIMEOUT_S = 10.0


class Driver:
    """Answers the calls of a `RayEngine`."""

    def __init__(self, address: str | None) -> None:
        import ray

        target = address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS") or address
        if target not in (None, "auto", "local"):
            _check_address(str(target))
        elif target != "local":  # by its address: Ray itself would take the cluster of any user of this machine
            recorded_address = find_recorded_address() or find_head()
            if target == "auto" and not recorded_address:
                raise NoClusterError(
                    "neither you nor root started a cluster on this machine, and RAY_ADDRESS is not set. Start one with `ray start "
                    "--head --port=6379`, or set RAY_ADDRESS=HOST:6379"
                )
            target = recorded_address or "local"
        self.starts_cluster = target == "local"
        watchdog = threading.Timer(CONNECT_TIMEOUT_S, _give_up)
        watchdog.daemon = True
        watchdog.start()
        ray.init(address=target, namespace=NAMESPACE, logging_level="error", log_to_driver=False)
        self._table = (
            ray.remote(JobTable)
            .options(
                name=TABLE_NAME,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                resources={HEAD_RESOURCE: 0.001},
                max_restarts=-1,
                max_task_retries=3,
            )
            .remote()
        )
        watchdog.cancel()

    def answer(self, method: str, arguments: dict[str, Any]) -> Any:
        """Return the answer to a call."""
        import ray

        if method == "list_nodes":
            return [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if method == "get_free_resources":
            return ray.available_resources()
        calls = {
            "submit": self._table.submit,
            "find": self._table.find,
            "poll": self._table.poll,
            "cancel": self._table.cancel,
            "get_log_file": self._table.get_log_file,
        }
        return ray.get(calls[method].remote(**arguments), timeout=CALL_TIMEOUT_S)


class NoClusterError(Exception):
    """There is no Ray cluster; the message says what to do."""


def _check_address(address: str) -> None:
    """Check that something listens at HOST:PORT; Ray itself would try for many minutes. Raises NoClusterError."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "//" not in address:
        try:
            socket.create_connection((host, int(port)), PORT_TIMEOUT_S).close()
        except OSError as error:
            raise NoClusterError(
                f"nothing answers at {address} ({error}). `ray status` on its head node says whether the cluster is up"
            ) from error


def find_recorded_address() -> str:
    """Return the address that the last `ray start` of this user or root on this machine noted, if it answers; else ''.

    Every user can write where Ray notes it, and a cluster runs code of its own in the processes that connect to it.
    """
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # nosec B108: where Ray notes it
    with contextlib.suppress(OSError, NoClusterError, ValueError):
        handle = os.open(Path(folder) / "ray" / "ray_current_cluster", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, encoding="utf-8") as file:
            address = file.read(300).strip() if _is_trusted(os.fstat(handle)) else ""
        if address:
            _check_address(address)
            return address
    return ""


def find_head(processes: Path = Path("/proc")) -> str:
    """Return the address of a cluster that a process of this user or root on this machine belongs to; '' if there is none."""
    for folder in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _is_trusted(folder.stat()) and _read_text(folder / "comm").strip() == "raylet":
                for word in _read_text(folder / "cmdline").split("\0"):
                    if word.startswith("--gcs-address=") and (address := word.partition("=")[2]):
                        return address
    return ""


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.getuid())


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has ended
        return ""


def _give_up() -> None:
    sys.stderr.write(
        f"Ray did not answer for {CONNECT_TIMEOUT_S:.0f} s; `ray status` says whether the cluster is up.\n"
    )
    sys.stderr.flush()
    os._exit(1)


def main() -> None:
    """Answer calls until standard input ends."""
    import ray.exceptions

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is no answer
    driver: Driver | None = None
    for line in sys.stdin:
        number, method, arguments = json.loads(line)
        answer: dict[str, Any] = {"call": number}
        try:
            if driver is None:
                driver = Driver(arguments["address"])
                answer["result"] = driver.starts_cluster
            else:
                answer["result"] = driver.answer(method, arguments)
        except NoClusterError as error:
            answer |= {"error": f"Ray cannot be used: {error}.", "code": "unreachable"}
        except ray.exceptions.RayTaskError as error:
            answer |= {"error": f"Ray refuses the call {method}: {error.cause}", "code": "rejected"}
        except (ray.exceptions.RayError, OSError, ValueError, RuntimeError) as error:
            answer |= {"error": f"Ray: {type(error).__name__}: {str(error)[:500]}", "code": "unreachable"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    ray.shutdown()


if __name__ == "__main__":
    main()
