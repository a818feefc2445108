"""What is kept of many images while they are opened: no more than is compared."""

from __future__ import annotations

import random

import numpy as np
import pytest

from m3b.dataset import similarity
from m3b.dataset.audit.probes import ImageProbe
from m3b.dataset.manifest.pixels import CASES_PER_BATCH, CasePixels, PixelReader
from m3b.dataset.similarity import ComparedSample, find_near_copies, make_thumbnails


def make_probes(count: int, rng: np.random.Generator) -> dict[str, ImageProbe]:
    probes = {}
    for number in range(count):
        array = rng.normal(size=(1, 40, 40)) if number % 7 else np.zeros((1, 40, 40))
        thumbnail, detail = make_thumbnails(array)
        probes[f"i{number}"] = ImageProbe("1x40x40", f"d{number}", thumbnail, detail, flat=not number % 7)
    return probes


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_what_is_compared(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "MAX_FIRST", 12)
    monkeypatch.setattr(similarity, "MAX_SECOND", 5)
    rng = np.random.default_rng(seed)
    probes = make_probes(80, rng)
    for number in range(1, 80, 3):  # a few near copies across
        original = probes[f"i{number}"]
        probes[f"i{number + 1}"] = ImageProbe(
            "1x40x40", f"e{number}", original.thumbnail, original.detail, flat=original.flat
        )
    keys = list(probes)
    firsts, seconds = keys[:50], keys[50:]
    random.Random(seed).shuffle(keys)
    sample, dropped = ComparedSample(firsts, seconds), set()
    for key in keys:
        dropped |= {sample.add(key, probes[key])} - {None}
    kept_probes = {key: probe for key, probe in probes.items() if key not in dropped}
    assert len(kept_probes) == 12 + 5
    assert find_near_copies(kept_probes, firsts, seconds) == find_near_copies(probes, firsts, seconds)


def test_few_cases_wait_for_the_threads_that_open_them(tmp_path) -> None:
    n_listed = 0

    def list_cases():
        nonlocal n_listed
        for number in range(3 * CASES_PER_BATCH):
            n_listed += 1
            yield CasePixels(number, f"{number}.png")

    looks = PixelReader(tmp_path, tmp_path).look(list_cases())
    assert next(looks).code == "unreadable"
    assert n_listed == CASES_PER_BATCH
    assert sum(look.code == "unreadable" for look in looks) == 3 * CASES_PER_BATCH - 1
