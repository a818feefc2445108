"""The average of a search's best candidates: which plans can be averaged, the plan of the last training, and what is recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from m3b.agents.search_table import describe_selection
from m3b.data.index import Index
from m3b.facts import PlanCandidate, PlanEnsemble, SearchSummary
from m3b.metrics.selection_bias import Row, SelectionSamples
from m3b.resources import copy_template
from m3b.run.plan_ensemble import (
    group_plans,
    has_averaging_scripts,
    is_ensemble_missing,
    make_ensemble_plan,
    make_ensemble_selection,
    summarize_ensemble,
)
from m3b.tasks import get_family
from m3b.training.folds import list_recipe_plans

PLAN: dict[str, Any] = {
    "task": "diagnosis",
    "size": [64, 64],
    "network": {"name": "small_cnn", "width": 16, "dropout": 0.4},
    "lr": 0.001,
    "weight_decay": 0.1,
    "augment": {"rotate": 10, "flip": []},
    "folds": 1,
    "cross_validation": False,
    "max_steps": 90,
    "expected": {"steps": 300, "epochs": 3.0, "epoch_steps": 100},
    "minutes": 9.0,
}
COMPARED = {"folds": 3, "cross_validation": True}
WIDE = {"network": {**PLAN["network"], "width": 32}, "batch": 8}
PLANS = {1: {**PLAN, **COMPARED}, 2: {**PLAN, **COMPARED, "lr": 0.003}, 3: {**PLAN, **COMPARED, **WIDE, "minutes": 8.9}}


def test_plans_with_the_same_input_are_a_group() -> None:
    further_plans = {
        4: {**PLANS[1], "size": [48, 48]},
        5: {**PLANS[1], "network": {**PLAN["network"], "pretrained": "x/y"}},
        6: {**PLANS[1], "refit": True},
        7: {"lr": 0.1, "folds": 2},
        8: {**PLANS[1], "augment": {"flip": ["w"]}},
        9: {**PLANS[1], "processes": 2},
    }
    groups = group_plans({**PLANS, **further_plans})
    assert set(groups) == {1, 2, 3, 4, 8}
    assert groups[1] == groups[2] == groups[3]
    assert len({groups[1], groups[4], groups[8]}) == 3


def test_the_plan_of_an_average_has_the_folds_and_steps_of_the_plan() -> None:
    combined = make_ensemble_plan(PLAN, (1, 2, 3), PLANS)
    assert combined["recipes"] == {"settings": [{}, {"lr": 0.003}, WIDE]}
    assert combined["folds"] == 1
    assert combined["max_steps"] == PLAN["max_steps"], "what the user fixed stays"
    assert combined["expected"] == {"steps": 100.0, "epochs": 1.0, "epoch_steps": 100}
    plans = list_recipe_plans(combined)
    assert [(plan["lr"], plan["network"]["width"], plan["max_steps"]) for plan in plans] == [
        (0.001, 16, 30), (0.003, 16, 30), (0.001, 32, 30)
    ]  # fmt: skip
    assert not any("recipes" in plan for plan in plans)
    assert list_recipe_plans(PLAN) == [PLAN]


@pytest.mark.parametrize("change", [{"size": [48, 48]}, {"refit": True}, {"seed": 3}])
def test_a_last_plan_unlike_the_compared_one_is_not_combined(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"input|refit"):
        make_ensemble_plan({**PLAN, **change}, (1, 2), PLANS)


def test_only_scripts_of_the_template_train_averages(tmp_path: Path) -> None:
    work = tmp_path / "work"
    copy_template("diagnosis", work)
    assert has_averaging_scripts(work, get_family("grading"))
    assert not has_averaging_scripts(work, get_family("segmentation"))
    (work / "recipe.py").write_text("class Recipe: ...")
    assert has_averaging_scripts(work, get_family("grading")), "a project may change its recipe"
    (work / "train.py").write_text("print('another training')")
    assert not has_averaging_scripts(work, get_family("grading"))
    assert not has_averaging_scripts(tmp_path, get_family("diagnosis"))


def make_rows(noise: float, generator: np.random.Generator) -> list[Row]:
    """Cases of eighty patients with a logit for their class and noise."""
    rows = []
    for number in range(80):
        logit = (1 if number % 2 else -1) + noise * generator.normal()
        p = float(1 / (1 + np.exp(-logit)))
        label, decided = ("b" if number % 2 else "a"), ("b" if p >= 0.5 else "a")
        rows.append({"image": f"{number}.png", "patient": f"p{number}", "labels": [label], "decided": [decided],
                     "probabilities": {"a": 1 - p, "b": p}})  # fmt: skip
    return rows


def measure_auroc(rows: Sequence[Row]) -> float:
    """The share of pairs of a case of each class in which the right one has the larger probability."""
    parts = [np.array([row["probabilities"]["b"] for row in rows if row["labels"] == [name]]) for name in "ab"]
    return float(np.mean(parts[1][:, None] > parts[0])) if min(map(len, parts)) else math.nan


def make_samples(parts: Sequence[Sequence[Sequence[Row]]]) -> SelectionSamples:
    """The candidates of each rung, with their AUROC."""
    samples = SelectionSamples([str(row["patient"]) for row in parts[0][0]], measure_auroc, draws=40)
    for rung in parts:
        for number, rows in enumerate(rung, 1):
            samples.add(number, rows)
    return samples


def summarize(samples: SelectionSamples, work: Path, index: Index) -> SearchSummary:
    selection = make_ensemble_selection(samples, get_family("diagnosis"), index, PLANS, work)
    choice = selection.choose()
    ensemble = summarize_ensemble(choice)
    estimate = selection.estimate(choice, is_average=ensemble is not None and ensemble.selected)
    return SearchSummary(
        metric="auroc", selected=samples.select(), value=estimate.value, corrected=estimate.corrected, low=estimate.low,
        high=estimate.high, optimism=estimate.optimism, ensemble=ensemble,
        candidates=tuple(PlanCandidate(number=n, source="table", settings={"lr": n}, value=0.8) for n in PLANS),
    )  # fmt: skip


def test_answers_on_held_out_cases_decide_on_the_average(tmp_path: Path) -> None:
    work, index, generator = tmp_path / "work", Index((), (), ("a", "b")), np.random.default_rng(0)
    copy_template("diagnosis", work)
    independent = [[make_rows(1.6, generator) for _ in PLANS] for _ in range(2)]
    summary = summarize(make_samples(independent), work, index)
    assert summary.ensemble is not None
    assert summary.ensemble.selected
    assert summary.ensemble.low > 0
    assert summary.value == summary.ensemble.value
    assert summary.optimism == pytest.approx(summary.value - summary.corrected)
    assert SearchSummary.model_validate(json.loads(json.dumps(summary.to_json()))) == summary
    text = describe_selection(summary)
    assert text.startswith("The average of candidates ")
    assert f"{summary.ensemble.gain:+.3f}" in text
    identical = [[independent[0][0]] * len(PLANS)] * 2
    summary = summarize(make_samples(identical), work, index)
    assert summary.ensemble is not None
    assert not summary.ensemble.selected
    assert describe_selection(summary).startswith("Candidate 1 of 3 was selected")
    (work / "export.py").write_text("print('another export')")
    assert summarize(make_samples(independent), work, index).ensemble is None


def test_a_model_without_the_recipes_is_noticed(tmp_path: Path) -> None:
    ensemble = PlanEnsemble(
        candidates=(2, 1), value=0.9, gain=0.1, low=0.05, high=0.2, equal_time_gain=0.1, selected=True
    )
    summary = SearchSummary(metric="auroc", ensemble=ensemble)
    assert is_ensemble_missing(summary, tmp_path)
    (tmp_path / "Deliver").mkdir()
    for plan, is_missing in (({"recipes": {"settings": [{}, {"lr": 0.003}]}}, False), ({"lr": 0.1}, True), ([], True)):
        (tmp_path / "Deliver/config.json").write_text(json.dumps({"plan": plan}))
        assert is_ensemble_missing(summary, tmp_path) is is_missing
    assert not is_ensemble_missing(None, tmp_path)
    assert not is_ensemble_missing(SearchSummary(metric="auroc"), tmp_path)
