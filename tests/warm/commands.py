"""Run `python ...` and `m3b ...` in warm processes, with the answer that `subprocess.run` would give."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from warm.client import request
from warm.servers import zygote

TIMEOUT_S = 900.0


def run_python(
    *arguments: object,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    check: bool = False,
    server: str = "scripts",
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` in a fork of an interpreter that has imported what scripts need, and nothing of m3b.

    The command has its own process group, working directory, environment and an empty standard input. Processes that
    it leaves running are killed when it ends.

    Args:
        check: require that it succeeds, and show the end of its output otherwise.
        server: `m3b` for a fork of an interpreter that has imported m3b instead; see `run_m3b`.

    Raises:
        subprocess.TimeoutExpired: the command took longer than `timeout_s`; it was killed.
    """
    done = _run(server, ["python", *map(str, arguments)], cwd, env, timeout_s)
    assert not check or done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def run_m3b(
    *arguments: object,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run `m3b ARGUMENTS` in a fork of an interpreter that has imported m3b; see `run_python`.

    Unless the test is marked `confined`, its scripts and its reader run in warm processes too.
    """
    return _run("m3b", ["m3b", *map(str, arguments)], cwd, env, timeout_s)


def _run(
    kind: str, command: list[str], cwd: Path | str | None, env: Mapping[str, str] | None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    output, errors = os.memfd_create("stdout"), os.memfd_create("stderr")
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        environment = os.environ if env is None else env
        client, pid = request(zygote(kind), command, str(cwd or Path.cwd()), environment, (nothing, output, errors))
        with client:
            if not select.select([client], [], [], timeout_s)[0]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout_s, _read(output), _read(errors))
            answer = client.recv(256)
        status = json.loads(answer)["code"] if answer else -signal.SIGKILL
        return subprocess.CompletedProcess(command, status, _read(output), _read(errors))
    finally:
        for handle in (output, errors, nothing):
            os.close(handle)


def _read(handle: int) -> str:
    """Return the text of a memory file, line ends as `subprocess.run(text=True)` has them."""
    os.lseek(handle, 0, os.SEEK_SET)
    with os.fdopen(os.dup(handle), encoding="utf-8") as file:
        return file.read()
