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
from collections.abc import Mapping, Sequence
from pathlib import Path

import m3b.models.confinement
from m3b.isolation.sandbox import ExitStatus, Limits, Mounts, Probe, Sandbox
from m3b.isolation.sandbox.environment import command_environment
from m3b.isolation.sandbox.job import resolve_mounts
from warm.client import request
from warm.servers import VARIABLE, zygote


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
        else:
            assert self._client is not None
            if not select.select([self._client], [], [], timeout_s)[0]:
                return None
            answer = self._client.recv(256)
            code = int(json.loads(answer)["code"]) if answer else -signal.SIGKILL
        return code if code >= 0 else 128 - code

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


CONFINED = "M3B_TEST_CONFINED"
"""Set while a test uses the real sandbox; forked `m3b` commands inherit it."""

chooser = sys.modules["m3b.isolation.sandbox.choose"]
real_candidates, real_strongest = chooser._try_candidates, chooser.strongest_untried


def use_sandbox(confined: bool) -> None:
    """Let m3b choose the real sandbox, or the warm stand-in for it."""
    if confined:
        os.environ[CONFINED] = "1"
    else:
        os.environ.pop(CONFINED, None)
    chooser._try_candidates = real_candidates if confined else _warm_candidates
    strongest = real_strongest if confined else WarmSandbox
    chooser.strongest_untried = m3b.models.confinement.strongest_untried = strongest  # type: ignore[assignment]


def _warm_candidates(mode: str, accept_weak: bool) -> list[tuple[Sandbox | None, Probe]]:
    if mode == "auto" and not accept_weak:
        sandbox = WarmSandbox()
        return [(sandbox, Probe(sandbox.name, True, sandbox.level))]
    return real_candidates(mode, accept_weak=accept_weak)
