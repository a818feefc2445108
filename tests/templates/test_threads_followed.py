"""A training takes the processor threads that other programs leave free."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from template_kit import load

from m3b.errors import SandboxError
from m3b.isolation.sandbox import Mounts, choose_sandbox
from m3b.resources import copy_template
from sandbox_kit import LANDLOCK

threads = load("threads")
STAT = """cpu  9 9 9 9 9 9 9 9 9 9
cpu0 100 10 30 5000 70 1 2 3 40 0
cpu1 200 0 0 6000 0 0 0 0 0 0
cpu12 7 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_work_of_the_allowed_processors_is_added_up() -> None:
    assert threads.busy_ticks(STAT, {0, 1}) == 146 + 200, "neither idle nor waiting, guests are within user"
    assert threads.busy_ticks(STAT, {12}) == 7
    assert threads.busy_ticks("", {0}) == 0


@pytest.mark.parametrize(
    ("cores", "max_cores", "busy", "own_busy", "free"),
    [
        (2, 2, 2.0, 2.0, 2),  # the training alone
        (2, 2, 2.0, 0.8, 1),  # beside three programs
        (2, 2, 2.0, 1.0, 1),  # beside one
        (2, 2, 0.3, 0.0, 2),
        (16, 16, 4.1, 0.0, 12),
        (2, 2, 2.0, 0.0, 1),
        (2, 2, 1.0, 1.5, 2),  # counted at different moments
        (16, 4, 8.0, 0.0, 4),  # OMP_NUM_THREADS=4: half of the machine is free
        (16, 4, 16.0, 4.0, 4),  # four trainings side by side
        (16, 4, 14.0, 0.0, 2),
    ],
)
def test_cores_are_free_that_others_do_not_work_on(
    cores: int, max_cores: int, busy: float, own_busy: float, free: int
) -> None:
    before = threads.Load(100.0, 50.0, 7.0, cores)
    assert threads.free_cores(max_cores, before, threads.Load(101.0, 50.0 + busy, 7.0 + own_busy, cores)) == free


def _at(clock: float, busy: float) -> Any:
    return threads.Load(clock, busy, 0.0, 4)


def test_threads_follow_the_machine_and_stay_where_the_plan_says_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, load, before = [0.0], [0.0], torch.get_num_threads()
    monkeypatch.setattr(threads.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(threads, "count_cores", lambda: 4)
    try:
        torch.set_num_threads(4)
        followed = threads.ThreadFollower({}, lambda: _at(now[0], load[0]))
        fixed = [
            threads.ThreadFollower(plan, lambda: _at(now[0], load[0])) for plan in ({"threads": 3}, {"max_steps": 9})
        ]
        thread_counts = []
        for second, busy in ((2, 6.0), (6, 18.0), (12, 36.0), (18, 36.0), (30, 42.0)):
            now[0], load[0] = float(second), busy
            for follower in fixed:
                follower.follow()
            followed.follow()
            thread_counts.append(torch.get_num_threads())
        assert thread_counts == [4, 1, 1, 4, 4], (
            "not looked at before its time; three at work, three at work, none, half a core"
        )
        nothing = threads.ThreadFollower({}, lambda: None)
        now[0] = 99.0
        nothing.follow()
        assert torch.get_num_threads() == 4, "where the machine says nothing"
        threads.use_threads({"threads": 2})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", ["bubblewrap", LANDLOCK])
def test_a_confined_training_sees_how_busy_the_machine_is(backend: str, tmp_path: Path) -> None:
    try:
        sandbox = choose_sandbox(backend)
    except SandboxError as error:
        pytest.skip(str(error))
    place = tmp_path / "work"
    copy_template("diagnosis", place)
    code = "from m3b.training.threads import read_load; now = read_load(); print(now.busy_seconds > 0)"
    output = tmp_path / "output"
    process = sandbox.start([sys.executable, "-c", code], cwd=place, mounts=Mounts(write=(place,)), output=output)
    process.wait()
    assert output.read_text().splitlines()[-1:] == ["True"]
