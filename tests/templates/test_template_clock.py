"""The minutes are those of training: what a slow start, a busy machine and the least steps do to them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from template_kit import Run, load


class Machine:
    """A clock that goes on by `step_s` with every step of the training."""

    def __init__(self, step_s: float, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.now, self.step_s = 100.0, step_s

    def monotonic(self) -> float:
        return self.now


def trained(step_s: float, budget: float = 30.0, **more: Any) -> tuple[Any, Machine, list[float]]:
    """A clock after a training whose steps take so long, and its progress at every step."""
    clock_of, machine = load("clock"), Machine(step_s)
    real, clock_of.time = clock_of.time, SimpleNamespace(monotonic=machine.monotonic)
    try:
        clock, told = clock_of.Clock(budget, 10_000, **more), []
        while not clock.is_over():
            machine.now += step_s
            clock.step += 1
            told.append(clock.progress())
        return clock, machine, told
    finally:
        clock_of.time = real


def test_a_usual_machine_trains_for_its_seconds() -> None:
    clock, machine, told = trained(0.125)
    assert (clock.step, machine.now) == (240, 130.0)
    assert told[-1] == 1.0


def test_a_busy_machine_gets_its_least_steps() -> None:
    """One second a step: half a minute would end after 30 of 40 steps."""
    clock, machine, told = trained(1.0)
    assert (clock.step, machine.now) == (40, 140.0)
    assert told[-1] == 1.0, "the rate comes down to its end all the same"


def test_twice_the_seconds_are_the_most() -> None:
    clock, machine, _ = trained(10.0)
    assert (clock.step, machine.now) == (6, 160.0)


def test_counted_steps_are_what_they_are() -> None:
    assert trained(10.0, max_steps=3)[0].step == 3


@given(st.floats(0.05, 40), st.floats(1, 100))
def test_progress_never_goes_back(step_s: float, budget: float) -> None:
    told = trained(step_s, budget)[2]
    assert told == sorted(told)
    assert 0 < told[0] <= told[-1] <= 1


@pytest.mark.slow
def test_a_slow_start_takes_nothing_from_the_minutes(project: Path, run: Run) -> None:
    """Twelve seconds of training stay twelve, less those for the results, whatever the imports take."""
    run("example/make_example.py", "--cases", "40")
    run("plan.py", "--minutes", "0.2", "--set", "device=cpu", "max_epochs=1", "folds=1", "network.width=8")
    recipe = project / "recipe.py"
    first = "from __future__ import annotations\n"
    recipe.write_text(recipe.read_text().replace(first, f"{first}import time\ntime.sleep(9)\n", 1))
    assert "validation cases, 10 s" in run("train.py").stdout
