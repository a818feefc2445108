"""A work folder, read-only data, a secret, and a backend to run real scripts in: for the sandbox and for attacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from m3b.errors import SandboxError
from m3b.isolation.sandbox import ExitStatus, Limits, Mounts, Sandbox, choose_sandbox
from m3b.isolation.sandbox.process import Process

_BACKENDS: dict[str, Sandbox | str] = {}


def backend(name: str) -> Sandbox:
    """The backend, looked for once; skips where this machine refuses it."""
    if name not in _BACKENDS:
        try:
            _BACKENDS[name] = choose_sandbox(name)
        except SandboxError as error:
            _BACKENDS[name] = str(error)
    sandbox = _BACKENDS[name]
    if isinstance(sandbox, str):
        pytest.skip(sandbox)
    return sandbox


@dataclass
class Bench:
    """A work folder, read-only data and a secret, and one backend to run scripts in."""

    sandbox: Sandbox
    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def secret(self) -> Path:
        return self.root / "secret" / "key.txt"

    @property
    def output(self) -> Path:
        return self.root / "logs" / "output.txt"

    def start(self, script: str, limits: Limits | None = None, hide: tuple[Path, ...] = ()) -> Process:
        return self.command([sys.executable, "-c", script], limits=limits, hide=hide)

    def command(
        self,
        command: list[str],
        limits: Limits | None = None,
        hide: tuple[Path, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> Process:
        return self.sandbox.start(
            command,
            cwd=self.work,
            mounts=Mounts(read=(self.data,), write=(self.work,), hide=hide),
            output=self.output,
            env=env or {},
            limits=limits or Limits(wall_s=60),
        )

    def run(self, script: str, limits: Limits | None = None, hide: tuple[Path, ...] = ()) -> tuple[ExitStatus, str]:
        end = self.start(script, limits, hide).wait(90)
        assert end is not None
        return end, self.output.read_text(errors="replace")

    def survivors(self, mark: str) -> list[int]:
        """Living processes whose command line holds `mark`."""
        return [pid for pid, line in command_lines() if mark in line]


def command_lines() -> list[tuple[int, str]]:
    processes = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                processes.append((int(folder.name), (folder / "cmdline").read_text(errors="replace")))
            except OSError:
                continue
    return processes


ATTEMPT = r"""
def attempt(name, action):
    try:
        result = action()
    except BaseException as error:
        print("stopped", name, type(error).__name__, error)
        print("tried", name, "stopped", sep="\t")
    else:
        print("OPEN", name, result)
        print("tried", name, "open", sep="\t")

import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *numbers):
    result = libc.syscall(*[ctypes.c_long(n) if isinstance(n, int) else n for n in (number, *numbers)])
    if result < 0: raise OSError(ctypes.get_errno(), "denied")
    return result
x86 = os.uname().machine == "x86_64"
"""


def attack(bench: Bench, script: str, limits: Limits | None = None) -> str:
    """Run a script that calls `attempt(name, action)` for each way out; return what it printed."""
    end, output = bench.run(ATTEMPT + script, limits)
    assert end.code == 0, output
    assert "stopped" in output
    print(output)  # the table of attacks (tests/attacks/table.py) reads it
    return output


@pytest.fixture
def make_bench(tmp_path: Path) -> Callable[[str], Bench]:
    def make(name: str) -> Bench:
        bench = Bench(backend(name), tmp_path)
        for folder in (bench.work, bench.data / "inner", bench.secret.parent):
            folder.mkdir(parents=True)
        bench.secret.write_text("the-secret-key")
        (bench.data / "image.txt").write_text("pixels")
        (bench.data / "inner" / "labels.txt").write_text("the-labels")
        (bench.work / "data").symlink_to(bench.data)
        return bench

    return make


LANDLOCK, OFF = (pytest.param(name, marks=pytest.mark.slow) for name in ("landlock", "off"))
"""The fast tests try one backend; the slow ones all of them."""


@pytest.fixture(params=["bubblewrap", LANDLOCK])
def confined(request: pytest.FixtureRequest, make_bench: Callable[[str], Bench]) -> Bench:
    return make_bench(request.param)


@pytest.fixture(params=["bubblewrap", LANDLOCK, OFF])
def bench(request: pytest.FixtureRequest, make_bench: Callable[[str], Bench]) -> Bench:
    return make_bench(request.param)
