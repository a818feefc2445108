"""Scores and maps from text similarity and memory distance, comparable between images.

Both are standardised by mean and deviation of normal images that are known beforehand (validation, else training, each left out of
the memory for its own score). So an image's score does not depend on the other images of a request, unlike with min-max scaling
over a test set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.training.detection.boxes import apply_logistic, fit_logistic
from m3b.training.detection.fewshot.model import DepthFeatures, FewshotModel, NetworkInput, resize_maps
from m3b.training.ignored_voxels import IGNORE
from m3b.training.recipe import get_recipe

TOP_PIXEL_SHARE = 0.05
"""Share of a memory map's pixels that determines an image's score."""
MAX_MEMORY_ROWS = 4_000
"""Rows of a memory per depth; larger ones are subsampled. The published protocol keeps all."""
SHRINKAGE_CASES = 16
"""Cases at which the measured separation of a score counts as much as the expected one."""
MIN_CASES_PER_STATE = 4
"""Minimum cases of each state for a choice or a calibration."""
DEFAULT_HALF_DEVIATION = 2.0
"""Deviations above normal images at which an image's score is 0.5 without validation cases."""
Signals = dict[str, np.ndarray]
"""`image`, `memory` (N,) and `map`, `away` (N, M, M) on the grid of the patches: text similarity and memory distance of N images."""


def memory_features(model: FewshotModel, depth: DepthFeatures, is_frozen: bool) -> torch.Tensor:
    """Return (B, patches, width) features that the memory holds: frozen ones, else those of the head that is used."""
    if is_frozen:
        return depth.frozen
    return depth.seg if model.pixels else depth.det


@torch.no_grad()
def build_banks(
    model: FewshotModel, batches: Iterable[NetworkInput], image_count: int, is_frozen: bool
) -> list[torch.Tensor]:
    """Return (rows, width) features of `image_count` images for each depth; with the published protocol those of all tokens."""
    banks: list[list[torch.Tensor]] = []
    image_number = 0
    for inputs in batches:
        depths = model.features(inputs, model.pixels)
        banks = banks or [[] for _ in depths]
        for depth, rows in zip(depths, banks, strict=True):
            if model.paper:
                rows.append((depth.all_seg if model.pixels else depth.all_det).flatten(0, 1))
                continue
            features = memory_features(model, depth, is_frozen)
            step = memory_step(image_count, features.shape[1])
            rows.append(features.flatten(0, 1)[-image_number * features.shape[1] % step :: step])
        image_number += len(depths[0].det)
    return [torch.cat(rows) for rows in banks]


def memory_step(image_count: int, patches: int) -> int:
    """Return the step between the patches that a memory keeps."""
    return max(1, -(-image_count * patches // MAX_MEMORY_ROWS))


@dataclass
class OwnImages:
    """Says that the scored images are those of the memory: each is compared with the others.

    Args:
        count: number of the images.
        are_abnormal: whether they are those of the abnormal part.
    """

    count: int
    are_abnormal: bool


@torch.no_grad()
def compute_signals(
    model: FewshotModel,
    batches: Iterable[NetworkInput],
    banks: Sequence[torch.Tensor],
    own_images: OwnImages | None = None,
) -> Signals:
    """Return text similarity and memory distance of all images; zeros for a missing one.

    Args:
        banks: of each depth the patches of normal images; then, or not, those of abnormal images.
    """
    parts: dict[str, list[torch.Tensor]] = {"image": [], "memory": [], "map": [], "away": []}
    image_number = 0
    for inputs in batches:
        if model.adapting:
            image_scores, maps, features = model.scores(inputs)
        else:
            features = model.features(inputs)
            count = len(features[0].det)
            image_scores, maps = torch.zeros(count), torch.zeros(count, model.map_side, model.map_side)
        distance_maps = torch.zeros_like(maps)
        if len(banks) and own_images and own_images.count > 1:
            for item in range(len(maps)):
                other_rows = _without_image(model, features, banks, image_number + item, own_images)
                distance_maps[item] = memory_map([_item_of(depth, item) for depth in features], other_rows, model)[0]
        elif len(banks):
            distance_maps = memory_map(features, banks, model)
        image_number += len(maps)
        flat = distance_maps.flatten(1)
        if len(banks) > len(features) or (model.paper and not model.pixels):
            memory = flat.mean(dim=1)
        else:
            memory = flat.topk(max(1, round(TOP_PIXEL_SHARE * flat.shape[1])), dim=1).values.mean(dim=1)
        for name, value in (("image", image_scores), ("memory", memory), ("map", maps), ("away", distance_maps)):
            parts[name].append(value)
    return {name: torch.cat(value).numpy() for name, value in parts.items()}


def _item_of(depth: DepthFeatures, item: int) -> DepthFeatures:
    seg, det, frozen = (part[item : item + 1] for part in (depth.all_seg, depth.all_det, depth.frozen))
    return DepthFeatures(seg, det, frozen, depth.grid)


def _without_image(
    model: FewshotModel, features: Sequence[DepthFeatures], banks: Sequence[torch.Tensor], number: int, own: OwnImages
) -> list[torch.Tensor]:
    """Return the memory without the rows of one of its images."""
    other_rows = list(banks)
    for level, depth in enumerate(features):
        place = level + len(features) * own.are_abnormal
        bank = banks[place]
        if model.paper:
            first, last = number * (len(bank) // own.count), (number + 1) * (len(bank) // own.count)
        else:
            patches = depth.det.shape[1]
            step = memory_step(own.count, patches)
            first, last = -(-number * patches // step), -(-(number + 1) * patches // step)
        other_rows[place] = torch.cat([bank[:first], bank[last:]])
    return other_rows


def normal_statistics(signals: Signals, abnormal: np.ndarray) -> dict[str, list[float]]:
    """Return mean and deviation on normal images of each of the four signals.

    With a single normal image the deviation is half of the difference between the states.
    """
    statistics = {}
    for name, values in signals.items():
        normal_values = values if abnormal.all() else values[~abnormal]
        deviation = float(normal_values.std())
        if (~abnormal).sum() == 1 and abnormal.any():
            deviation = float(abs(values[abnormal].mean() - normal_values.mean())) / 2
        statistics[name] = [float(normal_values.mean()), deviation if deviation > 1e-6 else 1.0]
    return statistics


def combine_signals(signals: Signals, config: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return (N,) image scores and (N, M, M) maps in deviations above normal."""
    weight, statistics = float(config["memory_weight"]), config["reference"]
    standardised = {name: (signals[name] - statistics[name][0]) / statistics[name][1] for name in signals}
    image = (1 - weight) * standardised["image"] + weight * standardised["memory"]
    return image, (1 - weight) * standardised["map"] + weight * standardised["away"]


def weights_by_separation(
    scores: Sequence[np.ndarray], abnormal: np.ndarray, expected: Sequence[float] = (1.0, 1.0)
) -> list[float]:
    """Return the weights, with sum 1, of scores in a sum that separates normal from abnormal best.

    For independent normal scores the best weight is the difference between the states over their variance: the separation (difference
    over standard deviation within a state) over the standard deviation. Few cases cannot tell separations apart, so they are shrunk
    towards the expected ratio, with the same mean. A score that separates the wrong way counts 0.

    Args:
        scores: (N,) each, of cases that nothing was trained with; both states, and at least three cases.
        expected: ratio of the separations before any case is seen.
    """
    differences = np.array([values[abnormal].mean() - values[~abnormal].mean() for values in scores])
    deviations = np.array([within_state_deviation(values, abnormal) for values in scores])
    separations, trust = differences / deviations, len(abnormal) / (len(abnormal) + SHRINKAGE_CASES)
    expected_separations = separations.mean() * np.array(expected) / np.mean(expected)
    shrunk = np.maximum(trust * separations + (1 - trust) * expected_separations, 0.0)
    weights = (shrunk if shrunk.any() else np.ones(len(scores))) / deviations
    return [float(weight) for weight in weights / weights.sum()]


def within_state_deviation(values: np.ndarray, abnormal: np.ndarray) -> float:
    """Return the pooled standard deviation within the states."""
    squares = sum(((part - part.mean()) ** 2).sum() for part in (values[abnormal], values[~abnormal]))
    return max(float(np.sqrt(squares / max(len(values) - 2, 1))), 1e-6)


def calibrate(model: FewshotModel, signals: Signals, abnormal: np.ndarray, has_memory: bool) -> dict[str, Any]:
    """Return the configuration from signals to predictions, from labelled images that the adapters were not trained on, if any.

    With two cases of each state, text similarity and memory are weighted by their separations, else equally. With enough cases of
    both states, the probability of being abnormal is fitted.
    """
    config: dict[str, Any] = {
        "reference": normal_statistics(signals, abnormal),
        "memory_weight": (0.5 if has_memory else 0.0) if model.adapting else 1.0,
    }
    fewest = min(int(abnormal.sum()), int((~abnormal).sum()))
    if fewest > 1 and has_memory and model.adapting:
        scaled = [
            (signals[name] - config["reference"][name][0]) / config["reference"][name][1]
            for name in ("image", "memory")
        ]
        config["memory_weight"] = weights_by_separation(scaled, abnormal)[1]
    image_scores, _ = combine_signals(signals, config)
    has_enough = fewest >= MIN_CASES_PER_STATE
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
    """Return (N,) scores and (N, M, M) maps of the published evaluation: each min-max scaled over the set, then averaged."""
    maps = 0.5 * min_max(signals["map"]) + 0.5 * min_max(signals["away"])
    if pixels:
        return maps.reshape(len(maps), -1).max(axis=1), maps
    return 0.5 * min_max(signals["image"]) + 0.5 * min_max(signals["memory"]), maps


def enlarge_map(deviation_map: np.ndarray, size: Sequence[int], align_corners: bool = False) -> np.ndarray:
    """Return a map (M, M) at the size of an image."""
    maps = torch.from_numpy(np.asarray(deviation_map, np.float32))[None, None]
    enlarged: np.ndarray = resize_maps(maps, size, align_corners)[0, 0].numpy()
    return enlarged


def lesion_probabilities(plan: Mapping[str, Any], deviation_map: np.ndarray, threshold: float) -> np.ndarray:
    """Return probabilities of the pixels of a map as the recipe post-processes them; the lesion is where they are at least 0.5."""
    probabilities = 1 / (1 + np.exp(-np.clip(deviation_map.astype(float) - threshold, -30, 30)))
    return np.asarray(get_recipe().postprocess(plan, probabilities[None])[0])


def mask_threshold(maps: np.ndarray, masks: Iterable[np.ndarray]) -> float:
    """Return the deviations above normal with the best Dice as threshold of pixels, else three.

    Args:
        maps: (N, M, M).
        masks: (S, S) truth of each of them: 0, 1 or IGNORE.
    """
    thresholds = np.unique(np.quantile(maps, np.linspace(0.5, 0.999, 40)))
    overlap, size = np.zeros(len(thresholds)), np.zeros(len(thresholds))
    marked = 0
    for deviation_map, mask in zip(maps, masks, strict=True):
        enlarged = enlarge_map(deviation_map, mask.shape)
        values, inside = np.sort(enlarged[mask != IGNORE]), np.sort(enlarged[mask == 1])
        size += len(values) - np.searchsorted(values, thresholds)
        overlap += len(inside) - np.searchsorted(inside, thresholds)
        marked += len(inside)
    return float(thresholds[int(np.argmax(2 * overlap / np.maximum(size + marked, 1)))]) if marked else 3.0


def memory_distances(features: torch.Tensor, bank: torch.Tensor, chunk: int = 4096) -> torch.Tensor:
    """Return (B, patches) 1 - largest cosine similarity to a row of the bank (rows, width)."""
    rows, flat = _unit_directions(bank), _unit_directions(features).flatten(0, 1)
    parts = [1 - (part @ rows.T).amax(dim=1) for part in flat.split(chunk)]
    return torch.cat(parts).view(features.shape[:2])


def _unit_directions(x: torch.Tensor) -> torch.Tensor:
    """Return unit vectors; zero features, as after a rectifier, get a separate common direction."""
    is_zero = (x.norm(dim=-1, keepdim=True) < 1e-6).to(x.dtype)
    return torch.cat([functional.normalize(x, dim=-1), is_zero], dim=-1)


def memory_map(features: Sequence[DepthFeatures], banks: Sequence[torch.Tensor], model: FewshotModel) -> torch.Tensor:
    """Return (B, M, M) mean over the depths of the distance to the normal patches, on the finest grid.

    If the memory has abnormal patches, too, it is the distance to the normal ones less that to the abnormal ones.
    """
    has_abnormal = len(banks) > len(features)
    maps = []
    for level, depth in enumerate(features):
        tokens = memory_features(model, depth, has_abnormal)
        away = memory_distances(tokens, banks[level])
        if has_abnormal:
            away = away - memory_distances(tokens, banks[level + len(features)])
        maps.append(resize_maps(away.unflatten(1, depth.grid)[:, None], (model.map_side,) * 2, model.paper)[:, 0])
    return torch.stack(maps).mean(dim=0)
