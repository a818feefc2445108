"""Near copies are told from other people's images, also in sets in which all images look alike."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from m3b.data.synthetic import radiograph
from m3b.dataset.audit.probes import ImageProbe, probe_image
from m3b.dataset.similarity import area_means, find_near_copies, make_thumbnails

COUNT, SIDE = 60, 128
TRAIN, TEST = [str(number) for number in range(40)], [str(number) for number in range(40, COUNT)]


def resized(pixels: Any, side: int) -> Any:
    return np.array(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR))


def compressed(pixels: Any, quality: int) -> Any:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def noisy(pixels: Any, amount: float) -> Any:
    noise = np.random.default_rng(1).normal(0, amount, pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def one_pixel(pixels: Any) -> Any:
    changed = pixels.copy()
    changed[3, 3] ^= 1
    return changed


CHANGES: dict[str, Callable[[Any], Any]] = {
    "one pixel": one_pixel,
    "brighter": lambda p: np.clip(p.astype(int) + 9, 0, 255).astype(np.uint8),
    "JPEG": lambda p: compressed(p, 80),
    "noise": lambda p: noisy(p, 1.5),
    "smaller": lambda p: resized(p, 100),
    "larger": lambda p: resized(p, 300),
    "mirrored": lambda p: p[:, ::-1],
    "upside down": lambda p: p[::-1],
    "turned": np.rot90,
    "turned back": lambda p: np.rot90(p, 3),
    "16 bits": lambda p: p.astype(np.uint16) * 200,
}
STRONG_CHANGES: dict[str, Callable[[Any], Any]] = {
    "JPEG 70": lambda p: compressed(p, 70),
    "strong noise": lambda p: noisy(p, 0.15 * p.std()),
    "other contrast": lambda p: (255 * (p / 255) ** 0.8).astype(np.uint8),
}


def smooth(rng: np.random.Generator, sigma: float) -> np.ndarray:
    noise = ndimage.gaussian_filter(rng.normal(size=(SIDE, SIDE)), sigma)
    return np.asarray(noise / noise.std())


def films(seed: int, person_pattern: Callable[[np.random.Generator], Any]) -> list[np.ndarray]:
    """The same film for everybody, with what `person_pattern` adds for each person."""
    rng = np.random.default_rng(seed)
    template = 120 + 45 * smooth(rng, 8)
    return [np.clip(template + person_pattern(rng), 0, 255).astype(np.uint8) for _ in range(COUNT)]


def shifted(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    template = np.pad(120 + 45 * smooth(rng, 6), 10, mode="wrap")
    places = rng.normal(0, 1, (COUNT, 2))
    return [
        np.clip(
            ndimage.shift(template, place, order=1)[10:-10, 10:-10] + rng.normal(0, 1, (SIDE, SIDE)), 0, 255
        ).astype(np.uint8)
        for place in places
    ]


def few_modes(seed: int, count: int) -> list[np.ndarray]:
    """Films that differ along a few directions only."""
    modes = [smooth(np.random.default_rng(1000 * seed + number), 6) for number in range(count)]
    return films(seed, lambda rng: sum(6 * rng.normal() * mode for mode in modes) + rng.normal(0, 1, (SIDE, SIDE)))


KINDS: dict[str, Callable[[int], list[np.ndarray]]] = {
    "radiographs": lambda seed: [radiograph(np.random.default_rng(100 * seed + n), n % 2 == 0) for n in range(COUNT)],
    "small differences": lambda seed: films(seed, lambda rng: 2 * smooth(rng, 5) + rng.normal(0, 0.5, (SIDE, SIDE))),
    "noise alone": lambda seed: films(seed, lambda rng: rng.normal(0, 6, (SIDE, SIDE))),
    "two views": lambda seed: [
        film
        for pair in zip(*(films(seed + n, lambda rng: 3 * smooth(rng, 5)) for n in (0, 50)), strict=True)
        for film in pair
    ][:COUNT],
}
INDISTINCT_KINDS: dict[str, Callable[[int], list[np.ndarray]]] = {
    "one mode": lambda seed: few_modes(seed, 1),
    "three modes": lambda seed: few_modes(seed, 3),
    "shifted": shifted,
}
"""Different films are as close to each other as a film and its copy."""


def fingerprint(pixels: Any, name: str) -> ImageProbe:
    thumbnail, detail = make_thumbnails(np.ascontiguousarray(pixels)[None])
    return ImageProbe(digest=name, thumbnail=thumbnail, detail=detail)


@cache
def draw(kind: str, seed: int) -> list[np.ndarray]:
    return (KINDS | INDISTINCT_KINDS)[kind](seed)


@cache
def fingerprints(kind: str, seed: int) -> dict[str, ImageProbe]:
    return {str(number): fingerprint(pixels, str(number)) for number, pixels in enumerate(draw(kind, seed))}


@pytest.mark.parametrize("seed", [2, 4, 6])
@pytest.mark.parametrize("kind", [*KINDS, *INDISTINCT_KINDS])
def test_different_people_are_no_copies(kind: str, seed: int) -> None:
    assert find_near_copies(fingerprints(kind, seed), TRAIN, TEST) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_is_found_and_no_other(kind: str, change: str) -> None:
    pictures = draw(kind, 8)
    copied = TEST[::4]
    copies = {f"copy{n}": fingerprint(CHANGES[change](pictures[int(n)]), f"copy{n}") for n in copied}
    pairs = find_near_copies({**fingerprints(kind, 8), **copies}, [*TRAIN, *copies], TEST)
    assert set(pairs) <= {(f"copy{n}", n) for n in copied}
    assert len(pairs) >= 0.8 * len(copied) or change in (
        "mirrored",
        "upside down",
        "turned",
        "turned back",
    )


@pytest.mark.parametrize("change", [*CHANGES, *STRONG_CHANGES])
def test_every_second_radiograph_may_be_a_copy(change: str) -> None:
    pictures = draw("radiographs", 8)
    copies = {f"copy{n}": fingerprint((CHANGES | STRONG_CHANGES)[change](pictures[int(n)]), f"copy{n}") for n in TEST}
    pairs = find_near_copies({**fingerprints("radiographs", 8), **copies}, [*TRAIN, *copies], TEST)
    assert set(pairs) <= {(f"copy{n}", n) for n in TEST}
    assert len(pairs) >= (0.8 if change in STRONG_CHANGES else 0.95) * len(TEST)


def test_exact_copies_are_left_to_the_comparison_of_pixels() -> None:
    probes = fingerprints("radiographs", 2)
    assert find_near_copies({**probes, "again": probes["50"]}, [*TRAIN, "again"], TEST) == []


def test_nothing_to_compare() -> None:
    probes = fingerprints("radiographs", 2)
    assert find_near_copies(probes, [], TEST) == []
    assert find_near_copies({"a": ImageProbe(error="x"), "b": probes["1"]}, ["a"], ["b"]) == []


def test_a_heap_of_lookalikes_stays_bounded() -> None:
    probe = fingerprints("radiographs", 2)["0"]
    probes = {
        str(number): ImageProbe(digest=str(number), thumbnail=probe.thumbnail, detail=probe.detail)
        for number in range(1200)
    }
    keys = list(probes)
    assert len(find_near_copies(probes, keys[:800], keys[800:])) <= 5000


# --- volumes ------------------------------------------------------------------------------------------------------


def scan(seed: int) -> np.ndarray:
    """A smooth volume, different for every seed."""
    noise = np.random.default_rng(seed).normal(0, 1, (40, 44, 48))
    return np.asarray(1000 * ndimage.gaussian_filter(noise, 3) / 0.02, np.float32)


def of_volume(array: np.ndarray, file: Path) -> ImageProbe:
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), file)
    return probe_image(file.name, file.parent)


def test_a_volume_is_a_copy_by_all_its_slices_and_not_by_the_middle_one(tmp_path: Path) -> None:
    probes = {str(at): of_volume(scan(at), tmp_path / f"{at}.nii.gz") for at in range(8)}
    assert find_near_copies(probes, list("0123"), list("4567")) == []
    marked, noise, grafted = scan(0), scan(1), scan(2)
    marked[10:14, 10:14, 24] = 2.5 * marked.std()  # an arrow burnt into the slice in the middle
    noise += np.random.default_rng(9).normal(0, 20, noise.shape).astype(np.float32)
    grafted[:, :, 23:26] = scan(3)[:, :, 23:26]  # another scan, with the middle of this one
    for name, array in (("marked", marked), ("noisy", noise), ("grafted", grafted)):
        probes[name] = of_volume(array, tmp_path / f"{name}.nii.gz")
    assert probes["grafted"].thumbnail @ probes["3"].thumbnail > 0.9985, "by the middle slice it would be one"
    pairs = find_near_copies(probes, list("013"), ["marked", "noisy", "grafted"])
    assert sorted(pairs) == [("0", "marked"), ("1", "noisy")]


@pytest.mark.parametrize("height", [1, 7, 24, 31, 48, 50, 300])
def test_area_means_are_those_of_a_finer_grid(height: int) -> None:
    plane = np.random.default_rng(height).integers(0, 255, (height, 5), dtype=np.uint8)
    expected = np.repeat(plane, 24, axis=0).reshape(24, height, 5).mean(axis=1)
    assert np.allclose(area_means(plane, 24), expected)
