"""A script against the processes around it: its guards, other programs of the same user, m3b itself."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from m3b.isolation.sandbox import Limits
from sandbox_kit import ATTEMPT, attack, command_lines

VICTIM = "import time; print('up', flush=True); time.sleep(300)"


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """Another program of the same user."""
    with subprocess.Popen([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def traits(pid: int) -> tuple[object, ...]:
    """What the calls below would change of a process."""
    limits = tuple(resource.prlimit(pid, limit_kind) for limit_kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS))
    return (*limits, os.sched_getscheduler(pid), os.sched_getaffinity(pid), os.getpriority(os.PRIO_PROCESS, pid))


def test_limits_and_priorities_of_others_stay(confined: Any, victim: subprocess.Popen[bytes]) -> None:
    before = traits(victim.pid)
    output = attack(
        confined,
        f"""
import resource
pid = {victim.pid}
attempt("cpu limit", lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)))
attempt("memory limit", lambda: resource.prlimit(pid, resource.RLIMIT_AS, (0, 0)))
attempt("scheduler", lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
attempt("scheduling parameters", lambda: os.sched_setparam(pid, os.sched_param(0)))
attempt("processors", lambda: os.sched_setaffinity(pid, {{0}}))
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
attempt("nice of the group", lambda: os.setpriority(os.PRIO_PGRP, pid, 19))
attempt("nice of the user", lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt("ioprio", lambda: call(251 if x86 else 30, 1, pid, 3 << 13))
attempt("ioprio of the user", lambda: call(251 if x86 else 30, 3, os.getuid(), 3 << 13))
attempt("sched_setattr", lambda: call(314 if x86 else 274, pid, ctypes.create_string_buffer(56), 0))
attempt("signal", lambda: os.kill(pid, 0))
attempt("pidfd signal", lambda: call(424, call(434, pid, 0), 15, 0, 0))
attempt("queue a signal", lambda: call(129 if x86 else 138, pid, 0, ctypes.create_string_buffer(128)))
attempt("its descriptors", lambda: call(438, call(434, pid, 0), 1, 0))
attempt("memory", lambda: open(f"/proc/{{pid}}/mem", "rb").read(1))
attempt("environment", lambda: open(f"/proc/{{pid}}/environ").read())
attempt("oom score", lambda: open(f"/proc/{{pid}}/oom_score_adj", "w").write("1000"))
attempt("move its pages", lambda: call(256 if x86 else 238, pid, 0, None, None))
""",
    )
    harmless_attempts = (
        "nice of the user",
        "ioprio of the user",
    )  # where the user has no other processes than the script's
    open_attempts = [line[5:] for line in output.splitlines() if line.startswith("OPEN")]
    assert [
        name
        for name in open_attempts
        if not (confined.sandbox.name == "bubblewrap" and name.startswith(harmless_attempts))
    ] == []
    assert victim.poll() is None
    assert traits(victim.pid) == before


KILL_GUARDS = """
import os, resource, subprocess, sys, time
print("pid", os.getpid(), flush=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)  # MARK"], start_new_session=True)
for name in os.listdir("/proc"):
    if not name.isdigit():
        continue
    try:
        line = open(f"/proc/{name}/cmdline").read()
    except OSError:
        continue
    if "guard" in line and int(name) not in (1, os.getpid()):  # 1: the sandbox's own, where it has any
        for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NOFILE):
            try: resource.prlimit(int(name), which, (0, 0))
            except OSError as error: print("stopped", error)
            else: print("OPEN", name)
        for attack in (lambda: os.kill(int(name), 9), lambda: os.sched_setscheduler(int(name), os.SCHED_IDLE, os.sched_param(0))):
            try: attack()
            except OSError as error: print("stopped", error)
            else: print("OPEN", name)
print("tried", flush=True)
time.sleep(2)
"""


def test_the_guards_cannot_be_killed_by_limits(confined: Any) -> None:
    """With a processor time of 0 the supervisor and the reaper died, and a daemon lived on."""
    mark = f"daemon-{os.getpid()}-{confined.sandbox.name}"
    end, output = confined.run(KILL_GUARDS.replace("MARK", mark), Limits(wall_s=60))
    assert "tried" in output
    assert "OPEN" not in output
    assert (end.code, end.reason) == (0, "exit"), output
    assert not confined.survivors(mark)
    assert not [line for _, line in command_lines() if mark in line]


def test_what_concerns_the_script_itself_still_works(confined: Any) -> None:
    end, output = confined.run(
        ATTEMPT
        + """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(resource.prlimit(0, resource.RLIMIT_NOFILE))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.nice(1)
call(251 if x86 else 30, 1, 0, 3 << 13)
print("fine")
"""
    )
    assert end.code == 0, output
    assert "fine" in output
