"""Selecting the best of several candidates: successive halving, and the correction of the figure of the winner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from m3b.metrics.selection_bias import (
    Row,
    SelectionSamples,
    choose_survivors,
    select_candidate,
)

PATIENTS = [f"p{number}" for number in range(40)]


def mean_value(rows: Sequence[Row]) -> float:
    return float(np.mean([row["value"] for row in rows]))


def make_samples(columns: Sequence[Sequence[float]], *, draws: int = 60, **options: object) -> SelectionSamples:
    samples = SelectionSamples(PATIENTS, mean_value, draws=draws, **options)  # type: ignore[arg-type]
    for number, column in enumerate(columns, 1):
        samples.add(number, [{"patient": name, "value": v} for name, v in zip(PATIENTS, column, strict=True)])
    return samples


def test_the_correction_removes_the_luck_of_equal_candidates() -> None:
    """Eight candidates whose true figure is 0: the best one looks good, and its correction does not, in the mean.

    None of them is the default, which could not be measured; so the best one is selected.
    """
    estimates = [
        make_samples(np.random.default_rng(seed).normal(size=(8, len(PATIENTS))), seed=seed, default=9).estimate()
        for seed in range(12)
    ]
    error = 1 / np.sqrt(len(PATIENTS) * len(estimates))
    assert np.mean([item.value for item in estimates]) > 4 * error
    assert abs(np.mean([item.corrected for item in estimates])) < 3 * error
    for item in estimates:
        assert item.optimism == pytest.approx(item.value - item.corrected)
        assert item.low < item.corrected < item.high


def test_dropped_candidates_count_in_the_correction() -> None:
    """Of nine equal candidates three go on with the same luck, so the three alone would be corrected too little."""
    optimisms = []
    for seed in range(8):
        columns = np.random.default_rng(seed).normal(size=(9, len(PATIENTS)))
        samples = make_samples(columns, seed=seed, default=10)
        one_rung = samples.estimate().optimism
        for number in choose_survivors(samples.list_figures(), range(1, 10), 0, default=10):
            samples.add(
                number, [{"patient": n, "value": v} for n, v in zip(PATIENTS, columns[number - 1], strict=True)]
            )
        optimisms.append((one_rung, samples.estimate().optimism))
    assert all(after >= before - 1e-12 for before, after in optimisms)


def test_a_clear_winner_is_hardly_corrected() -> None:
    columns = np.random.default_rng(1).normal(size=(3, len(PATIENTS))) + np.array([[0.0], [0.0], [5.0]])
    samples = make_samples(columns)
    estimate = samples.estimate()
    assert samples.select() == 3
    assert abs(estimate.optimism) < 0.05
    gain = samples.gain_over_default()
    assert gain is not None
    assert 0 < gain[1] < gain[0] < gain[2]
    assert samples.expected_gain([1, 2, 3]) == pytest.approx(0, abs=1e-9)
    assert samples.expected_gain([1, 2]) > 0.01


def test_the_default_stays_if_the_best_candidate_is_only_lucky() -> None:
    """Eight equal candidates: the best of the other seven often seems better; corrected, it rarely is."""
    kept, values = 0, []
    for seed in range(30):
        samples = make_samples(np.random.default_rng(seed).normal(size=(8, len(PATIENTS))), seed=seed)
        estimate, lead = samples.estimate(), samples.find_lead()
        kept += samples.select() == 1
        values.append(estimate.corrected)
        if lead is not None:
            assert lead.number == select_candidate(samples.list_figures(), default=1)
            assert (lead.corrected > lead.error) == (samples.select() == lead.number)
            assert lead.corrected < lead.gain
    assert 20 <= kept < 30, "one standard error is exceeded by luck in about one of six"
    assert abs(np.mean(values)) < 3 / np.sqrt(len(PATIENTS) * 30)


@pytest.mark.parametrize(("gain", "selected"), [(0.02, 1), (0.3, 2)])
def test_a_gain_has_to_exceed_its_standard_error(gain: float, selected: int) -> None:
    """Errors of the two differ by 0.3 a patient, so the standard error of the gain is 0.3 / sqrt(40) = 0.047."""
    rng = np.random.default_rng(5)
    noise, difference = rng.normal(size=len(PATIENTS)), rng.normal(size=len(PATIENTS))
    difference = 0.3 * (difference - difference.mean()) / difference.std()
    samples = make_samples(np.stack([noise, noise + difference + gain]), draws=200)
    lead = samples.find_lead()
    assert lead is not None
    assert lead.error == pytest.approx(0.3 / np.sqrt(len(PATIENTS)), rel=0.15)
    assert lead.gain == pytest.approx(gain)
    assert samples.select() == selected
    assert (samples.gain_over_default() is None) == (selected == 1)
    assert samples.estimate().value == pytest.approx(noise.mean() + (gain if selected == 2 else 0))


def test_the_default_is_compared_where_both_were_measured() -> None:
    """The time ended before the default was trained for longer: its shorter training is compared with that of the best one."""
    noise = np.random.default_rng(6).normal(size=len(PATIENTS))
    samples = make_samples(np.stack([noise, noise]))
    samples.add(2, [{"patient": name, "value": value + 1} for name, value in zip(PATIENTS, noise, strict=True)])
    assert samples.find_lead().gain == pytest.approx(0)  # type: ignore[union-attr]
    assert samples.select() == 1


def test_without_the_default_the_best_candidate_is_selected() -> None:
    samples = make_samples(np.array([[0.1] * 40, [0.2] * 40]), default=3)
    assert samples.select() == 2
    assert samples.find_lead() is None


def test_a_gain_is_that_after_the_same_training() -> None:
    """The default went on, the candidate was dropped: they are compared in the rung that both have."""
    noise = np.random.default_rng(2).normal(size=len(PATIENTS))
    samples = make_samples(np.stack([noise, noise + 0.5]))
    samples.add(1, [{"patient": name, "value": 9.0} for name in PATIENTS])
    assert samples.gain_at_equal_time(1) is None
    gain = samples.gain_at_equal_time(2)
    assert gain is not None
    assert gain == pytest.approx((0.5, 0.5, 0.5)), "paired: the noise of the patients is common to both"
    low, high = samples.interval(2) or (0.0, 0.0)
    spread = float(np.std(noise)) / np.sqrt(len(PATIENTS))
    assert low < samples.list_figures()[2][-1] < high
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.4)
    samples.add(2, [{"patient": name, "value": 8.0} for name in PATIENTS])
    samples.add(2, [{"patient": name, "value": 8.0} for name in PATIENTS])
    assert samples.gain_at_equal_time(2) is None, "the default was not measured in the third rung"


def test_an_interval_is_in_the_units_of_the_metric() -> None:
    samples = make_samples(np.random.default_rng(3).normal(5, 1, size=(2, len(PATIENTS))), lower_is_better=True)
    low, high = samples.interval(1) or (0.0, 0.0)
    assert 4 < low < high < 6


def test_smaller_figures_may_be_better() -> None:
    samples = make_samples(np.array([[3.0] * 40, [2.0] * 40]), lower_is_better=True)
    estimate = samples.estimate()
    assert samples.select() == 2
    assert (estimate.value, estimate.corrected, estimate.optimism) == (2.0, 2.0, 0.0)


def test_cases_of_a_patient_are_drawn_together() -> None:
    patients = [name for name in PATIENTS for _ in range(2)]
    samples = SelectionSamples(
        patients, lambda rows: float(len({row["patient"] for row in rows}) * 2 - len(rows)), draws=30
    )
    samples.add(1, [{"patient": name} for name in patients])
    estimate = samples.estimate()
    assert estimate.corrected == 0, "each patient that is left out has both cases there"


def test_too_few_patients_have_no_correction() -> None:
    samples = SelectionSamples(["a", "b", "c"], mean_value, draws=30)
    samples.add(1, [{"patient": name, "value": 1.0} for name in "abc"])
    samples.add(2, [{"patient": name, "value": 2.0} for name in "abc"])
    assert samples.estimate().corrected is None
    assert samples.select() == 1, "no gain can be told from luck"
    assert samples.interval(1) is None
    with pytest.raises(ValueError, match="candidate 2"):
        samples.add(2, [{"patient": name, "value": 1.0} for name in "ab"])


def test_a_third_and_the_default_go_on() -> None:
    figures = {number: [float(number)] for number in range(1, 8)}
    assert choose_survivors(figures, list(figures), 0, default=1) == [7, 6, 5, 1]
    assert choose_survivors({1: [0.5], 2: [0.4]}, [1, 2], 0, default=1) == [1, 2]
    assert choose_survivors({2: [0.5], 3: [float("nan")], 4: [0.1]}, [2, 3, 4], 0, default=1) == [2, 4]


def test_what_was_dropped_is_not_selected() -> None:
    rungs = {1: [0.1, 0.2], 2: [0.9, 0.3], 3: [0.8], 4: [0.2]}
    assert select_candidate(rungs, default=1) == 2
    assert select_candidate({1: [0.5, 0.1], 2: [0.4]}, default=1) == 1, "2 was trained for a shorter time"
    assert select_candidate({1: [0.5], 2: [0.5]}, default=1) == 1
    with pytest.raises(ValueError, match="no candidate"):
        select_candidate({}, default=1)
