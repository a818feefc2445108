"""The minutes are those of training: what a slow start, a busy machine and the least steps do to them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from template_kit import Run, load


class Machine:
    """A clock that goes on by `step_s` with every step of the training."""

    def __init__(self, step_s: float, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.now, self.step_s = 100.0, step_s

    def monotonic(self) -> float:
        return self.now


def run_training(step_s: float, budget: float = 30.0, **clock_options: Any) -> tuple[Any, Machine, list[float]]:
    """A clock after a training whose steps take so long, and its progress at every step."""
    clock_of, machine = load("clock"), Machine(step_s)
    real, clock_of.time = clock_of.time, SimpleNamespace(monotonic=machine.monotonic)
    try:
        clock, progress = clock_of.Clock(budget, 10_000, **clock_options), []
        while not clock.is_over():
            machine.now += step_s
            clock.step += 1
            progress.append(clock.progress())
        return clock, machine, progress
    finally:
        clock_of.time = real


def test_a_usual_machine_trains_for_its_seconds() -> None:
    clock, machine, progress = run_training(0.125)
    assert (clock.step, machine.now) == (240, 130.0)
    assert progress[-1] == 1.0


def test_a_busy_machine_gets_its_least_steps() -> None:
    """One second a step: half a minute would end after 30 of 40 steps."""
    clock, machine, progress = run_training(1.0)
    assert (clock.step, machine.now) == (40, 140.0)
    assert progress[-1] == 1.0, "the rate comes down to its end all the same"


def test_twice_the_seconds_are_the_most() -> None:
    clock, machine, _ = run_training(10.0)
    assert (clock.step, machine.now) == (6, 160.0)


def test_counted_steps_are_what_they_are() -> None:
    assert run_training(10.0, max_steps=3)[0].step == 3


@given(st.floats(0.05, 40), st.floats(1, 100))
def test_progress_never_goes_back(step_s: float, budget: float) -> None:
    progress = run_training(step_s, budget)[2]
    assert progress == sorted(progress)
    assert 0 < progress[0] <= progress[-1] <= 1


@pytest.mark.slow
def test_a_slow_start_takes_nothing_from_the_minutes(project: Path, run: Run) -> None:
    """Twelve seconds of training stay twelve, less those for the results, whatever the imports take."""
    run("example/make_example.py", "--cases", "40")
    run("plan.py", "--minutes", "0.2", "--set", "device=cpu", "max_epochs=1", "folds=1", "network.width=8")
    recipe = project / "recipe.py"
    first = "from __future__ import annotations\n"
    recipe.write_text(recipe.read_text().replace(first, f"{first}import time\ntime.sleep(9)\n", 1))
    assert "validation cases, 10 s" in run("train.py").stdout


@pytest.mark.parametrize(("step_s", "first_s", "scoring_s"), [(0.05, 0.05, 0.0), (0.05, 3.0, 0.4), (0.2, 1.0, 2.0)])
def test_the_steps_that_are_left_follow_the_latest_steps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step_s: float,
    first_s: float,
    scoring_s: float,
) -> None:
    """A slow first step and the scorings so far do not count as steps, so that the number falls steadily."""
    from m3b.training import clock, loop
    from m3b.training.diagnosis.recipe import DiagnosisRecipe
    from m3b.training.recipe import use_recipe

    machine = Machine(step_s)
    for module in (clock, loop):
        monkeypatch.setattr(module, "time", machine)

    class Network(torch.nn.Linear):
        def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": super().forward(pixel_values).square().mean()}

    def work(batch: dict[str, Any]) -> dict[str, Any]:
        machine.now += step_s if training.clock.step else first_s
        return batch

    def score(model: torch.nn.Module, device: torch.device) -> dict[str, float]:
        machine.now += scoring_s
        return {"x": 1.0}

    use_recipe(DiagnosisRecipe())
    plan = {"device": "cpu", "precision": "fp32", "workers": 0, "batch": 2, "lr": 0.1, "weight_decay": 0.0, "dims": 2}
    dataset = [{"pixel_values": torch.ones(1, 4, 4)}] * 20
    parts = loop.TrainingParts(Network(4, 1), dataset, score, [work])
    training = loop.TrainingLoop({**plan, "seed": 0}, tmp_path, clock.Clock(40.0, 10_000), parts, "x", seed=0)
    monkeypatch.setattr(loop, "append_row", lambda file, row: None)
    estimates: list[tuple[int, int]] = []
    report = training.report

    def record_estimate(figures: dict[str, float]) -> None:
        estimates.append((training.clock.step, training.estimate_steps_left()))
        report(figures)

    training.report = record_estimate  # type: ignore[method-assign]
    training.run()
    use_recipe(None)
    assert len(estimates) > 3
    for step, steps_left in estimates:
        assert steps_left == pytest.approx(training.clock.step - step, rel=0.15, abs=10), estimates
    assert "steps left" in capsys.readouterr().out
