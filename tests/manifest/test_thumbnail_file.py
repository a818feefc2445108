"""Thumbnails of many pictures, and neighbours of a series that are found by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from m3b.dataset.manifest import pixels
from m3b.dataset.manifest.pixels import ThumbnailFile, name_series, thumbnail_of


def draw(seed: int) -> np.ndarray:
    thumbnail = thumbnail_of(np.random.default_rng(seed).normal(size=(1, 48, 48)).astype(np.float32))
    assert thumbnail is not None
    return thumbnail


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_a_thumbnail_is_read_back_from_memory_and_from_the_disk(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "MAX_THUMBNAIL_BYTES", limit or 4000)
    with ThumbnailFile(tmp_path) as thumbnails:
        for number in (7, 2, 5):
            thumbnails.add(number, draw(number))
        assert [number for number in range(9) if number in thumbnails] == [2, 5, 7]
        assert all(np.array_equal(thumbnails[number], draw(number)) for number in (5, 2, 7))
    assert not list(tmp_path.iterdir())


def test_neighbours_that_look_alike_share_a_series(tmp_path: Path) -> None:
    names = ["s/a1.png", "s/a2.png", "s/a3.png", "s/a9.png", "s/b2.png", "s/c.png"]
    looks = [1, 1, 2, 2, 1, 1]
    with ThumbnailFile(tmp_path) as thumbnails:
        for place, seed in enumerate(looks):
            thumbnails.add(10 * place, draw(seed))
        numbers = [10 * place for place in range(len(names))]
        assert name_series(names, numbers, thumbnails) == ["series of s/a1.png"] * 2 + [""] * 4
        assert name_series(names, [1] * len(names), thumbnails) == [""] * 6
