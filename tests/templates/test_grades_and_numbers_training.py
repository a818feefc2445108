"""The diagnosis template on grades and on numbers: its parts, and a training of a few steps each."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from template_kit import Run


@pytest.fixture
def parts() -> ModuleType:
    return importlib.import_module("m3b.training.diagnosis.targets")


def test_a_loss_of_grades_costs_what_lies_further_off_more(parts: ModuleType) -> None:
    import torch

    loss = importlib.import_module("m3b.training.diagnosis.loss").build_loss(
        {"task": "grading", "classes": list("0123")}
    )
    truth = torch.eye(4)[[0]]
    costs = [float(loss(8.0 * torch.eye(4)[[k]], truth)) for k in range(4)]
    assert costs == sorted(costs)
    assert costs[0] < 0.01
    assert torch.isfinite(loss(torch.tensor([[500.0, -500.0, 0.0, 0.0]]), truth))


def test_grades_are_decided_by_the_middle_of_the_probabilities(parts: ModuleType) -> None:
    grade_of = importlib.import_module("m3b.training.diagnosis.grade_rules").decide_grades
    row = np.array([[0.40, 0.05, 0.10, 0.45], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert grade_of(row, "mode").tolist() == [3, 0, 3]
    assert grade_of(row, "median").tolist() == [2, 0, 3]
    assert grade_of(row, "mean").tolist() == [2, 0, 3]


def test_the_last_line_tells_which_classes_are_never_found(parts: ModuleType) -> None:
    labels = np.eye(3)[[0, 0, 1, 1, 2]]
    logits = 9.0 * np.eye(3)[[0, 0, 0, 2, 2]]
    plan = {"task": "grading", "classes": ["low", "mid", "high"], "multi_label": False}
    for task in ("grading", "diagnosis"):
        kind = parts.get_target({**plan, "task": task})
        recall = kind.recall(logits, labels)
        assert recall == {"low": "2 of 2", "mid": "0 of 2", "high": "1 of 1"}
        figures = dict.fromkeys(("qwk", "grade_mae", "accuracy", "auroc", "balanced_accuracy"), 0.5)
        errors = dict.fromkeys(("ece_before", "ece_after"), 0.1)
        description = kind.describe(
            {"validation": figures, "calibration": errors, "recall": recall}, "5 held-out cases"
        )
        assert "recall of each class before calibration: low: 2 of 2, mid: 0 of 2, high: 1 of 1" in description
    several = parts.get_target({**plan, "task": "diagnosis", "multi_label": True})
    assert several.recall(np.array([[5.0, 5.0, -5.0]]), np.array([[1.0, 0.0, 1.0]])) == {
        "low": "1 of 1",
        "mid": "0 of 0",
        "high": "0 of 1",
    }
    number = {"task": "regression", "classes": [], "multi_label": False, "number": {"centre": 0.0, "scale": 1.0}}
    assert parts.get_target(number).recall(np.zeros((2, 1)), np.zeros((2, 1))) == {}


def test_the_accuracy_as_delivered_is_that_of_the_delivered_rule(parts: ModuleType) -> None:
    """A run said the accuracy of the likeliest grade, but the delivered model decided for the median."""
    truth = np.arange(45) % 5  # too few of each grade for a bias of its own
    unsure = np.log([0.40, 0.04, 0.10, 0.04, 0.42])  # of the two ends, whose median is in the middle
    logits = np.where((truth == 2)[:, None], unsure, 3.0 * np.eye(5)[truth])
    logits += np.random.default_rng(0).normal(0, 0.1, logits.shape)
    target = parts.get_target({"task": "grading", "classes": list("01234"), "multi_label": False})
    fitted = target.calibrate(logits, np.eye(5)[truth], [str(number) for number in range(45)])
    assert fitted["decide"] != "mode"
    scores = importlib.import_module("m3b.training.diagnosis.calibration")
    calibrated = scores.probabilities(scores.apply_calibration(logits, fitted), False)
    decided = importlib.import_module("m3b.training.diagnosis.answers").decide_grades(calibrated, fitted["decide"])
    figures = fitted["figures"]
    assert figures["accuracy"] == pytest.approx((decided == truth).mean(), abs=0.02)
    assert (calibrated.argmax(axis=1) == truth).mean() < (decided == truth).mean() - 0.1
    assert figures["grade_mae"] == pytest.approx(np.abs(decided - truth).mean(), abs=0.03)
    described = importlib.import_module("m3b.training.diagnosis.grading").describe_grades(figures)
    assert str(figures["accuracy"]) in described
    assert str(figures["constant_accuracy"]) in described


def test_intervals_hold_what_they_promise(parts: ModuleType) -> None:
    reach = importlib.import_module("m3b.training.diagnosis.regression").fit_interval
    rng = np.random.default_rng(0)
    coverages = []
    for _ in range(400):
        errors = rng.normal(0, 3, 30)
        coverages.append((np.abs(rng.normal(0, 3, 50)) <= reach(errors)[0]).mean())
    assert 0.88 < np.mean(coverages) < 0.95
    assert reach(np.arange(40.0))[1] == 0.9
    assert reach(np.arange(3.0)) is None


def test_an_interval_of_few_cases_promises_less(parts: ModuleType) -> None:
    """With eight held-out cases no interval was told at all."""
    reach = importlib.import_module("m3b.training.diagnosis.regression").fit_interval
    assert reach(np.arange(8.0)) == (7.0, 0.889)
    rng = np.random.default_rng(1)
    coverages = [np.mean(np.abs(rng.normal(0, 3, 50)) <= reach(rng.normal(0, 3, 5))[0]) for _ in range(2000)]
    assert 0.81 < np.mean(coverages) < 0.86, "five of six"


def test_so_few_cases_that_one_part_of_them_tells_nothing_get_folds(project: Path, run: Run) -> None:
    """Of 31 cases one network held out five, since 700 steps are not three times 250; they are 175 epochs."""
    run("example/make_example.py", "--cases", "31")
    slow = (
        "from m3b.training.diagnosis import plan; plan.step_seconds = lambda _: 0.12; "
        "plan.main(['--minutes', '2', '--set', 'precision=fp32', 'device=cpu'])"
    )
    printed = run("-c", slow).stdout
    plan = json.loads((project / "plan.json").read_text())
    assert plan["folds"] >= 3, printed
    assert f"enough steps in these minutes for {plan['folds']} networks" in printed


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("grading", {"probabilities", "prediction"}),
        pytest.param("regression", {"value", "interval", "interval_level"}, marks=pytest.mark.slow),
    ],
)
def test_from_data_to_prediction(project: Path, run: Run, task: str, keys: set[str]) -> None:
    run("example/make_example.py", "--cases", "120", "--task", task)
    run("plan.py", "--minutes", "1", "--set", "device=cpu", "network.width=8", "max_steps=12", "folds=1", "threads=1")
    plan = json.loads((project / "plan.json").read_text())
    assert plan["task"] == task
    assert "done: validation" in run("train.py").stdout
    run("export.py")
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert ("grade" if task == "grading" else "value") in rows[0]
    run("Deliver/predict.py", "data/example/case_000.png", "data/example/gone.png", "-o", "out.json", check=False)
    answer, missing = json.loads((project / "out.json").read_text())
    assert set(answer) - {"why"} == {"image", "out_of_distribution", *keys}
    assert "error" in missing
    code = (
        "import sys, json; sys.path.insert(0, 'Deliver'); import parts\n"
        "module = parts.parts()['model']['module']; [(x,)] = parts.examples(['data/example/case_000.png'])['model']\n"
        "print(json.dumps(parts.answer(module(x)[0])))"
    )
    graph = json.loads(run("-c", code).stdout.splitlines()[-1])
    predicted = answer["value"] if task == "regression" else answer["probabilities"]["2"]
    assert (graph["value"] if task == "regression" else graph["probabilities"]["2"]) == pytest.approx(
        predicted, rel=1e-3, abs=1e-3
    )
