"""Images that are unlike those that a model learnt from are flagged; held-out ones at about the rate that is said."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from template_kit import load

familiar = load("out_of_distribution")


def chest(rng: np.random.Generator, size: int = 96) -> np.ndarray:
    """A drawn radiograph (1, H, W): two dark fields, ribs, smooth noise."""
    y, x = np.mgrid[0:size, 0:size] / size
    wide, high = rng.uniform(0.13, 0.19), rng.uniform(0.28, 0.36)
    picture = 150 + 20 * np.sin(y * rng.uniform(50, 70)) * rng.uniform(0.5, 1)
    for middle in (0.3, 0.7):
        picture -= rng.uniform(70, 95) * np.exp(-(((x - middle) / wide) ** 4) - ((y - 0.5) / high) ** 4)
    picture += rng.normal(0, rng.uniform(3, 6), (size, size))
    return np.clip(picture + rng.normal(0, 8), 0, 255)[None].astype(np.float32)


def fit_chest_reference(rng: np.random.Generator, held_out_cases: int = 60) -> dict[str, object]:
    look = familiar.fit_appearance(np.array([familiar.measure_appearance(chest(rng)) for _ in range(120)]))
    distances = [
        {"look": familiar.appearance_distance(familiar.measure_appearance(chest(rng)), look)}
        for _ in range(held_out_cases)
    ]
    return {"look": look, **familiar.fit_limit(distances)}


@pytest.fixture(scope="module")
def chest_reference() -> dict[str, object]:
    return fit_chest_reference(np.random.default_rng(0))


STRANGE: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "noise in colour": lambda rng: rng.integers(0, 255, (3, 96, 96)).astype(np.float32),
    "noise in grey": lambda rng: np.clip(rng.normal(128, 40, (1, 96, 96)), 0, 255).astype(np.float32),
    "a CT in Hounsfield units": lambda rng: chest(rng) * 8 - 1000,
    "a photograph": lambda rng: np.stack([chest(rng)[0] * share for share in (1.0, 0.6, 0.4)]),
    "pixels in disorder": lambda rng: rng.permutation(chest(rng).ravel()).reshape(1, 96, 96),
    "a ramp": lambda rng: np.tile(np.linspace(0, 255, 96, dtype=np.float32), (1, 96, 1)),
    "a strip": lambda rng: chest(rng)[:, :12],
    "a volume": lambda rng: np.stack([chest(rng)] * 40, axis=-1),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_images_are_flagged(name: str, chest_reference: dict[str, object]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        judgement = familiar.judge_image(STRANGE[name](rng), chest_reference)
        assert judgement["out_of_distribution"] is True
        assert "times the limit" in judgement["why"]


@pytest.mark.parametrize("value", [0, 255])
def test_blank_images_are_flagged_by_any_model(value: int, chest_reference: dict[str, object]) -> None:
    for reference in (chest_reference, None, {"unavailable": "3 held-out cases"}):
        judgement = familiar.judge_image(np.full((1, 32, 32), value, np.float32), reference)
        assert judgement == {"out_of_distribution": True, "why": "the image is blank: all its values are equal"}


def test_images_like_the_training_ones_are_flagged_at_the_rate_that_is_said() -> None:
    shares = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        reference = fit_chest_reference(rng)
        assert reference["rate"] == familiar.FLAG_RATE == 0.02
        shares.append(np.mean([familiar.judge_image(chest(rng), reference)["out_of_distribution"] for _ in range(120)]))
    assert np.mean(shares) < 0.05


def test_with_few_held_out_cases_the_rate_is_what_they_can_say() -> None:
    assert fit_chest_reference(np.random.default_rng(3), held_out_cases=9)["rate"] == 0.1


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert familiar.judge_image(chest(np.random.default_rng(0)), {"unavailable": "3 held-out cases"}) == {}


def test_features_tell_what_grey_values_do_not() -> None:
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(6, 64))
    sample_features = lambda count: rng.normal(size=(count, 6)) @ basis + 0.05 * rng.normal(size=(count, 64))  # noqa: E731
    fitted = familiar.fit_features(sample_features(80))
    held_out_distances = [
        {"look": 1.0, "features": familiar.feature_distance(row, fitted)} for row in sample_features(100)
    ]
    reference = {"look": familiar.fit_appearance(rng.normal(size=(50, 14))), **familiar.fit_limit(held_out_distances)}
    away = [
        familiar.feature_distance(row, fitted)
        for row in (*sample_features(20) + 3 * rng.normal(size=64), np.zeros(64) + 9)
    ]
    limit = reference["limit"] * reference["typical"]["features"]
    assert min(away) > limit
    assert np.mean([familiar.feature_distance(row, fitted) > limit for row in sample_features(200)]) < 0.06
