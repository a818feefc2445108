"""Grades and numbers: the figures of scikit-learn, image-blind baselines, verdicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics as sk

from m3b.metrics import ClassificationCase, judge
from m3b.tasks.grading import score_grading
from m3b.tasks.regression import RegressionCase, score_regression

GRADES = ["0", "1", "2", "3"]


def graded(truth: list[int], decided: list[int]) -> list[ClassificationCase]:
    flat = {name: 0.25 for name in GRADES}
    return [
        ClassificationCase(str(at), f"p{at}", (GRADES[t],), flat, (GRADES[d],))
        for at, (t, d) in enumerate(zip(truth, decided, strict=True))
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=40))
def test_grades_as_scikit_learn_has_them(pairs: list[tuple[int, int]]) -> None:
    truth, decided = map(list, zip(*pairs, strict=True))
    got = {
        name: metric.value for name, metric in score_grading(graded(truth, decided), GRADES, draws=0).metrics.items()
    }
    if len({*truth, *decided}) > 1:
        assert got["qwk"] == pytest.approx(sk.cohen_kappa_score(truth, decided, weights="quadratic", labels=range(4)))
    assert got["grade_mae"] == pytest.approx(sk.mean_absolute_error(truth, decided))
    assert got["accuracy"] == pytest.approx(sk.accuracy_score(truth, decided))


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=3, max_size=40))
def test_numbers_as_scikit_learn_has_them(pairs: list[tuple[int, int]]) -> None:
    true, predicted = map(list, zip(*pairs, strict=True))
    assume(len(set(true)) > 1)
    cases = [RegressionCase(str(at), f"p{at}", t, f) for at, (t, f) in enumerate(pairs)]
    got = {name: metric.value for name, metric in score_regression(cases, "age (years)", draws=0).metrics.items()}
    assert got["mae"] == pytest.approx(sk.mean_absolute_error(true, predicted))
    assert got["rmse"] == pytest.approx(sk.root_mean_squared_error(true, predicted))
    assert got["r2"] == pytest.approx(sk.r2_score(true, predicted))
    if len(set(predicted)) > 1:
        assert got["pearson"] == pytest.approx(np.corrcoef(true, predicted)[0, 1])
    else:
        assert math.isnan(got["pearson"]), "of a constant answer"


def test_good_grades_are_better_than_the_training_median_and_constant_ones_are_not() -> None:
    truth = [at % 4 for at in range(60)]
    near = [min(3, t + (at % 5 == 0)) for at, t in enumerate(truth)]
    good = score_grading(graded(truth, near), GRADES, constant_grades=["1", "0"])
    assert good.primary.name == "qwk"
    assert good.primary.baseline == 0.0
    assert good.metrics["grade_mae"].baseline == 1.0, "the median of four grades, not the worse of the two answers"
    assert judge(good, None).ok
    assert not judge(score_grading(graded(truth, [1] * 60), GRADES, constant_grades=["1", "0"]), None).ok


@pytest.mark.parametrize(("noise", "ok"), [(4.0, True), (200.0, False)])
def test_numbers_are_judged_by_the_training_median(noise: float, ok: bool) -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(20, 200, 60)
    cases = [RegressionCase(str(at), f"p{at}", float(t), float(t + rng.normal(0, noise)), (float(t) - 9, float(t) + 1))
             for at, t in enumerate(true)]  # fmt: skip
    scores = score_regression(cases, "bone age (months)", constant_values=[110.0, 112.0], level=0.9)
    assert judge(scores, None).ok is ok
    assert scores.primary.baseline == pytest.approx(min(np.abs(true - 110).mean(), np.abs(true - 112).mean()))
    details: dict[str, Any] = dict(scores.details)
    assert details["intervals"]["held"] == 1.0
    assert details["limits_of_agreement"][0] < details["bias"] < details["limits_of_agreement"][1]


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        score_regression([RegressionCase("a", "p", 1.0, math.nan)], "age (years)")
