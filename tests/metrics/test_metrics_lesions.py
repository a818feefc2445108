"""Lesions against a flood fill and a search through every pairing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from m3b.tasks.detection import LesionCounts, match_lesions, measure_channels
from m3b.tasks.detection.lesions import label_components, lesion_rates

Mask = NDArray[np.bool_]
Place = tuple[int, ...]


def flood(mask: Mask) -> list[set[Place]]:
    unvisited = {tuple(int(x) for x in place) for place in np.argwhere(mask)}
    lesions = []
    while unvisited:
        todo, lesion = [unvisited.pop()], set()
        while todo:
            place = todo.pop()
            lesion.add(place)
            for step in product((-1, 0, 1), repeat=mask.ndim):
                neighbour = tuple(a + b for a, b in zip(place, step, strict=True))
                if neighbour in unvisited:
                    unvisited.remove(neighbour)
                    todo.append(neighbour)
        lesions.append(lesion)
    return lesions


def most_pairs(fits: list[list[bool]]) -> int:
    if not fits:
        return 0
    first, remaining_rows = fits[0], fits[1:]
    best = most_pairs(remaining_rows)
    for column, fit in enumerate(first):
        if fit:
            best = max(best, 1 + most_pairs([[x and k != column for k, x in enumerate(row)] for row in remaining_rows]))
    return best


@st.composite
def masks(draw: st.DrawFn) -> tuple[Mask, Mask]:
    shape = draw(st.sampled_from([(7, 8), (3, 4, 5)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    reference = rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.25]))
    changed = rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.2]))
    return reference ^ changed, reference


@given(masks(), st.sampled_from([0.05, 0.1, 0.3, 0.5, 1.0]))
def test_counts(pair: tuple[Mask, Mask], min_iou: float) -> None:
    predicted_lesions, true_lesions = flood(pair[0]), flood(pair[1])
    assert label_components(pair[0])[1] == len(predicted_lesions)
    paired = most_pairs([[len(a & b) / len(a | b) >= min_iou for b in true_lesions] for a in predicted_lesions])
    assert match_lesions(*pair, min_iou=min_iou).to_list() == [
        paired,
        len(true_lesions) - paired,
        paired,
        len(predicted_lesions) - paired,
    ]
    detected = sum(any(a & b for a in predicted_lesions) for b in true_lesions)
    right = sum(any(a & b for b in true_lesions) for a in predicted_lesions)
    expected = [detected, len(true_lesions) - detected, right, len(predicted_lesions) - right]
    assert match_lesions(*pair, rule="overlap").to_list() == expected


@given(st.lists(st.integers(0, 6), min_size=4, max_size=4))
def test_rates(counts: list[int]) -> None:
    detected, missed, right, wrong = counts
    got = {name: float(value) for name, value in lesion_rates(np.array(counts, dtype=float)).items()}
    if detected + missed:
        assert got["lesion_recall"] == pytest.approx(detected / (detected + missed))
    else:
        assert np.isnan(got["lesion_recall"])
    if sum(counts) == 0:
        assert np.isnan(got["lesion_f1"])
    elif detected == right:  # one to one
        assert got["lesion_f1"] == pytest.approx(2 * detected / (2 * detected + missed + wrong))
    if not right + wrong:
        assert np.isnan(got["lesion_precision"]) if not detected + missed else got["lesion_precision"] == 0


def test_marking_everything_wins_by_overlap_and_not_by_iou() -> None:
    reference = np.zeros((40, 40), bool)
    reference[3:6, 3:6] = reference[20:22, 30:33] = True
    everything = np.ones_like(reference)
    by_overlap = match_lesions(everything, reference, rule="overlap")
    assert by_overlap.to_list() == [2, 0, 1, 0] == LesionCounts(0, 2, 0, 5, "overlap").for_everything_marked().to_list()
    assert match_lesions(everything, reference).to_list() == [0, 2, 0, 1]
    assert LesionCounts(1, 1, 1, 0).for_everything_marked().to_list() == [0, 2, 0, 1]
    assert LesionCounts(0, 0, 0, 0, "overlap").for_everything_marked().to_list() == [0, 0, 0, 1]


def test_overlapping_classes_are_kept_apart() -> None:
    reference = np.zeros((2, 12, 12), bool)
    reference[0, 2:8, 2:8] = True
    reference[1, 5:10, 5:10] = True
    figures, lesions = measure_channels(reference, reference, ["mass", "oedema"], (1.0, 1.0))
    assert figures["mass"].dice == figures["oedema"].dice == 1
    assert lesions["mass"].to_list() == lesions["oedema"].to_list() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match="one channel for each class"):
        measure_channels(reference, reference, ["mass"], (1.0, 1.0))


def test_wrong_use_is_named() -> None:
    mask = np.zeros((3, 3), bool)
    with pytest.raises(ValueError, match="unknown rule"):
        match_lesions(mask, mask, rule="touch")
    with pytest.raises(ValueError, match="above 0"):
        match_lesions(mask, mask, min_iou=0)
    with pytest.raises(ValueError, match="shape"):
        match_lesions(mask, mask[:2])
