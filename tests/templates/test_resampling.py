"""Resampling of images and masks: nothing moves, small structures stay, memory does not grow with the number of classes."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from template_kit import load

resampling = load("resampling")


def _ball(side: int, radius: float, centre: np.ndarray) -> np.ndarray:
    places = np.indices((side,) * 3) - centre[:, None, None, None]
    ball: np.ndarray = (places**2).sum(axis=0) <= radius**2
    return ball


@pytest.mark.parametrize(("have", "want"), [(110, 100), (128, 100), (100, 110), (100, 37), (28, 224), (7, 3)])
def test_a_ramp_stays_where_it_is(have: int, want: int) -> None:
    ramp = np.arange(have, dtype=np.float32)[None]
    resized = resampling.resize(ramp, (want,))[0]
    centres = ((np.arange(want) + 0.5) * have / want - 0.5).clip(0, have - 1)
    assert np.abs(resized - centres).max() < 0.13  # of an input cell: one that is cut counts at its middle


def test_cells_that_shrink_are_means_of_what_lies_under_them() -> None:
    array = np.random.default_rng(0).random((2, 12, 9, 8), dtype=np.float32)
    blocks = array.reshape(2, 4, 3, 3, 3, 2, 4).mean(axis=(2, 4, 6))
    np.testing.assert_allclose(resampling.resize(array, (4, 3, 2)), blocks, rtol=1e-5)
    np.testing.assert_allclose(resampling.resize(array, (5, 6, 7)).mean(axis=0).shape, (5, 6, 7))


@pytest.mark.parametrize(
    ("ratio", "radius", "min_dice"), [(1.05, 4, 0.97), (1.1, 4, 0.93), (1.1, 8, 0.97), (1.2, 8, 0.96), (1.33, 8, 0.95)]
)
def test_masks_survive_the_way_to_a_coarser_grid_and_back(ratio: float, radius: float, min_dice: float) -> None:
    rng, dices = np.random.default_rng(1), []
    for _ in range(5):
        mask = _ball(48, radius, 24 + rng.uniform(-3, 3, 3))
        coarse = resampling.resize_ids(mask.astype(np.uint8), (round(48 / ratio),) * 3)
        back = resampling.resize(coarse[None], mask.shape)[0] >= 0.5
        dices.append(2 * (mask & back).sum() / (mask.sum() + back.sum()))
    assert np.mean(dices) > min_dice


@given(
    shape=st.tuples(*[st.integers(1, 9)] * 3),
    size=st.tuples(*[st.integers(1, 9)] * 3),
    seed=st.integers(0, 99),
    max_label=st.integers(0, 5),
)
def test_ids_are_what_fills_most_of_each_cell(
    shape: tuple[int, ...], size: tuple[int, ...], seed: int, max_label: int
) -> None:
    ids = np.random.default_rng(seed).integers(0, max_label + 1, shape).astype(np.uint8)
    layers = np.stack([resampling.resize((ids == number)[None], size)[0] for number in range(max_label + 1)])
    resized = resampling.resize_ids(ids, size)
    strongest = np.take_along_axis(layers, resized[None].astype(int), 0)[0]
    np.testing.assert_allclose(strongest, layers.max(axis=0), atol=1e-5)


def test_a_hundred_classes_need_no_more_memory_than_one() -> None:
    """104 structures side by side in a volume of 128 x 128 x 128."""
    edges = np.linspace(0, 128, 27).astype(int)
    ids = np.zeros((128, 128, 128), np.uint8)
    for number, (start, stop) in enumerate(pairwise(edges)):
        for quarter in range(4):
            ids[start:stop, 32 * quarter : 32 * quarter + 30, 10:118] = 1 + number * 4 + quarter
    tracemalloc.start()
    resized = resampling.resize_ids(ids, (100, 100, 100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(np.unique(resized)) == set(range(105))
    assert peak < 100 * 2**20
