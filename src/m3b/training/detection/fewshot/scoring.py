"""From the two ways of looking, language and memory, to one map and one score that mean the same for every image.

Both are brought to one scale by mean and deviation of normal images that are known beforehand (validation, else training,
each left out of the memory for its own turn). So an image's score does not depend on which others are asked about, as it
does where scores are min-max scaled over a whole test set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from m3b.training.detection.boxes import apply_logistic, fit_logistic
from m3b.training.detection.fewshot.memory import memory_map
from m3b.training.detection.fewshot.model import FewshotModel
from m3b.training.ranking_metrics import auroc

TOP = 0.05
"""Share of a memory map's pixels that makes an image's score."""
MOST_ROWS = 4_000
"""Of a memory and depth; a spread-out part of more. The published protocol keeps all."""
WEIGHTS = (0.5, 0.0, 0.25, 0.75, 1.0)
"""Of the memory against language, the first where nothing tells; chosen on validation."""
SURE = 4
"""Cases of each state from which on a choice or a calibration is made on them."""
BEYOND = 2.0
"""Deviations above normal images at which an image's score is a half, where no validation cases say better."""
Looks = dict[str, np.ndarray]
"""`image`, `memory` (N,) and `map`, `away` (N, S, S): language and memory of N images."""


@torch.no_grad()
def memories(model: FewshotModel, images: torch.Tensor, pixels: bool) -> list[torch.Tensor]:
    """(rows, width) a depth: features of normal images; with the published protocol those of all tokens."""
    found = [model.features(one[None]) for one in images]
    banks = []
    for level in range(len(model.levels)):
        if model.paper:
            rows = torch.cat([(one[level].all_seg if pixels else one[level].all_det).flatten(0, 1) for one in found])
        else:
            rows = torch.cat([(one[level].seg if pixels else one[level].det).flatten(0, 1) for one in found])
        banks.append(rows if model.paper else rows[:: max(1, -(-len(rows) // MOST_ROWS))])
    return banks


@torch.no_grad()
def look(model: FewshotModel, images: torch.Tensor, banks: Sequence[torch.Tensor], batch: int = 8) -> Looks:
    """What language and memory say of (N, 3, S, S); zeros of what there is not."""
    parts: dict[str, list[torch.Tensor]] = {"image": [], "memory": [], "map": [], "away": []}
    for some in images.split(batch):
        if model.adapting:
            image, shown, found = model.scores(some)
        else:
            found = model.features(some)
            image, shown = torch.zeros(len(some)), torch.zeros(len(some), model.size, model.size)
        away = torch.zeros_like(shown)
        if len(banks):
            away = memory_map(found, banks, model.size, model.pixels)
        flat = away.flatten(1)
        top = flat.topk(max(1, round(TOP * flat.shape[1])), dim=1).values.mean(dim=1)
        memory = away.flatten(1).mean(dim=1) if model.paper and not model.pixels else top
        for name, value in (("image", image), ("memory", memory), ("map", shown), ("away", away)):
            parts[name].append(value)
    return {name: torch.cat(value).numpy() for name, value in parts.items()}


def look_at_own(model: FewshotModel, images: torch.Tensor, normal: torch.Tensor, pixels: bool) -> Looks:
    """As `look`, of images whose normal ones are the memory: each normal image is held against the others alone."""
    whole = memories(model, images[normal], pixels) if normal.any() else []
    rows = []
    numbers = np.flatnonzero(normal.numpy()).tolist()
    for place in range(len(images)):
        banks = whole
        if place in numbers and len(numbers) > 1:
            others = [number for number in numbers if number != place]
            banks = memories(model, images[others], pixels)
        rows.append(look(model, images[place : place + 1], banks))
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def reference(looks: Looks, normal: np.ndarray) -> dict[str, list[float]]:
    """Mean and deviation, on normal images, of each of the four."""
    made = {}
    for name, values in looks.items():
        own = values[normal] if normal.any() else values
        spread = float(own.std())
        made[name] = [float(own.mean()), spread if spread > 1e-6 else 1.0]
    return made


def combined(looks: Looks, config: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) image scores and (N, S, S) maps in deviations above normal."""
    weight, known = float(config["memory_weight"]), config["reference"]
    away = {name: (looks[name] - known[name][0]) / known[name][1] for name in looks}
    image = (1 - weight) * away["image"] + weight * away["memory"]
    return image, (1 - weight) * away["map"] + weight * away["away"]


def calibrate(model: FewshotModel, looks: Looks, abnormal: np.ndarray, banked: bool) -> dict[str, Any]:
    """What turns looks into answers, from labelled images that the adapters were not trained on, where there are some.

    The weight of the memory is that with the best AUROC where there are enough of both states; then the chance of being
    abnormal is fitted too.
    """
    config: dict[str, Any] = {"reference": reference(looks, ~abnormal), "memory_weight": 0.5 if banked else 0.0}
    if not model.adapting:
        config["memory_weight"] = 1.0
    sure = min(int(abnormal.sum()), int((~abnormal).sum())) >= SURE
    if sure and banked and model.adapting:
        values = [auroc(abnormal, combined(looks, {**config, "memory_weight": weight})[0]) for weight in WEIGHTS]
        config["memory_weight"] = WEIGHTS[int(np.argmax(values))]
    image, _ = combined(looks, config)
    fit = fit_logistic(_squashed(image), abnormal) if sure else (1.0, 0.0)
    return {**config, "image_calibration": list(fit)}


def chances(image: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """(N,) anomaly scores from 0 to 1."""
    return apply_logistic(_squashed(image), config["image_calibration"])


def _squashed(image: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(image - BEYOND, -30, 30)))
    return result


def levels(shown: np.ndarray) -> np.ndarray:
    """Deviations above normal to whole numbers from 0 to 1000, 500 for what is usual; never cut off."""
    result: np.ndarray = np.rint(500 + 500 * shown / (1 + np.abs(shown))).astype(np.uint16)
    return result


def min_max(values: np.ndarray) -> np.ndarray:
    """Over all images that are asked about, as the published evaluation scales; for its reproduction alone."""
    low, high = float(values.min()), float(values.max())
    result: np.ndarray = (values - low) / max(high - low, 1e-12)
    return result


def published(looks: Looks, pixels: bool) -> tuple[np.ndarray, np.ndarray]:
    """(N,) scores and (N, S, S) maps of the published evaluation: each scaled over the whole set, then halved together."""
    shown = 0.5 * min_max(looks["map"]) + 0.5 * min_max(looks["away"])
    if pixels:
        return shown.reshape(len(shown), -1).max(axis=1), shown
    return 0.5 * min_max(looks["image"]) + 0.5 * min_max(looks["memory"]), shown


def mask_threshold(shown: np.ndarray, truth: np.ndarray) -> float:
    """Deviations above normal from which a pixel is marked: the best Dice, else three."""
    if not truth.any():
        return 3.0
    cuts = np.unique(np.quantile(shown, np.linspace(0.5, 0.999, 40)))
    overlap = [2 * ((shown >= cut) & truth).sum() / max((shown >= cut).sum() + truth.sum(), 1) for cut in cuts]
    return float(cuts[int(np.argmax(overlap))])
