"""One convention of coordinates, through every size of image."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.interactive.segmenter import GRID, box_from_grid, point_from_grid, to_grid, to_pixels

SIZES = st.integers(1, 5000)


@given(step=st.integers(0, GRID - 1), size=SIZES)
def test_a_step_of_the_grid_comes_back_from_its_pixels(step: int, size: int) -> None:
    assert to_grid(to_pixels(step, size), size) == step


@given(pixel=st.integers(0, 4999), size=SIZES)
def test_a_pixel_of_an_image_up_to_a_thousand_comes_back_from_the_grid(pixel: int, size: int) -> None:
    size = max(pixel + 1, size)
    back = to_pixels(to_grid(pixel + 0.5, size), size)
    assert abs(back - (pixel + 0.5)) <= size / GRID  # at most a step of the grid away


@given(rows=SIZES, columns=SIZES)
def test_the_whole_grid_is_the_whole_image(rows: int, columns: int) -> None:
    box = box_from_grid([0, 0, GRID - 1, GRID - 1], (rows, columns))
    assert np.allclose(box.corners, (0, 0, columns, rows))


def test_x_counts_columns_and_y_counts_rows() -> None:
    point = point_from_grid([900, 100], True, (50, 200))
    assert point.x == pytest.approx(180.1)
    assert point.y == pytest.approx(5.025)


@pytest.mark.parametrize(
    ("corners", "message"),
    [
        ([0, 0, 10], "four numbers"),
        ([10, 0, 10, 5], "no area"),
        ([0, 0, 1000, 5], "not on the grid"),
        ([-1, 0, 10, 5], "not on the grid"),
    ],
)
def test_wrong_boxes_are_explained(corners: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        box_from_grid(corners, (10, 10))


def test_wrong_points_are_explained() -> None:
    with pytest.raises(ValueError, match="two numbers"):
        point_from_grid([1, 2, 3], True, (10, 10))
    with pytest.raises(ValueError, match="not on the grid"):
        point_from_grid([1, 1000], True, (10, 10))
