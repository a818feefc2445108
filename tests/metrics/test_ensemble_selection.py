"""The average of the best candidates of a search: when it is better than the best one, and by how much its figure is too good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from m3b.metrics.ensemble_selection import MAX_AVERAGED, EnsembleChoice, EnsembleSelection
from m3b.metrics.selection_bias import Row, SelectionSamples, choose_survivors

PATIENTS = [f"p{number}" for number in range(60)]


def mean_square(rows: Sequence[Row]) -> float:
    """The figure: minus the mean squared error of the values, whose truth is 0."""
    return -float(np.mean([row["value"] ** 2 for row in rows]))


def mean_of(parts: Sequence[Sequence[Row]]) -> list[Row]:
    return [{**rows[0], "value": float(np.mean([row["value"] for row in rows]))} for rows in zip(*parts, strict=True)]


def make_rows(values: Sequence[float]) -> list[Row]:
    return [{"patient": name, "value": float(value)} for name, value in zip(PATIENTS, values, strict=False)]


def make_selection(
    rungs: Sequence[Mapping[int, Sequence[float]]],
    groups: Mapping[int, str] | None = None,
    seed: int = 0,
    patients: int = 60,
) -> EnsembleSelection:
    """The candidates of each rung with the errors of their cases."""
    samples = SelectionSamples(PATIENTS[:patients], mean_square, draws=60, seed=seed)
    for rung in rungs:
        for number, values in rung.items():
            samples.add(number, make_rows(values[:patients]))
    return EnsembleSelection(samples, mean_of, dict.fromkeys(rungs[0], "2D") if groups is None else groups)


def search(errors: Mapping[int, Sequence[float]], factor: float, seed: int = 0) -> EnsembleSelection:
    """A search of two rungs; errors are larger by a factor after the first one, whose best third goes on."""
    selection = make_selection([{n: [factor * e for e in row] for n, row in errors.items()}], seed=seed)
    samples = selection.samples
    for number in choose_survivors(samples.list_figures(), list(errors), 0, default=1):
        samples.add(number, make_rows(errors[number]))
    return EnsembleSelection(samples, mean_of, dict.fromkeys(errors, "2D"))


def draw_errors(count: int, seed: int = 0, spread: float = 1.0) -> dict[int, Sequence[float]]:
    """Errors of candidates that are independent of each other."""
    values = np.random.default_rng(seed).normal(0, spread, (count, len(PATIENTS)))
    return {number: list(row) for number, row in enumerate(values, 1)}


def choose(selection: EnsembleSelection) -> EnsembleChoice:
    choice = selection.choose()
    assert choice is not None
    return choice


def test_candidates_that_err_independently_are_averaged() -> None:
    errors = draw_errors(9)
    selection = search(errors, 1.1)
    choice = choose(selection)
    assert choice.pays
    assert len(choice.candidates) == MAX_AVERAGED
    assert choice.candidates[0] == selection.samples.select()
    assert 0 < choice.low < choice.gain < choice.high
    best = mean_square(selection.samples.list_rows(choice.candidates[0])[-1])
    assert choice.value == pytest.approx(mean_square(mean_of([make_rows(errors[n]) for n in choice.candidates])))
    assert choice.gain <= choice.value - best, "the gain is corrected for the selection"
    assert choice.equal_time_gain > 0


def test_equal_candidates_are_not_averaged() -> None:
    errors = [round(8 * error) / 8 for error in draw_errors(1)[1]]  # whose mean is exact
    choice = choose(make_selection([dict.fromkeys((1, 2, 3), errors)] * 2))
    assert not choice.pays
    assert (choice.gain, choice.low, choice.high) == (0, 0, 0)
    assert len(choice.candidates) == 2, "among equals, the average of fewer"


def test_an_average_that_is_worse_in_equal_time_does_not_pay() -> None:
    """A training that is three times as long makes the errors a third, so that one long training is better than three short ones."""
    choice = choose(search(draw_errors(9), 3.0))
    assert choice.low > 0
    assert choice.equal_time_gain < 0
    assert not choice.pays


def test_where_nothing_can_be_averaged() -> None:
    errors = draw_errors(3)
    assert make_selection([errors]).choose() is None, "of one rung, nothing is known about equal time"
    assert make_selection([errors, errors], {1: "a", 2: "b", 3: "c"}).choose() is None
    assert make_selection([errors, errors], {}).choose() is None
    assert make_selection([errors, errors], patients=9).choose() is None
    best = make_selection([errors, errors]).samples.select()
    other_numbers = [number for number in errors if number != best]
    assert make_selection([errors, errors], dict.fromkeys(other_numbers, "2D")).choose() is None, (
        "the best one cannot be averaged"
    )


def test_smaller_figures_may_be_better() -> None:
    errors = draw_errors(2)
    samples = SelectionSamples(PATIENTS, lambda rows: -mean_square(rows), lower_is_better=True, draws=60)
    for number, values in [*errors.items(), *errors.items()]:
        samples.add(number, make_rows(values))
    selection = EnsembleSelection(samples, mean_of, dict.fromkeys(errors, "2D"))
    choice = choose(selection)
    assert choice.pays
    estimate = selection.estimate(choice, is_average=True)
    assert 0 < choice.value == estimate.value < estimate.corrected
    assert estimate.low < estimate.corrected < estimate.high


def test_the_optimism_includes_the_choice_of_the_average() -> None:
    """Of nine equally good candidates the luckiest are averaged: the figure of their mean is corrected to its true value, -1/3."""
    values, corrected = [], []
    for seed in range(10):
        errors = draw_errors(9, seed=seed)
        selection = search(errors, 1.0, seed)
        choice = choose(selection)
        assert choice.pays
        assert len(choice.candidates) == MAX_AVERAGED
        estimate = selection.estimate(choice, is_average=True)
        assert estimate.optimism >= selection.samples.estimate().optimism
        assert estimate.value == choice.value
        assert estimate.optimism == pytest.approx(estimate.value - estimate.corrected)
        assert estimate.low < estimate.corrected < estimate.high
        values.append(estimate.value)
        corrected.append(estimate.corrected)
    assert np.mean(corrected) < np.mean(values)
    assert np.mean(corrected) < -1 / 3 + 3 * np.sqrt(2) / 3 / np.sqrt(10 * len(PATIENTS)), "no better than the truth"


def test_an_average_that_is_not_taken_leaves_the_figure_of_the_best_candidate() -> None:
    errors = draw_errors(1)[1]
    selection = make_selection([dict.fromkeys((1, 2), errors)] * 2)
    choice = choose(selection)
    estimate, single = selection.estimate(choice, is_average=False), selection.samples.estimate()
    assert estimate.value == single.value
    assert estimate.optimism >= single.optimism
    assert selection.estimate(None, is_average=False) == single
