"""Filling of polygons, run lengths and EXIF turns against slow or independent implementations."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from m3b.dataset.annotations.geometry import (
    Bitmap,
    ImageSize,
    Polygon,
    decode_runs,
    ellipse,
    fill_polygon,
    rectangle,
    turn_box,
    turn_mask,
)
from m3b.errors import DataError

ORIENTATION_TAG = 0x0112
eighths = st.integers(-80, 400).map(
    lambda number: number / 8 + 1 / 64
)  # exact in binary, and never on a pixel's middle
points = st.lists(st.tuples(eighths, eighths), min_size=3, max_size=9)


def fill_slowly(ring: list[tuple[float, float]], width: int, height: int) -> np.ndarray:
    """Count, for each pixel, the edges to its right."""
    mask = np.zeros((height, width), bool)
    for row in range(height):
        for column in range(width):
            x, y = column + 0.5, row + 0.5
            crossings = 0
            for (x0, y0), (x1, y1) in zip(ring, [*ring[1:], ring[0]], strict=True):
                if (y0 <= y) != (y1 <= y) and x0 + (y - y0) * (x1 - x0) / (y1 - y0) > x:
                    crossings += 1
            mask[row, column] = crossings % 2
    return mask


@given(points)
def test_a_polygon_holds_the_pixels_whose_middles_are_inside(ring: list[tuple[float, float]]) -> None:
    filled = fill_polygon(Polygon.from_points(ring).rings, 24, 17)
    assert (filled != fill_slowly(ring, 24, 17)).sum() <= 1  # a crossing may fall on a middle, up to rounding


def test_an_inner_ring_is_a_hole() -> None:
    outer, inner = [(0, 0), (10, 0), (10, 10), (0, 10)], [(3, 3), (7, 3), (7, 7), (3, 7)]
    mask = Polygon.from_points(outer, inner).fill(12, 12)
    assert mask.sum() == 100 - 16
    assert not mask[5, 5]
    assert mask[2, 2]


def test_rectangles_and_ellipses_have_their_areas() -> None:
    assert rectangle(2, 3, 5, 7).fill(10, 10).sum() == 12
    assert ellipse(100, 80, 60, 30).fill(200, 160).sum() == pytest.approx(np.pi * 60 * 30, rel=0.01)
    assert rectangle(40, 40, 80, 60, 90).bounds() == pytest.approx((50, 30, 70, 70))


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_run_lengths_decode_to_their_pixels(pixels: list[bool]) -> None:
    lengths, value = [0], False
    for pixel in pixels:
        if pixel != value:
            lengths.append(0)
            value = pixel
        lengths[-1] += 1
    assert decode_runs(lengths, len(pixels)).tolist() == pixels


@pytest.mark.parametrize("lengths", [[5, 6], [-1, 11], [10**18, -(10**18) + 10], [2**62, 2**62, 2**62, 2**62 + 10]])
def test_run_lengths_that_do_not_fill_the_image_allocate_nothing(lengths: list[int]) -> None:
    with pytest.raises(DataError) as raised:
        decode_runs(lengths, 10)
    assert raised.value.code == "damaged_mask"


def test_masks_that_are_too_large_are_refused_before_memory_is_asked_for() -> None:
    with pytest.raises(DataError) as raised:
        rectangle(0, 0, 1, 1).fill(10**6, 10**6)
    assert raised.value.code == "image_too_large"
    with pytest.raises(DataError) as raised:
        Bitmap(0, 0, 10**6, 10**6, lambda: 1 / 0, is_whole=True).bounds()
    assert raised.value.code == "image_too_large"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_equal_those_of_pillow(orientation: int) -> None:
    stored = np.random.default_rng(orientation).integers(0, 2, (5, 7)).astype(bool)
    picture, content = Image.fromarray(stored.astype(np.uint8) * 255), io.BytesIO()
    exif = picture.getexif()
    exif[ORIENTATION_TAG] = orientation
    picture.save(content, "PNG", exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(content))) > 0
    assert (turn_mask(stored, orientation) == upright).all()

    size = ImageSize(upright.shape[1], upright.shape[0], orientation)
    assert size.stored == (7, 5)
    rectangle_mask = np.zeros((5, 7), bool)
    rectangle_mask[1:3, 2:6] = True
    x0, y0, x1, y1 = map(int, turn_box((2, 1, 6, 3), size))
    turned = turn_mask(rectangle_mask, orientation)
    assert turned[y0:y1, x0:x1].all()
    assert turned.sum() == (y1 - y0) * (x1 - x0) == 8
