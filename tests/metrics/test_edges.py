"""Intervals of perfect figures, and of figures just below."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from m3b.metrics import ClassificationCase, judge
from m3b.metrics.edges import largest_loss, largest_unseen_share, share_edges, widen
from m3b.metrics.masks import LabelMetrics
from m3b.tasks.diagnosis import score_diagnosis
from m3b.tasks.grading import score_grading
from m3b.tasks.segmentation import SegmentationCase, score_segmentation

_spec = importlib.util.spec_from_file_location(
    "coverage_benchmark", Path(__file__).parents[2] / "benchmarks/coverage.py"
)
assert _spec is not None
assert _spec.loader is not None
_benchmark = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _benchmark
_spec.loader.exec_module(_benchmark)
SIMULATIONS, coverage, several = _benchmark.SIMULATIONS, _benchmark.coverage, _benchmark.several

GRADES = ("0", "1", "2", "3", "4")


def graded(n: int) -> list[ClassificationCase]:
    return [
        ClassificationCase(str(i), "", (str(i % 5),), {grade: float(grade == str(i % 5)) for grade in GRADES})
        for i in range(n)
    ]


def five_findings(n: int, counts: tuple[int, ...]) -> list[ClassificationCase]:
    names = ("a", "b", "c", "d", "e")
    starts = np.cumsum((0, *counts))
    rows = [tuple(name for k, name in enumerate(names) if starts[k] <= i < starts[k + 1]) for i in range(n)]
    return [
        ClassificationCase(str(i), "", row, {name: 0.9 if name in row else 0.1 for name in names})
        for i, row in enumerate(rows)
    ]


def test_equal_stakes_give_the_exact_binomial_limit() -> None:
    assert largest_loss(np.full(30, 1 / 30)) == pytest.approx(1 - 0.025 ** (1 / 30))
    assert largest_unseen_share(30) == pytest.approx(1 - 0.025 ** (1 / 30))


def test_no_chances_of_a_right_answer_lose_more_than_the_limit() -> None:
    rng = np.random.default_rng(0)
    stakes = rng.dirichlet(np.full(12, 0.5))
    bound = largest_loss(stakes)
    for _ in range(2000):
        chances = np.exp(math.log(0.025) * rng.dirichlet(np.full(12, rng.choice([0.1, 1.0, 10.0]))))
        assert stakes @ (1 - chances) <= bound + 1e-9


def test_five_findings_the_rarest_of_two_patients() -> None:
    scores = score_diagnosis(five_findings(52, (2, 5, 10, 12, 15)), ("a", "b", "c", "d", "e"), True)
    assert scores.primary.value == 1
    assert 0.5 < (scores.primary.low or 0) < 0.9
    assert (scores.metrics["specificity"].low or 0) > 0.9, "each finding has 37 negatives or more"
    assert judge(scores, (0.8, None)).ok
    assert [row.auroc.low for row in scores.per_class] == pytest.approx([0.025 ** (1 / m) for m in (2, 5, 10, 12, 15)])


def test_a_perfect_kappa_is_accepted_and_three_patients_are_too_few() -> None:
    scores = score_grading(graded(42), GRADES, constant_grades=["2"])
    assert scores.primary.value == 1
    assert 0.5 < (scores.primary.low or 0) < 0.025 ** (1 / 42)
    assert judge(scores, None).ok
    assert all(metric.low is not None for metric in scores.metrics.values())
    small_verdict = judge(score_grading(graded(3), GRADES, constant_grades=["1"]), None)
    assert not small_verdict.ok
    assert small_verdict.is_open
    assert "3 test" in small_verdict.reason
    assert not judge(scores, (0.8, 0.9)).is_open


def test_just_below_an_edge_an_interval_is_no_narrower_than_there() -> None:
    assert widen(0.98, 1.0, share_edges(0.1)) == (0.9, 1.0)
    assert widen(0.85, 1.0, share_edges(0.1)) == (0.85, 1.0)
    assert widen(0.97, 0.98, share_edges(0.1)) == (0.97, 0.98)

    def low(wrong: int) -> float:
        values = [0.9 if i < wrong else 1.0 for i in range(30)]
        rows = [SegmentationCase(str(i), "", {"a": LabelMetrics(v, v, 0.0, 9, 9, 50.0)}) for i, v in enumerate(values)]
        return score_segmentation(rows, ("a",)).primary.low or 0

    assert low(1) <= low(0)


def test_a_mean_below_the_edge_knows_that_its_perfect_labels_may_fail() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        scores = several(rng, 52, 0.01, 300, together=False)
        perfect = [row.auroc for row in scores.per_class if row.auroc.value == 1]
        if 0 < len(perfect) < 5:
            break
    assert 0.9 < scores.primary.value < 1
    assert perfect
    min_loss = max(1 - (row.low or 0) for row in perfect) / 5
    assert scores.primary.value - (scores.primary.low or 0) >= min_loss


@pytest.mark.parametrize("name", SIMULATIONS)
def test_intervals_just_below_a_perfect_figure_hold_the_true_one(name: str) -> None:
    """Of 30 sets at 97.5 % three or more miss in 4 %, five or more in 0.1 %."""
    assert coverage(name, 30, 0.01, 30, 100).covered_share >= 26 / 30


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0.0, 0.001, 0.01])
@pytest.mark.parametrize("n", [20, 52])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_coverage_is_about_93_percent(name: str, n: int, wrong: float) -> None:
    """Two standard errors of 300 sets are 3 points."""
    assert coverage(name, n, wrong, 300, 300).covered_share >= 0.90
