"""Folds side by side on a processor: when plan.py takes them, and how many there are then."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from template_kit import load

parallel_folds, threads = load("parallel_folds"), load("threads")
FACTS = {"cases": 160, "patients": 160}


def choose_folds(
    monkeypatch: pytest.MonkeyPatch, *, cores: int = 2, alone: float = 0.24, together: float = 0.32, **changes: Any
) -> tuple[dict[str, Any], list[str]]:
    monkeypatch.setattr(parallel_folds, "count_cores", lambda: cores)
    overrides, training_bytes = changes.pop("overrides", set()), changes.pop("training_bytes", 4e8)
    plan: dict[str, Any] = {"folds": 3, "minutes": 25.0, "why_folds": "before", **changes}
    messages = parallel_folds.choose_parallel_folds(
        FACTS, plan, overrides, 1500, lambda _: alone, lambda _, several: together, lambda _: training_bytes
    )
    return plan, messages


def test_two_cores_train_two_folds_at_a_time_and_one_more_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, messages = choose_folds(monkeypatch)
    assert (plan["folds"], plan["processes"]) == (4, 2), "three would leave a core idle half of the time"
    assert plan["why_folds"] == "160 cases, and enough steps in these minutes for 4 networks"
    assert messages == ["2 folds train in parallel: a step takes 0.32 s then, 0.24 s with all cores for one"]


def test_folds_that_were_set_stay_and_are_trained_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, messages = choose_folds(monkeypatch, cores=8, folds=5, overrides={"folds"})
    assert (plan["folds"], plan["processes"], plan["why_folds"]) == (5, 5, "before")
    assert messages


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"together": 0.45}, id="hardly quicker"),
        pytest.param({"cores": 1}, id="one core"),
        pytest.param({"folds": 1}, id="one network"),
        pytest.param({"minutes": 5.0}, id="few minutes"),
        pytest.param({"training_bytes": 3e9}, id="more memory than several may take"),
        pytest.param({"overrides": {"threads"}}, id="threads set by hand"),
        pytest.param({"overrides": {"processes"}, "processes": 1}, id="processes set by hand"),
        pytest.param({"max_steps": 40}, id="a training that repeats exactly"),
        pytest.param({"refit": True}, id="a refit, which is trained alone"),
        pytest.param({"machine": {"gpus": 2, "memory_gb": 24, "here": True, "half": "bf16"}}, id="GPUs"),
    ],
)
def test_else_one_fold_is_trained_after_the_other(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    plan, messages = choose_folds(monkeypatch, **changes)
    assert messages == []
    assert plan["folds"] == changes.get("folds", 3)
    assert plan.get("processes", 1) == 1


def test_steps_made_at_the_same_time_are_timed_in_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    costs, before = load("step_cost"), torch.get_num_threads()
    monkeypatch.setattr(load("entry"), "count_cores", lambda: 2)

    class Toy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Conv2d(1, 4, 3)

        def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
            assert torch.get_num_threads() == 1
            return {"loss": self.inner(pixel_values).square().mean()}

    toy = costs.StepCosts(lambda plan, cases: {"pixel_values": torch.randn(cases, 1, 8, 8)}, lambda _: Toy())
    plan = {"device": "cpu", "precision": "fp32", "dims": 2, "batch": 2, "network": {}, "folds": 3}
    assert 0 < costs.parallel_step_seconds(plan, toy, 2) < 60
    torch.set_num_threads(before)


@pytest.mark.parametrize(("plan", "number"), [({}, 8), ({"folds": 4, "processes": 4}, 2), ({"threads": 3}, 3)])
def test_a_step_of_several_trainings_is_timed_with_the_threads_of_one(
    monkeypatch: pytest.MonkeyPatch, plan: dict[str, Any], number: int
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "count_cores", lambda: 8)
    monkeypatch.setattr(threads, "_free_cores_at_start", lambda: 8)
    threads.use_threads(plan)
    assert torch.get_num_threads() == number
    torch.set_num_threads(before)
