"""The erring model of `benchmarks/weak_errors.py`: each of its errors is mended by what m3b says, and not without."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "weak_errors.py"
FAST = ("wrong metric key", "test cases in training")
ENDLESS = ("loops", "loops again")


def load_benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("weak_errors", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["weak_errors"] = module
    spec.loader.exec_module(module)
    return module


weak_errors = load_benchmark()


class Even(random.Random):
    """Draws 0.8: what is told is heeded, nothing is mended by luck, and no proposal is taken."""

    def random(self) -> float:
        return 0.8


def run_with(error: Any, spots: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *, with_messages: bool) -> Any:
    monkeypatch.setattr(weak_errors, "draw_errors", lambda seed: [error])
    monkeypatch.setattr(weak_errors.random, "Random", Even)
    monkeypatch.setattr(weak_errors, "MAX_ACTIONS", 15)
    return weak_errors.run(0, spots, out, with_messages=with_messages)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(error, id=error.name, marks=() if error.name in FAST else pytest.mark.slow)
        for error in weak_errors.ERRORS
    ],
)
def test_each_error_is_named_to_the_model(
    spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    informed_run = run_with(error, spots, tmp_path / "with", monkeypatch, with_messages=True)
    assert (informed_run.result.status, informed_run.mended[error.name]) == ("completed", 1), informed_run.result.reason
    uninformed_run = run_with(error, spots, tmp_path / "without", monkeypatch, with_messages=False)
    named_by_its_script = error.name == "invented paths"
    assert uninformed_run.result.status != "completed" or named_by_its_script
    assert uninformed_run.mended[error.name] == int(uninformed_run.result.status == "completed")
    assert (uninformed_run.result.status == "out_of_budget") == (error.name in ENDLESS)


def test_runs_of_a_seed_draw_the_same_errors() -> None:
    error_names = [[error.name for error in weak_errors.draw_errors(seed)] for seed in range(40)]
    assert error_names == [[error.name for error in weak_errors.draw_errors(seed)] for seed in range(40)]
    assert {name for names in error_names for name in names} == {error.name for error in weak_errors.ERRORS}
