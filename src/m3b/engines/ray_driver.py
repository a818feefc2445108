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
        elif target != "local" and not answers_recorded_address():
            if target == "auto" and not has_head():
                raise NoClusterError(
                    "no cluster was started on this machine, and RAY_ADDRESS is not set. Start one with `ray start --head "
                    "--port=6379`, or set RAY_ADDRESS=HOST:6379"
                )
            target = target or "local"
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


def answers_recorded_address() -> bool:
    """Return whether the cluster answers that the last `ray start` on this machine noted."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # nosec B108: where Ray notes it
    with contextlib.suppress(OSError, NoClusterError):
        if address := (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip():
            _check_address(address)
            return True
    return False


def has_head(processes: Path = Path("/proc")) -> bool:
    """Return whether the head of a cluster runs on this machine, which Ray finds for the address `auto` alone."""
    return any(_read_text(file).strip() == "gcs_server" for file in processes.glob("[0-9]*/comm"))


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
