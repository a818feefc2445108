"""Prediction sets hold the true class as often as they say, on cases that were not there when they were made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from m3b.training.diagnosis import answers, prediction_sets


def draw_cases(
    rng: np.random.Generator, count: int, classes: int = 4, multi: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of a model of middling skill, and the truth."""
    if multi:
        truth = rng.random((count, classes)) < 0.3
        logits = np.where(truth, 1.0, -1.5) + rng.normal(0, 1.3, truth.shape)
        return 1 / (1 + np.exp(-logits)), truth.astype(float)
    labels = rng.integers(0, classes, count)
    logits = rng.normal(0, 1.2, (count, classes))
    logits[np.arange(count), labels] += 1.2
    powers = np.exp(logits)
    return powers / powers.sum(1, keepdims=True), np.eye(classes)[labels]


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("held_out_cases", [30, 120])
def test_coverage_on_new_cases(
    held_out_cases: int,
    multi: bool,
) -> None:
    rng = np.random.default_rng(0)
    covered, sizes = [], []
    for _ in range(60):
        scores, truth = draw_cases(rng, held_out_cases, multi=multi)
        fitted_sets = prediction_sets.fit_prediction_sets(
            scores, truth, [f"p{at}" for at in range(held_out_cases)], multi
        )
        new, right = draw_cases(rng, 300, multi=multi)
        in_set = new >= np.array(fitted_sets["cuts"])
        covered.append(in_set[right > 0.5].mean())
        sizes.append(in_set.sum(1).mean())
    assert 0.89 <= np.mean(covered) <= (1 if multi and held_out_cases == 30 else 0.95), np.mean(covered)
    assert multi or np.mean(sizes) < 3.2, "not everything"


def test_images_of_one_patient_do_not_count_as_many() -> None:
    scores, truth = draw_cases(np.random.default_rng(0), 300)
    few_patients = prediction_sets.fit_prediction_sets(scores, truth, [f"p{at % 25}" for at in range(300)], False)
    many_patients = prediction_sets.fit_prediction_sets(scores, truth, [f"p{at}" for at in range(300)], False)
    assert few_patients["patients"] == 25
    assert few_patients["cuts"][0] <= many_patients["cuts"][0]


def test_with_few_patients_no_set_is_promised() -> None:
    scores, truth = draw_cases(np.random.default_rng(0), 60)
    fitted_sets = prediction_sets.fit_prediction_sets(scores, truth, [f"p{at % 19}" for at in range(60)], False)
    assert fitted_sets["unavailable"] == "19 held-out patients; 20 are needed"
    answer = answers.format_answer(config(fitted_sets), np.array([0.6, 0.4]))
    assert "prediction_set" not in answer


def config(sets: dict[str, Any], multi: bool = False) -> dict[str, Any]:
    return {"task": "diagnosis", "classes": ["a", "b"], "multi_label": multi, "thresholds": [0.5, 0.5], "sets": sets}


@pytest.mark.parametrize(
    ("row", "multi", "expected_set", "abstains"),
    [
        ([0.9, 0.1], False, ["a"], False),
        ([0.55, 0.45], False, ["a", "b"], True),
        ([0.9, 0.1], True, ["a"], False),
        ([0.9, 0.35], True, ["a", "b"], True),
        ([0.1, 0.1], True, [], False),
    ],
)
def test_what_is_answered(
    row: list[float],
    multi: bool,
    expected_set: list[str],
    abstains: bool,
) -> None:
    answer = answers.format_answer(config({"level": 0.9, "cuts": [0.3, 0.3]}, multi), np.array(row))
    assert (answer["prediction_set"], answer["set_level"], answer["abstains"]) == (expected_set, 0.9, abstains)
