"""What comparing many images takes of memory does not grow with their number."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from m3b.dataset import similarity
from m3b.dataset.audit.drawings import compute_mean_shape_dice
from m3b.dataset.audit.probes import CoarseMask, ImageProbe
from m3b.dataset.similarity import find_near_copies


def measure_peak(probes: dict[str, ImageProbe], training_keys: list[str], test_keys: list[str]) -> int:
    tracemalloc.start()
    try:
        assert find_near_copies(probes, training_keys, test_keys) == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_images_are_compared_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "_BLOCK", 64)
    monkeypatch.setattr(similarity, "MAX_REFERENCES", 50)
    for turns in ("_TURNS", "_UNDO_TURNS"):
        monkeypatch.setattr(similarity, turns, getattr(similarity, turns)[:2])
    rng = np.random.default_rng(0)
    probes = {}
    for number in range(460):
        thumbnail, detail = similarity.make_thumbnails(rng.normal(size=(1, 40, 40)))
        probes[str(number)] = ImageProbe(
            digest=str(number), thumbnail=thumbnail.astype(np.float16), detail=detail.astype(np.float16)
        )
    keys = list(probes)
    small_peak, large_peak = (measure_peak(probes, keys[100 : 100 + count], keys[:100]) for count in (60, 360))
    bytes_of_300_images = 300 * 4 * (32**2 + 24**2)
    assert large_peak - small_peak < 0.2 * bytes_of_300_images


def test_masks_are_compared_with_their_mean_one_by_one() -> None:
    rng = np.random.default_rng(0)
    grids = rng.random((200, 32, 32, 31)) < 0.5
    masks = [CoarseMask.pack(grid) for grid in grids]
    assert np.array_equal(masks[7].unpack(), grids[7])
    tracemalloc.start()
    try:
        dice = compute_mean_shape_dice(masks)
        assert tracemalloc.get_traced_memory()[1] < 0.1 * 200 * 4 * 32 * 32 * 31  # of all in single precision
    finally:
        tracemalloc.stop()
    total = grids.sum(axis=0)
    means = [(total - grid) / 199 > 0.5 for grid in grids]
    expected = [2 * (grid & mean).sum() / (grid.sum() + mean.sum()) for grid, mean in zip(grids, means, strict=True)]
    assert dice == pytest.approx(float(np.median(expected)))
