"""Altered copies are told from other people's images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.data.altered import altered_pairs
from m3b.data.image_probe import ImageProbe, examine
from m3b.data.synthetic import radiograph

COUNT = 60
RANDOM = np.random.default_rng(5)
PICTURES = [radiograph(RANDOM, number % 2 == 0) for number in range(COUNT)]


def resized(pixels: Any, side: int) -> Any:
    return np.array(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR))


def noisy(pixels: Any) -> Any:
    noise = np.random.default_rng(1).normal(0, 0.15 * pixels.std(), pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def one_pixel(pixels: Any) -> Any:
    changed = pixels.copy()
    changed[3, 3] ^= 1
    return changed


CHANGES: dict[str, Callable[[Any], Any]] = {
    "one pixel": one_pixel,
    "noise": noisy,
    "mirrored": lambda p: p[:, ::-1],
    "upside down": lambda p: p[::-1],
    "turned": np.rot90,
    "smaller": lambda p: resized(p, 100),
    "larger": lambda p: resized(p, 300),
    "other contrast": lambda p: (255 * (p / 255) ** 0.8).astype(np.uint8),
    "16 bits": lambda p: p.astype(np.uint16) * 200,
}


def look(pixels: Any, folder: Path, name: str) -> ImageProbe:
    np.save(folder / f"{name}.npy", np.ascontiguousarray(pixels))
    return examine(f"{name}.npy", folder)


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ImageProbe]:
    folder = tmp_path_factory.mktemp("looks")
    return {str(number): look(pixels, folder, str(number)) for number, pixels in enumerate(PICTURES)}


TRAIN, TEST = [str(n) for n in range(40)], [str(n) for n in range(40, COUNT)]


def test_different_people_are_no_copies(looks: dict[str, ImageProbe]) -> None:
    assert altered_pairs(looks, TRAIN, TEST) == []


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_copy_is_found_and_no_other(
    looks: dict[str, ImageProbe], tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    copies = {f"copy{n}": look(change(PICTURES[int(n)]), tmp_path, f"copy{n}") for n in TEST}
    found = altered_pairs({**looks, **copies}, [*TRAIN, *copies], TEST)
    assert sorted(found) == sorted((f"copy{n}", n) for n in TEST)


def test_exact_copies_are_left_to_the_comparison_of_pixels(looks: dict[str, ImageProbe]) -> None:
    again = {**looks, "again": looks["50"]}
    assert altered_pairs(again, [*TRAIN, "again"], TEST) == []


def test_nothing_to_compare(looks: dict[str, ImageProbe]) -> None:
    assert altered_pairs(looks, [], TEST) == []
    assert altered_pairs({"a": ImageProbe(error="x"), "b": looks["1"]}, ["a"], ["b"]) == []
