"""A network over whole validation cases, and the Dice of each class."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from m3b.training.segmentation.ordered_structures import unfold
from m3b.training.segmentation.sliding_window import averaged_over_shifts, sliding, window_of


def run_whole(model: torch.nn.Module, image: torch.Tensor, plan: Mapping[str, Any], device: Any) -> torch.Tensor:
    """(C, *shape) to logits (K + 1 or K, *shape), window by window; rows of structures are decided in the whole image."""
    mirror = ["hwd".index(name) for name in plan.get("mirror") or [] if plan["mirror"] != "auto"]

    def ask(part: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(model(pixel_values=part)["logits"])

    def run(seen: torch.Tensor) -> torch.Tensor:
        window = window_of(seen.shape[1:], plan)
        batch = max(1, int(np.prod(plan["patch"])) * int(plan["batch"]) // int(np.prod(window)))
        return sliding(seen, ask, window, plan["pad_value"], device, batch, mirror)

    found = averaged_over_shifts(image, run, plan["pad_value"]) if plan.get("shifted") is True else run(image)
    return unfold(found, plan) if plan.get("chains") else found


def decide(logits: torch.Tensor, overlap: bool) -> np.ndarray:
    """Logits to uint8: places of classes (*shape), or 0/1 channels (K, *shape)."""
    return (logits > 0).numpy().astype(np.uint8) if overlap else logits.argmax(0).numpy().astype(np.uint8)


def dice_of(found: np.ndarray, truth: np.ndarray, classes: int, overlap: bool) -> list[float]:
    """Dice of each class; NaN where it is in neither mask."""
    values = []
    for place in range(classes):
        a, b = (found[place] > 0, truth[place] > 0) if overlap else (found == place + 1, truth == place + 1)
        values.append(dice_pair(a, b))
    return values


def dice_pair(found: np.ndarray, truth: np.ndarray) -> float:
    """Of two boolean masks; NaN where both are empty."""
    total = int(found.sum()) + int(truth.sum())
    return 2.0 * int((found & truth).sum()) / total if total else float("nan")


def dice_table(model: torch.nn.Module, cases: Any, rows: list[int], plan: Mapping[str, Any], device: Any) -> np.ndarray:
    """(len(rows), K) Dice at the plan's spacing."""
    overlap, table = bool(plan["overlap"]), []
    for row in rows:
        item = cases[row]
        logits = run_whole(model, item["pixel_values"], plan, device)
        table.append(dice_of(decide(logits, overlap), item["labels"].numpy(), len(plan["classes"]), overlap))
    return np.array(table, float)


def mean_dice(table: np.ndarray) -> float:
    """Mean over the classes of their means over the cases; classes that are nowhere are left out. 0 if all are."""
    means = [float(np.nanmean(column)) for column in table.T if np.isfinite(column).any()]
    return float(np.mean(means)) if means else 0.0


def subset(cases: Any, most: int) -> list[int]:
    """The same random validation cases each time: so many as keep scoring quick."""
    rows = list(range(len(cases)))
    return sorted(random.Random(0).sample(rows, min(most, len(rows))))
