"""Whether an image looks like those that a model was trained on: measured on training cases, limited by held-out ones.

Two distances, both Mahalanobis': of a dozen figures of the image's grey values (`look_of`), and, where a network gives them, of its
last features. The limit is the quantile of the larger one on held-out cases (split conformal), so that of new images like the
training ones about `rate` are flagged. No image is kept, only means and spreads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RATE = 0.02
"""Share of images like the training ones that are flagged all the same."""
FEWEST_TRAINED, FEWEST_HELD = 10, 5
MARGIN = 1.25
"""The limit of fewer held-out cases than `1 / RATE` is so many times the largest: it then holds for at most 1 of n + 1."""
SIDE = 96
"""Pixels of the coarse picture on which textures are measured."""
SLICES = 16
LAGS = (1, 2, 4, 8)
PARTS = (1, 25, 50, 75, 99)
NAMES = (
    "darkest values", "lower grey values", "middle grey values", "upper grey values", "brightest values", "share of coarse structure",
    *(f"texture at {lag} of {SIDE} pixels" for lag in LAGS), "share of even area", "colour", "shape of the frame",
    "number of slices",
)  # fmt: skip
COMPONENTS = 24


def look_of(array: np.ndarray) -> np.ndarray:
    """(14,) figures of an image (C, H, W) or volume (C, H, W, D), in the order of `NAMES`."""
    volume = array if array.ndim == 4 else array[..., None]
    places = np.unique(np.linspace(0, volume.shape[-1] - 1, min(SLICES, volume.shape[-1])).round().astype(int))
    part = np.nan_to_num(volume[..., places].astype(np.float32))
    grey = part.mean(axis=0)
    step = max(1, int(np.sqrt(grey.size / 400_000)))
    cut = np.percentile(grey[::step, ::step], PARTS)
    coarse = _coarse(grey)
    spread = float(np.abs(grey - grey.mean()).mean())
    rough = float(np.abs(coarse - coarse.mean()).mean())
    even = float((np.abs(np.diff(grey, axis=1)) <= 1e-6 * max(spread, 1e-6)).mean()) if grey.shape[1] > 1 else 1.0
    hue = float((part.max(axis=0) - part.min(axis=0)).mean()) / max(spread, 1e-6) if len(part) == 3 else 0.0
    return np.array([
        *np.arcsinh(cut / 50), _log(rough, spread), *(_texture(coarse, lag, rough) for lag in LAGS), even, min(hue, 20.0),
        np.log(grey.shape[0] / grey.shape[1]), np.log(volume.shape[-1]),
    ])  # fmt: skip


def _coarse(grey: np.ndarray) -> np.ndarray:
    """(H, W, S) with sides of at most `SIDE`, by means of blocks."""
    for axis in (0, 1):
        size = grey.shape[axis]
        if size > SIDE:
            edges = np.linspace(0, size, SIDE + 1).astype(int)
            grey = np.add.reduceat(grey, edges[:-1], axis=axis) / np.diff(edges).reshape(
                [-1 if a == axis else 1 for a in range(3)]
            )
    return grey


def _texture(coarse: np.ndarray, lag: int, spread: float) -> float:
    steps = [np.abs(along[lag:] - along[:-lag]).mean() for along in (coarse, coarse.swapaxes(0, 1)) if len(along) > lag]
    return _log(float(np.mean(steps)) if steps else 0.0, spread)


def _log(value: float, scale: float) -> float:
    return float(np.log(max(value, 1e-4 * max(scale, 1e-6)) / max(scale, 1e-6)))


def blank(array: np.ndarray) -> bool:
    """Whether every pixel is alike."""
    return bool(np.nanmax(array) - np.nanmin(array) <= 0)


# --- learning ------------------------------------------------------------------------------------------------------------


def fit_look(looks: np.ndarray) -> dict[str, Any]:
    """Centre, scale and precision of (N, 14) looks, as JSON values."""
    centre = np.median(looks, axis=0)
    floor = np.full(looks.shape[1], 0.05)
    floor[: len(PARTS)] = 0.05 * max(float(np.median(looks[:, len(PARTS) - 1] - looks[:, 0])), 0.02)
    scale = np.maximum.reduce([1.4826 * np.median(np.abs(looks - centre), axis=0), 0.3 * looks.std(axis=0), floor])
    return {
        "centre": _listed(centre),
        "scale": _listed(scale),
        "precision": _precision((looks - centre) / scale).tolist(),
    }


def _precision(z: np.ndarray) -> np.ndarray:
    z = z.clip(-6, 6)
    share = max(0.1, min(0.5, z.shape[1] / len(z)))
    return np.linalg.inv((1 - share) * (z.T @ z) / len(z) + share * np.eye(z.shape[1])).round(5)


def _listed(values: np.ndarray) -> list[float]:
    """Five decimals: longer numbers might look like the identifier of a patient."""
    return [round(float(value), 5) for value in values]


def fit_features(features: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, main directions and spreads of (N, D) features, as float32 arrays."""
    mean = features.mean(axis=0)
    _, sizes, rows = np.linalg.svd(features - mean, full_matrices=False)
    kept = max(1, min(COMPONENTS, len(features) // 4, int((sizes > 1e-6 * max(sizes[0], 1e-12)).sum())))
    spread = np.maximum(sizes[:kept] / np.sqrt(len(features)), 1e-6)
    rest = np.square(sizes[kept:]).sum() / len(features)
    left = np.array([max(float(rest), 1e-3 * float(np.square(spread).sum()))])
    found = {"mean": mean, "directions": rows[:kept], "spread": spread, "left": left}
    return {name: np.ascontiguousarray(value, np.float32) for name, value in found.items()}


def limited(held: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What turns distances into a flag, of those of held-out cases by kind: the `typical` of each, the `limit`, the `rate`."""
    typical = {kind: round(float(np.median([one[kind] for one in held])), 5) or 1.0 for kind in held[0]}
    worst = np.sort([max(one[kind] / typical[kind] for kind in one) for one in held])
    count = len(worst)
    place = int(np.ceil((count + 1) * (1 - RATE)))
    enough = place <= count
    limit = float(worst[place - 1]) if enough else float(worst[-1]) * MARGIN
    return {
        "typical": typical,
        "limit": round(max(limit, 1.5), 4),
        "rate": RATE if enough else round(1 / (count + 1), 4),
        "held_out": count,
    }


# --- asking --------------------------------------------------------------------------------------------------------------


def look_distance(look: np.ndarray, fitted: Mapping[str, Any]) -> float:
    """Distance of one look from those of training images; about 1 for one of them."""
    z = (look - np.array(fitted["centre"])) / np.array(fitted["scale"])
    return float(np.sqrt(max(z @ np.array(fitted["precision"]) @ z, 0.0) / len(z)))


def feature_distance(row: np.ndarray, fitted: Mapping[str, np.ndarray]) -> float:
    """The same of (D,) features of one network."""
    away = row.astype(np.float64) - fitted["mean"]
    along = fitted["directions"] @ away
    left = max(float(away @ away - along @ along), 0.0) / float(fitted["left"][0])
    z = np.square(along / fitted["spread"])
    return float(np.sqrt((z.sum() + left) / (len(z) + 1)))


def judged(array: np.ndarray, told: Mapping[str, Any] | None, distance: float | None = None) -> dict[str, Any]:
    """`{"out_of_distribution": bool}` and, where it is, `why`; empty where nothing is known of the training images.

    Args:
        array: `formats.grey_values` of the image, (C, H, W[, D]).
        told: `familiar` of config.json.
        distance: of the network's features, where they are looked at.
    """
    if blank(array):
        return {"out_of_distribution": True, "why": "the image is blank: all its values are alike"}
    if not told or "limit" not in told:
        return {}
    look = look_of(array)
    found = {"look": look_distance(look, told["look"])}
    if distance is not None and "features" in told["typical"]:
        found["features"] = distance
    shares = {kind: value / told["typical"][kind] / told["limit"] for kind, value in found.items()}
    kind = max(shares, key=lambda one: shares[one])
    if shares[kind] <= 1:
        return {"out_of_distribution": False}
    return {
        "out_of_distribution": True,
        "why": f"{_why(kind, look, told)}: {shares[kind]:.1f} times the limit of held-out images",
    }


def _why(kind: str, look: np.ndarray, told: Mapping[str, Any]) -> str:
    if kind == "features":
        return "the network sees in it what it did not see in training images"
    z = (look - np.array(told["look"]["centre"])) / np.array(told["look"]["scale"])
    first = np.argsort(-np.abs(z))[:2]
    words = " and ".join(f"{NAMES[at]} ({z[at]:+.0f} spreads)" for at in first)
    return f"it does not look like the training images in {words}"
