"""Shares and their intervals, against independent libraries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.bench import published_results
from m3b.bench.statistics import (
    bootstrap_by_task,
    bootstrap_difference,
    newcombe_interval,
    pass_all_k,
    pass_at_k,
    wilson_interval,
)
from m3b.bench.tasks import load_tasks


def test_the_published_averages_recompute_from_their_cells_but_for_the_one_that_is_noted() -> None:
    """94.29 % is 66 of 70; the printed 4.29 % of one model is 2 of 70 by its cells."""
    totals = {model: (sum(c.successes for c in cells.values()), sum(c.runs for c in cells.values()))
              for model, cells in published_results.load_completion().items()}  # fmt: skip
    protocol = published_results.load_paper()["protocol"]
    assert {runs for _, runs in totals.values()} == {protocol["tasks"] * protocol["runs"]}
    printed = published_results.load_printed_averages()
    off = {model: count for model, (count, runs) in totals.items() if round(100 * count / runs, 2) != printed[model]}
    assert off == {"Gemini-2.0-flash": 2}
    assert any("Gemini-2.0-flash" in note and "2 of 70" in note for note in published_results.load_notes("Table 1"))
    share = wilson_interval(*totals["Claude-3.7-Sonnet"])
    assert (round(100 * share.low, 1), round(100 * share.high, 1)) == (86.2, 97.8)


def test_the_published_systems_recompute_from_their_families() -> None:
    for row in published_results.load_systems():
        assert row.total.runs == 28
        assert round(100 * row.total.interval().value, 2) == row.average_percent, row.name
        assert set(row.mean_costs) == {family for family, count in row.runs.items() if count.successes}, row.name


def test_single_executions_speak_of_the_benchmarks_tasks() -> None:
    tasks = {task.id for task in load_tasks() if task.variant == "plain"}
    for name in published_results.PAPER_NAMES.values():
        number, rows = published_results.load_executions(name)
        assert 5 <= number <= 14
        assert set(rows) == tasks
        assert {len(runs) for runs in rows.values()} == {2}


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_statsmodels(case: tuple[int, int]) -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    low, high = proportion.proportion_confint(*case, method="wilson")
    interval = wilson_interval(*case)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-9)


@given(st.tuples(st.integers(0, 20), st.integers(20, 40), st.integers(0, 20), st.integers(20, 40)))
def test_newcombe_agrees_with_statsmodels(case: tuple[int, int, int, int]) -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    a, n, b, m = case
    low, high = proportion.confint_proportions_2indep(a, n, b, m, compare="diff", method="newcomb")
    interval = newcombe_interval((a, n), (b, m))
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-6)


def test_the_bootstrap_by_task_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(3)
    runs = {
        f"task{k}": (random.random(5) < chance).astype(float).tolist()
        for k, chance in enumerate(np.linspace(0.4, 1, 14))
    }
    means = np.array(
        [np.mean(values) for values in runs.values()]
    )  # tasks of equal size: the mean of means is the mean
    reference = stats.bootstrap(
        (means,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(0)
    )
    interval = bootstrap_by_task(runs, draws=20_000)
    assert interval.value == pytest.approx(means.mean())
    assert (interval.low, interval.high) == pytest.approx(reference.confidence_interval, abs=0.012)


def test_the_paired_difference_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(5)
    tasks = [f"task{k}" for k in range(14)]
    first = {task: (random.random(5) < 0.9).astype(float).tolist() for task in tasks}
    second = {task: (random.random(5) < 0.6).astype(float).tolist() for task in tasks}
    gaps = np.array([np.mean(first[task]) - np.mean(second[task]) for task in tasks])
    reference = stats.bootstrap((gaps,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(0))
    interval = bootstrap_difference(first, second, draws=20_000)
    assert (interval.low, interval.high) == pytest.approx(reference.confidence_interval, abs=0.012)
    back = bootstrap_difference(second, first, draws=20_000)
    assert back.value == pytest.approx(-interval.value)


def test_tasks_make_the_interval_wider_than_runs_do() -> None:
    alike = {f"task{k}": [float(k < 12)] * 5 for k in range(14)}
    clustered, wilson = bootstrap_by_task(alike), wilson_interval(60, 70)
    assert clustered.high - clustered.low > wilson.high - wilson.low


def test_all_alike_is_not_certain() -> None:
    perfect = bootstrap_by_task({f"task{k}": [1.0] * 5 for k in range(14)})
    assert perfect.value == perfect.high == 1.0
    assert 0.7 < perfect.low < 0.8
    difference = bootstrap_difference({"a": [1.0], "b": [1.0]}, {"a": [0.0], "b": [0.0]})
    assert difference.low < 1.0
    assert bootstrap_by_task({"a": [1.0, 0.0]}).low is None
    with pytest.raises(ValueError, match="no runs"):
        bootstrap_by_task({})


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_counts_subsets(case: tuple[int, int, int]) -> None:
    n, c, k = case
    runs = [True] * c + [False] * (n - c)
    subsets = list(itertools.combinations(runs, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_all_k(n, c, k) == pytest.approx(sum(map(all, subsets)) / len(subsets))
