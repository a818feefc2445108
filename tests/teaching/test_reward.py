"""The reward of episodes, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from toy_world import Brush, targets

from m3b.errors import UsageError
from m3b.interactive.episode import Episode
from m3b.interactive.segmenter import BoxPrompt, Point
from m3b.interactive.targets import compute_overlap
from m3b.teaching.reward import EpisodeOutcome, RewardWeights

RISING = EpisodeOutcome(dice=(0.6, 0.8), iou=(0.4, 0.7), delivered=(0.8, 0.7), stopped=True)
FELL = EpisodeOutcome(dice=(0.8, 0.6), iou=(0.7, 0.4), delivered=(0.6, 0.4), stopped=True)
ONE_TURN = EpisodeOutcome(dice=(0.8,), iou=(0.7,), delivered=(0.8, 0.7), stopped=True)


def test_one_mask_earns_its_quality_alone() -> None:
    score = RewardWeights().score(ONE_TURN)
    assert (score.form, score.gain, score.overshoot, score.turns) == (1.0, 0.0, 0.0, 1)
    assert score.quality == pytest.approx(0.75)
    assert score.total == pytest.approx(0.2 + 0.8 * 0.75)


def test_what_later_turns_gain_counts_and_costs() -> None:
    """Quality 0.75, gain 0.3, two turns: 0.75 + 0.1 * 0.3 - 0.01 * 2 = 0.76."""
    score = RewardWeights().score(RISING)
    assert score.gain == pytest.approx(0.3)
    assert score.result == pytest.approx(0.76)
    assert score.total == pytest.approx(0.2 + 0.8 * 0.76)


def test_a_mask_that_was_better_before_costs() -> None:
    """Quality 0.5, overshoot 0.3, two turns: 0.5 - 0.3 - 0.02 = 0.18."""
    score = RewardWeights().score(FELL)
    assert score.overshoot == pytest.approx(0.3)
    assert score.result == pytest.approx(0.18)


def test_gain_sums_the_steps_that_rise_alone() -> None:
    """0.2 to 0.5, down to 0.3, up to 0.6: 0.3 + 0.3; the best is delivered."""
    outcome = EpisodeOutcome((0.3, 0.7, 0.5, 0.7), (0.2, 0.5, 0.3, 0.6), (0.75, 0.6), True)
    score = RewardWeights().score(outcome)
    assert score.gain == pytest.approx(0.6)
    assert score.result == pytest.approx(0.675 + 0.06 - 0.04)


def test_the_result_stays_between_0_and_1() -> None:
    lost = EpisodeOutcome((0.9, 0.0), (0.9, 0.0), (0.0, 0.0), True)
    assert RewardWeights().score(lost).result == 0
    perfect = EpisodeOutcome((0.9, 1.0), (0.8, 1.0), (1.0, 1.0), True)
    assert RewardWeights().score(perfect).result == 1


@pytest.mark.parametrize(
    ("iou", "stopped", "form"), [((0.5,), True, 1.0), ((0.5,), False, 0.5), ((), True, 0.5), ((), False, 0.0)]
)
def test_form_is_a_prompt_and_a_stop(iou: tuple[float, ...], stopped: bool, form: float) -> None:
    assert RewardWeights().score(EpisodeOutcome(iou, iou, (0.0, 0.0), stopped)).form == form


def test_nothing_delivered_earns_its_form_alone() -> None:
    assert RewardWeights().score(EpisodeOutcome((), (), (0.0, 0.0), True)).total == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("weights", "total"),
    [
        ({"form": 0.0}, 0.8 * 0.76),
        ({"form": 1.0, "result": 0.0}, 1.0),
        ({"dice": 1.0, "iou": 0.0}, 0.2 + 0.8 * 0.81),
        ({"dice": 0.0, "iou": 1.0}, 0.2 + 0.8 * 0.71),
        ({"gain": 0.5}, 0.2 + 0.8 * (0.75 + 0.15 - 0.02)),
        ({"turn": 0.1}, 0.2 + 0.8 * (0.75 + 0.03 - 0.2)),
    ],
)
def test_each_weight_is_a_setting(weights: dict[str, float], total: float) -> None:
    assert RewardWeights(**weights).score(RISING).total == pytest.approx(total)


def test_overshoot_and_faults_have_weights_too() -> None:
    assert RewardWeights(overshoot=0.5).score(FELL).result == pytest.approx(0.5 - 0.15 - 0.02)
    faulty = EpisodeOutcome((0.8,), (0.7,), (0.8, 0.7), True, faults=2)
    assert RewardWeights(fault=0.05).score(faulty).total == pytest.approx(0.2 + 0.8 * 0.75 - 0.1)


@pytest.mark.parametrize(
    "weights", [{"form": -0.1}, {"gain": float("nan")}, {"form": 0.0, "result": 0.0}, {"dice": 0.0, "iou": 0.0}]
)
def test_weights_that_mean_nothing_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        RewardWeights(**weights)


def test_an_episode_is_measured_by_its_masks() -> None:
    (target,) = targets(1, 3)
    episode = Episode(Brush(), target.image)
    first = episode.add(BoxPrompt(0, 0, 64, 64)).mask
    rows, columns = np.nonzero(target.truth)
    tight = BoxPrompt(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    second = episode.add(tight).mask
    episode.stop(1)
    outcome = EpisodeOutcome.from_episode(episode, target, stopped=True)
    assert outcome.iou == (compute_overlap(first, target.truth)[1], compute_overlap(second, target.truth)[1])
    assert outcome.delivered == compute_overlap(first, target.truth), "the mask that was chosen, not the last"
    assert RewardWeights().score(outcome).overshoot == pytest.approx(outcome.iou[1] - outcome.iou[0])


def test_what_is_said_to_be_absent_delivers_nothing() -> None:
    (target,) = targets(1, 3)
    episode = Episode(Brush(), target.image)
    episode.add(Point(32, 32))
    episode.stop(absent=True)
    assert EpisodeOutcome.from_episode(episode, target, stopped=True).delivered == (0.0, 0.0)
