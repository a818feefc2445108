"""A stand-in for the sandbox that forks warm processes: fast, in processes of their own, not confined."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from m3b.isolation.sandbox import ExitStatus, Limits, Mounts
from m3b.isolation.sandbox.environment import command_environment
from m3b.isolation.sandbox.job import resolve_mounts
from warm.client import request

HERE = Path(__file__).resolve().parent
START_S = 120.0


KINDS = ("scripts", "m3b")
VARIABLE = "M3B_TEST_WARM"
"""The folder with the sockets; workers of pytest-xdist inherit it from the process that started them."""


def start_zygotes() -> Callable[[], None]:
    """Start the servers in the background; returns what ends them."""
    folder = tempfile.mkdtemp(prefix="m3b-warm-")
    os.environ[VARIABLE] = folder
    environment = {
        **{name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))},
        **{name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")},
        "MPLBACKEND": "Agg",
    }
    servers = [
        subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), f"{folder}/{kind}", kind],
            stdin=subprocess.DEVNULL, env=environment, cwd="/",
        )
        for kind in KINDS
    ]  # fmt: skip
    _make_shims(Path(folder, "bin"))

    def stop() -> None:
        for server in servers:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)

    return stop


def zygote(kind: str) -> str:
    """Return the socket's path, once the server listens."""
    path = Path(os.environ[VARIABLE], kind)
    deadline = time.monotonic() + START_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the {kind} zygote did not start within {START_S:g} s")
        time.sleep(0.01)
    return str(path)


def _make_shims(folder: Path) -> None:
    """Write `python` and `python3` that run scripts in a warm process."""
    folder.mkdir()
    for name in ("python", "python3"):
        shim = folder / name
        shim.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -I -S {HERE / "client.py"} "$@"\n')
        shim.chmod(0o755)


class WarmProcess:
    """A command of the warm sandbox; the methods of `m3b.isolation.sandbox.process.Process`."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        output: Path,
        env: Mapping[str, str],
        limits: Limits,
        keep: Sequence[int],
    ) -> None:
        self.output, self._limits, self._exit = output, limits, None
        self._began = time.monotonic()
        self._private = Path(tempfile.mkdtemp(prefix="m3b-warm-home-"))
        environment = command_environment(str(self._private), env)
        environment["M3B_TEST_ZYGOTE"] = zygote("scripts")
        environment["PATH"] = f"{os.environ[VARIABLE]}/bin:{environment['PATH']}"
        output.parent.mkdir(parents=True, exist_ok=True)
        target = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        self._popen: subprocess.Popen[bytes] | None = None
        self._client: socket.socket | None = None
        try:
            if Path(command[0]).name.startswith("python"):
                kind = "m3b" if any("m3b.isolation.reader.server" in word for word in command) else "scripts"
                self._client, self.pid = request(
                    zygote(kind), command, str(cwd), environment, (nothing, target, target), keep
                )
            else:
                self._popen = subprocess.Popen(
                    list(command),
                    cwd=cwd,
                    env=environment,
                    stdin=nothing,
                    stdout=target,
                    stderr=target,
                    pass_fds=tuple(keep),
                    start_new_session=True,
                )
                self.pid = self._popen.pid
        finally:
            os.close(target)
            os.close(nothing)

    def poll(self) -> ExitStatus | None:
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> ExitStatus | None:
        if self._exit is not None:
            return self._exit
        wall_left = self._limits.wall_s - (time.monotonic() - self._began)
        patience = wall_left if timeout_s is None else min(timeout_s, wall_left)
        code = self._code(max(patience, 0.0))
        if code is not None:
            self._finish(code, "exit")
        elif time.monotonic() - self._began >= self._limits.wall_s:
            self._kill()
            self._finish(137, "wall_time")
        return self._exit

    def stop(self) -> ExitStatus:
        if self.wait(0) is None:
            self._kill()
            self._finish(137, "stopped")
        assert self._exit is not None
        return self._exit

    def _code(self, timeout_s: float) -> int | None:
        if self._popen is not None:
            try:
                code = self._popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
            return code if code >= 0 else 128 - code
        assert self._client is not None
        if not select.select([self._client], [], [], timeout_s)[0]:
            return None
        answer = self._client.recv(256)
        return int(json.loads(answer)["code"]) if answer else 137

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._code(30.0)

    def _finish(self, code: int, reason: str) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # what the command left running
        if self._client is not None:
            self._client.close()
        shutil.rmtree(self._private, ignore_errors=True)
        self._exit = ExitStatus(code, reason, time.monotonic() - self._began)  # type: ignore[arg-type]

    def __del__(self) -> None:
        if getattr(self, "_exit", None) is None and hasattr(self, "pid"):
            self.stop()


class WarmSandbox:
    """Runs commands in warm processes. Reports itself as bubblewrap, for which it stands in."""

    name = "bubblewrap"
    level = "warm: processes of the tests' own, not confined"

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        mounts: Mounts,
        output: Path,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        keep: Sequence[int] = (),
    ) -> WarmProcess:
        """See `m3b.isolation.sandbox.Sandbox.start`; the mounts are only checked."""
        resolve_mounts(mounts, cwd)
        return WarmProcess(command, cwd.resolve(), output, env or {}, limits or Limits(), keep)
