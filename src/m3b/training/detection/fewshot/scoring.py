"""Scores and maps from text similarity and memory distance, comparable between images.

Both are standardised by mean and deviation of normal images that are known beforehand (validation, else training, each left out of
the memory for its own score). So an image's score does not depend on the other images of a request, unlike with min-max scaling
over a test set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.training.detection.boxes import apply_logistic, fit_logistic
from m3b.training.detection.fewshot.model import DepthFeatures, FewshotModel
from m3b.training.ranking_metrics import auroc

TOP_PIXEL_SHARE = 0.05
"""Share of a memory map's pixels that determines an image's score."""
MAX_MEMORY_ROWS = 4_000
"""Rows of a memory per depth; larger ones are subsampled. The published protocol keeps all."""
MEMORY_WEIGHTS = (0.5, 0.0, 0.25, 0.75, 1.0)
"""Weights of the memory relative to text similarity; chosen on validation, else the first."""
MIN_CASES_PER_STATE = 4
"""Minimum cases of each state for a choice or a calibration."""
DEFAULT_HALF_DEVIATION = 2.0
"""Deviations above normal images at which an image's score is 0.5 without validation cases."""
Signals = dict[str, np.ndarray]
"""`image`, `memory` (N,) and `map`, `away` (N, S, S): text similarity and memory distance of N images."""


@torch.no_grad()
def build_banks(model: FewshotModel, images: torch.Tensor, use_pixel_head: bool) -> list[torch.Tensor]:
    """Return (rows, width) features of normal images for each depth; with the published protocol those of all tokens."""
    of_images = [model.features(image[None]) for image in images]
    banks = []
    for depths in zip(*of_images, strict=True):
        if model.paper:
            banks.append(torch.cat([(d.all_seg if use_pixel_head else d.all_det).flatten(0, 1) for d in depths]))
        else:
            rows = torch.cat([(d.seg if use_pixel_head else d.det).flatten(0, 1) for d in depths])
            banks.append(rows[:: max(1, -(-len(rows) // MAX_MEMORY_ROWS))])
    return banks


@torch.no_grad()
def compute_signals(
    model: FewshotModel, images: torch.Tensor, banks: Sequence[torch.Tensor], batch: int = 8
) -> Signals:
    """Return text similarity and memory distance of (N, 3, S, S); zeros for a missing one."""
    parts: dict[str, list[torch.Tensor]] = {"image": [], "memory": [], "map": [], "away": []}
    for part in images.split(batch):
        if model.adapting:
            image_scores, maps, features = model.scores(part)
        else:
            features = model.features(part)
            image_scores, maps = (torch.zeros(len(part)), torch.zeros(len(part), model.size, model.size))
        distance_maps = torch.zeros_like(maps)
        if len(banks):
            distance_maps = memory_map(features, banks, model.size, model.pixels)
        flat = distance_maps.flatten(1)
        top_distance = flat.topk(max(1, round(TOP_PIXEL_SHARE * flat.shape[1])), dim=1).values.mean(dim=1)
        memory = distance_maps.flatten(1).mean(dim=1) if model.paper and not model.pixels else top_distance
        for name, value in (("image", image_scores), ("memory", memory), ("map", maps), ("away", distance_maps)):
            parts[name].append(value)
    return {name: torch.cat(value).numpy() for name, value in parts.items()}


def compute_own_signals(
    model: FewshotModel, images: torch.Tensor, normal: torch.Tensor, use_pixel_head: bool
) -> Signals:
    """Return signals of images whose normal ones form the memory: each normal image is compared with the others."""
    all_banks = build_banks(model, images[normal], use_pixel_head) if normal.any() else []
    signals = []
    numbers = np.flatnonzero(normal.numpy()).tolist()
    for row in range(len(images)):
        banks = all_banks
        if row in numbers and len(numbers) > 1:
            other_normal = [number for number in numbers if number != row]
            banks = build_banks(model, images[other_normal], use_pixel_head)
        signals.append(compute_signals(model, images[row : row + 1], banks))
    return {name: np.concatenate([row[name] for row in signals]) for name in signals[0]}


def normal_statistics(signals: Signals, normal: np.ndarray) -> dict[str, list[float]]:
    """Return mean and deviation on normal images of each of the four signals."""
    statistics = {}
    for name, values in signals.items():
        normal_values = values[normal] if normal.any() else values
        deviation = float(normal_values.std())
        statistics[name] = [float(normal_values.mean()), deviation if deviation > 1e-6 else 1.0]
    return statistics


def combine_signals(signals: Signals, config: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return (N,) image scores and (N, S, S) maps in deviations above normal."""
    weight, statistics = float(config["memory_weight"]), config["reference"]
    standardised = {name: (signals[name] - statistics[name][0]) / statistics[name][1] for name in signals}
    image = (1 - weight) * standardised["image"] + weight * standardised["memory"]
    return image, (1 - weight) * standardised["map"] + weight * standardised["away"]


def calibrate(model: FewshotModel, signals: Signals, abnormal: np.ndarray, has_memory: bool) -> dict[str, Any]:
    """Return the configuration from signals to predictions, from labelled images that the adapters were not trained on, if any.

    With enough cases of both states, the weight of the memory has the best AUROC, and the probability of being abnormal is fitted.
    """
    config: dict[str, Any] = {
        "reference": normal_statistics(signals, ~abnormal),
        "memory_weight": 0.5 if has_memory else 0.0,
    }
    if not model.adapting:
        config["memory_weight"] = 1.0
    has_enough = min(int(abnormal.sum()), int((~abnormal).sum())) >= MIN_CASES_PER_STATE
    if has_enough and has_memory and model.adapting:
        values = [
            auroc(abnormal, combine_signals(signals, {**config, "memory_weight": weight})[0])
            for weight in MEMORY_WEIGHTS
        ]
        config["memory_weight"] = MEMORY_WEIGHTS[int(np.argmax(values))]
    image_scores, _ = combine_signals(signals, config)
    coefficients = fit_logistic(_to_unit_interval(image_scores), abnormal) if has_enough else (1.0, 0.0)
    return {**config, "image_calibration": list(coefficients)}


def to_probabilities(image: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Return (N,) anomaly scores from 0 to 1."""
    return apply_logistic(_to_unit_interval(image), config["image_calibration"])


def _to_unit_interval(image: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(image - DEFAULT_HALF_DEVIATION, -30, 30)))
    return result


def to_map_levels(maps: np.ndarray) -> np.ndarray:
    """Convert deviations above normal to integers from 0 to 1000, 500 for normal; monotonic without clipping."""
    result: np.ndarray = np.rint(500 + 500 * maps / (1 + np.abs(maps))).astype(np.uint16)
    return result


def min_max(values: np.ndarray) -> np.ndarray:
    """Scale over all images, as the published evaluation does; only for its reproduction."""
    low, high = float(values.min()), float(values.max())
    result: np.ndarray = (values - low) / max(high - low, 1e-12)
    return result


def combine_as_published(signals: Signals, pixels: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (N,) scores and (N, S, S) maps of the published evaluation: each min-max scaled over the set, then averaged."""
    maps = 0.5 * min_max(signals["map"]) + 0.5 * min_max(signals["away"])
    if pixels:
        return maps.reshape(len(maps), -1).max(axis=1), maps
    return 0.5 * min_max(signals["image"]) + 0.5 * min_max(signals["memory"]), maps


def mask_threshold(maps: np.ndarray, truth: np.ndarray) -> float:
    """Return the deviations above normal with the best Dice as threshold of pixels, else three."""
    if not truth.any():
        return 3.0
    thresholds = np.unique(np.quantile(maps, np.linspace(0.5, 0.999, 40)))
    overlap = [2 * ((maps >= cut) & truth).sum() / max((maps >= cut).sum() + truth.sum(), 1) for cut in thresholds]
    return float(thresholds[int(np.argmax(overlap))])


def memory_distances(features: torch.Tensor, bank: torch.Tensor, chunk: int = 4096) -> torch.Tensor:
    """Return (B, patches) 1 - largest cosine similarity to a row of the bank (rows, width)."""
    rows, flat = _unit_directions(bank), _unit_directions(features).flatten(0, 1)
    parts = [1 - (part @ rows.T).amax(dim=1) for part in flat.split(chunk)]
    return torch.cat(parts).view(features.shape[:2])


def _unit_directions(x: torch.Tensor) -> torch.Tensor:
    """Return unit vectors; zero features, as after a rectifier, get a separate common direction."""
    is_zero = (x.norm(dim=-1, keepdim=True) < 1e-6).to(x.dtype)
    return torch.cat([functional.normalize(x, dim=-1), is_zero], dim=-1)


def memory_map(
    features: Sequence[DepthFeatures], banks: Sequence[torch.Tensor], size: int, pixels: bool
) -> torch.Tensor:
    """Return (B, S, S) mean over the depths of the distance to the normal patches."""
    maps = []
    for depth, bank in zip(features, banks, strict=True):
        away = memory_distances(depth.seg if pixels else depth.det, bank).unflatten(1, depth.grid)[:, None]
        maps.append(functional.interpolate(away, size=(size, size), mode="bilinear", align_corners=True)[:, 0])
    return torch.stack(maps).mean(dim=0)
