"""Out-of-distribution detection: whether an image is unlike the training images, with a limit from held-out cases.

Two Mahalanobis distances: of a dozen features of the grey values (`measure_appearance`), and of the network's last features if
available. The limit is a quantile of the larger distance on held-out cases (split conformal), so that about `rate` of new images like
the training ones are flagged. Only means and spreads are stored, no image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FLAG_RATE = 0.02
"""Share of images like the training ones that are flagged."""
MIN_TRAINING_CASES, MIN_HELD_OUT_CASES = 10, 5
SMALL_SET_MARGIN = 1.25
"""With fewer held-out cases than `1 / FLAG_RATE`, the limit is their maximum times this factor; it then holds for at most 1 of n +
1."""
COARSE_SIDE = 96
"""Sides of the coarse image on which textures are measured."""
SLIDE_SIDE = 128
"""Maximum side at which a slide is measured: noise of its background, which other compressions change, is averaged out."""
MAX_SLICES = 16
LAGS = (1, 2, 4, 8)
PERCENTILES = (1, 25, 50, 75, 99)
FEATURE_NAMES = (
    "darkest values", "lower grey values", "middle grey values", "upper grey values", "brightest values", "share of coarse structure",
    *(f"texture at {lag} of {COARSE_SIDE} pixels" for lag in LAGS), "share of even area", "colour", "shape of the frame",
    "number of slices",
)  # fmt: skip
MAX_COMPONENTS = 24


def measure_appearance(array: np.ndarray) -> np.ndarray:
    """Return (14,) features of an image (C, H, W) or volume (C, H, W, D), in the order of `FEATURE_NAMES`."""
    volume = array if array.ndim == 4 else array[..., None]
    slices = np.unique(np.linspace(0, volume.shape[-1] - 1, min(MAX_SLICES, volume.shape[-1])).round().astype(int))
    sample = np.nan_to_num(volume[..., slices].astype(np.float32))
    grey = sample.mean(axis=0)
    step = max(1, int(np.sqrt(grey.size / 400_000)))
    percentiles = np.percentile(grey[::step, ::step], PERCENTILES)
    coarse = _downsample(grey)
    spread = float(np.abs(grey - grey.mean()).mean())
    rough = float(np.abs(coarse - coarse.mean()).mean())
    even = float((np.abs(np.diff(grey, axis=1)) <= 1e-6 * max(spread, 1e-6)).mean()) if grey.shape[1] > 1 else 1.0
    colour = float((sample.max(axis=0) - sample.min(axis=0)).mean()) / max(spread, 1e-6) if len(sample) == 3 else 0.0
    return np.array([
        *np.arcsinh(percentiles / 50), _log_ratio(rough, spread), *(_texture(coarse, lag, rough) for lag in LAGS), even,
        min(colour, 20.0), np.log(grey.shape[0] / grey.shape[1]), np.log(volume.shape[-1]),
    ])  # fmt: skip


def _downsample(grey: np.ndarray) -> np.ndarray:
    """Return (H, W, S) with sides of at most `COARSE_SIDE`, by block means."""
    for axis in (0, 1):
        size = grey.shape[axis]
        if size > COARSE_SIDE:
            edges = np.linspace(0, size, COARSE_SIDE + 1).astype(int)
            grey = np.add.reduceat(grey, edges[:-1], axis=axis) / np.diff(edges).reshape(
                [-1 if a == axis else 1 for a in range(3)]
            )
    return grey


def _texture(coarse: np.ndarray, lag: int, spread: float) -> float:
    steps = [np.abs(along[lag:] - along[:-lag]).mean() for along in (coarse, coarse.swapaxes(0, 1)) if len(along) > lag]
    return _log_ratio(float(np.mean(steps)) if steps else 0.0, spread)


def _log_ratio(value: float, scale: float) -> float:
    return float(np.log(max(value, 1e-4 * max(scale, 1e-6)) / max(scale, 1e-6)))


def is_blank(array: np.ndarray) -> bool:
    """Return whether all pixels are equal."""
    return bool(np.nanmax(array) - np.nanmin(array) <= 0)


# --- fitting -------------------------------------------------------------------------------------------------------------


def fit_appearance(looks: np.ndarray) -> dict[str, Any]:
    """Return centre, scale and precision of (N, 14) features, as JSON values."""
    centre = np.median(looks, axis=0)
    floor = np.full(looks.shape[1], 0.05)
    floor[: len(PERCENTILES)] = 0.05 * max(float(np.median(looks[:, len(PERCENTILES) - 1] - looks[:, 0])), 0.02)
    scale = np.maximum.reduce([1.4826 * np.median(np.abs(looks - centre), axis=0), 0.3 * looks.std(axis=0), floor])
    return {
        "centre": _round_values(centre),
        "scale": _round_values(scale),
        "precision": _precision((looks - centre) / scale).tolist(),
    }


def _precision(scores: np.ndarray) -> np.ndarray:
    scores = scores.clip(-6, 6)
    share = max(0.1, min(0.5, scores.shape[1] / len(scores)))
    return np.linalg.inv((1 - share) * (scores.T @ scores) / len(scores) + share * np.eye(scores.shape[1])).round(5)


def _round_values(values: np.ndarray) -> list[float]:
    """Round to five decimals: longer numbers could look like a patient identifier."""
    return [round(float(value), 5) for value in values]


def fit_features(features: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean, principal directions and spreads of (N, D) features, as float32 arrays."""
    mean = features.mean(axis=0)
    _, sizes, rows = np.linalg.svd(features - mean, full_matrices=False)
    components = max(1, min(MAX_COMPONENTS, len(features) // 4, int((sizes > 1e-6 * max(sizes[0], 1e-12)).sum())))
    spread = np.maximum(sizes[:components] / np.sqrt(len(features)), 1e-6)
    residual = np.square(sizes[components:]).sum() / len(features)
    residual_row = np.array([max(float(residual), 1e-3 * float(np.square(spread).sum()))])
    arrays = {"mean": mean, "directions": rows[:components], "spread": spread, "left": residual_row}
    return {name: np.ascontiguousarray(value, np.float32) for name, value in arrays.items()}


def fit_limit(held_out: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return `typical` distance of each kind, `limit` and `rate` from the distances of held-out cases by kind."""
    typical = {
        kind: round(float(np.median([distances[kind] for distances in held_out])), 5) or 1.0 for kind in held_out[0]
    }
    worst = np.sort([max(distances[kind] / typical[kind] for kind in distances) for distances in held_out])
    count = len(worst)
    rank = int(np.ceil((count + 1) * (1 - FLAG_RATE)))
    is_sufficient = rank <= count
    limit = float(worst[rank - 1]) if is_sufficient else float(worst[-1]) * SMALL_SET_MARGIN
    return {
        "typical": typical,
        "limit": round(max(limit, 1.5), 4),
        "rate": FLAG_RATE if is_sufficient else round(1 / (count + 1), 4),
        "held_out": count,
    }


# --- detection -----------------------------------------------------------------------------------------------------------


def appearance_distance(appearance: np.ndarray, fitted: Mapping[str, Any]) -> float:
    """Return the distance of an image's features from the training images; about 1 for one of them."""
    scores = (appearance - np.array(fitted["centre"])) / np.array(fitted["scale"])
    return float(np.sqrt(max(scores @ np.array(fitted["precision"]) @ scores, 0.0) / len(scores)))


def feature_distance(row: np.ndarray, fitted: Mapping[str, np.ndarray]) -> float:
    """Return the distance of (D,) network features from those of training images."""
    offset = row.astype(np.float64) - fitted["mean"]
    along = fitted["directions"] @ offset
    residual = max(float(offset @ offset - along @ along), 0.0) / float(fitted["left"][0])
    squared_scores = np.square(along / fitted["spread"])
    return float(np.sqrt((squared_scores.sum() + residual) / (len(squared_scores) + 1)))


def judge_image(array: np.ndarray, detector: Mapping[str, Any] | None, distance: float | None = None) -> dict[str, Any]:
    """Return `{"out_of_distribution": bool}` and, if true, `why`; {} if nothing is known of the training images.

    Args:
        array: `formats.grey_values` of the image, (C, H, W[, D]).
        detector: `familiar` of config.json.
        distance: of the network's features, if available.
    """
    if is_blank(array):
        return {"out_of_distribution": True, "why": "the image is blank: all its values are equal"}
    if not detector or "limit" not in detector:
        return {}
    appearance = measure_appearance(array)
    measured_distances = {"look": appearance_distance(appearance, detector["look"])}
    if distance is not None and "features" in detector["typical"]:
        measured_distances["features"] = distance
    shares = {kind: value / detector["typical"][kind] / detector["limit"] for kind, value in measured_distances.items()}
    kind = max(shares, key=lambda candidate: shares[candidate])
    if shares[kind] <= 1:
        return {"out_of_distribution": False}
    return {
        "out_of_distribution": True,
        "why": f"{_explain(kind, appearance, detector)}: {shares[kind]:.1f} times the limit of held-out images",
    }


def _explain(kind: str, appearance: np.ndarray, detector: Mapping[str, Any]) -> str:
    if kind == "features":
        return "the features of the network differ from those of training images"
    scores = (appearance - np.array(detector["look"]["centre"])) / np.array(detector["look"]["scale"])
    largest = np.argsort(-np.abs(scores))[:2]
    features = " and ".join(f"{FEATURE_NAMES[index]} ({scores[index]:+.0f} spreads)" for index in largest)
    return f"it differs from the training images in {features}"
