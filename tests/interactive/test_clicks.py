"""Prompts from the truth."""

from __future__ import annotations

import numpy as np
import pytest
from interactive_kit import disk

from m3b.interactive.segmenter import Point
from m3b.interactive.simulated_user import find_next_click, make_true_box


def test_the_tight_box_touches_the_mask_on_all_sides() -> None:
    truth = np.zeros((20, 30), dtype=bool)
    truth[3:7, 10:25] = True
    assert make_true_box(truth).corners == (10, 3, 25, 7)


def test_a_jittered_box_stays_inside_the_image_and_keeps_its_order() -> None:
    truth = np.zeros((20, 30), dtype=bool)
    truth[0:3, 0:2] = True
    for seed in range(50):
        box = make_true_box(truth, 0.9, np.random.default_rng(seed))
        assert 0 <= box.x0 < box.x1 <= 30
        assert 0 <= box.y0 < box.y1 <= 20


def test_an_empty_target_cannot_be_boxed() -> None:
    with pytest.raises(ValueError, match="empty"):
        make_true_box(np.zeros((4, 4), dtype=bool))


def test_the_first_click_lies_in_the_middle_of_the_target() -> None:
    click = find_next_click(None, disk((60, 60), (20, 30), 9))
    assert click is not None
    assert click.positive
    assert abs(click.x - 30.5) <= 1
    assert abs(click.y - 20.5) <= 1


def test_the_larger_error_is_clicked_and_told_by_its_sign() -> None:
    truth = disk((80, 80), (25, 25), 10)
    too_much = truth | disk((80, 80), (60, 60), 15)
    click = find_next_click(too_much, truth)
    assert click is not None
    assert not click.positive
    assert (click.x - 60.5) ** 2 + (click.y - 60.5) ** 2 <= 4


def test_no_place_is_clicked_twice_and_a_right_mask_is_left_alone() -> None:
    truth = disk((40, 40), (20, 20), 8)
    assert find_next_click(truth, truth) is None
    first = find_next_click(None, truth)
    assert first is not None
    second = find_next_click(None, truth, [first])
    assert second is not None
    assert (second.x, second.y) != (first.x, first.y)


def test_the_image_border_counts_as_a_border() -> None:
    truth = np.zeros((20, 20), dtype=bool)
    truth[:, :6] = True
    click = find_next_click(None, truth)
    assert click is not None
    assert 2 <= click.x <= 4
    assert isinstance(click, Point)
