"""Prediction of whole validation cases, and the Dice of each class."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from m3b.training.box_masks import fill_predicted
from m3b.training.ignored_voxels import clear_ignored
from m3b.training.lesions import dice
from m3b.training.recipe import get_recipe
from m3b.training.segmentation.ordered_structures import decide_rows
from m3b.training.segmentation.sliding_window import average_over_shifts, choose_window, predict_windows


def predict_case(model: torch.nn.Module, image: torch.Tensor, plan: Mapping[str, Any], device: Any) -> torch.Tensor:
    """Return logits (K + 1 or K, *shape) of (C, *shape), window by window; rows of structures are decided in the whole image."""
    mirror = ["hwd".index(name) for name in plan.get("mirror") or [] if plan["mirror"] != "auto"]

    def run_network(windows: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(model(pixel_values=windows)["logits"])

    def run_windows(shifted: torch.Tensor) -> torch.Tensor:
        window = choose_window(shifted.shape[1:], plan)
        batch = max(1, int(np.prod(plan["patch"])) * int(plan["batch"]) // int(np.prod(window)))
        return predict_windows(shifted, run_network, window, plan["pad_value"], device, batch, mirror)

    logits = (
        average_over_shifts(image, run_windows, plan["pad_value"])
        if plan.get("shifted") is True
        else run_windows(image)
    )
    return decide_rows(logits, plan) if plan.get("chains") else logits


def decide_mask(logits: torch.Tensor, overlap: bool) -> np.ndarray:
    """Convert logits to uint8: class ids (*shape), or 0/1 channels (K, *shape)."""
    return np.asarray(logits > 0 if overlap else logits.argmax(0), np.uint8)


def finish_mask(predicted: np.ndarray, truth: np.ndarray, plan: Mapping[str, Any]) -> np.ndarray:
    """Return a decided mask as it is delivered; its boxes, if the true masks are boxes."""
    mask: np.ndarray = get_recipe().postprocess(plan, predicted)
    return fill_predicted(mask, truth, bool(plan["overlap"])) if plan.get("boxes") else mask


def class_dice(predicted: np.ndarray, truth: np.ndarray, classes: int, overlap: bool) -> list[float]:
    """Return the Dice of each class in the labelled voxels; NaN if neither mask has it."""
    predicted, truth = clear_ignored(predicted, truth)
    if overlap:
        return [dice(predicted[k] > 0, truth[k] > 0) for k in range(classes)]
    return [dice(predicted == k + 1, truth == k + 1) for k in range(classes)]


def dice_table(model: torch.nn.Module, cases: Any, rows: list[int], plan: Mapping[str, Any], device: Any) -> np.ndarray:
    """Return (len(rows), K) Dice at the plan's spacing."""
    overlap, table = bool(plan["overlap"]), []
    for row in rows:
        item = cases[row]
        mask = decide_mask(predict_case(model, item["pixel_values"], plan, device), overlap)
        truth = item["labels"].numpy()
        table.append(class_dice(finish_mask(mask, truth, plan), truth, len(plan["classes"]), overlap))
    return np.array(table, float)


def mean_dice(table: np.ndarray) -> float:
    """Return the mean over classes of their means over cases; classes without any value are left out. 0 if all are."""
    means = [float(np.nanmean(column)) for column in table.T if np.isfinite(column).any()]
    return float(np.mean(means)) if means else 0.0


def sample_cases(cases: Any, max_cases: int) -> list[int]:
    """Return at most `max_cases` validation cases, always the same random ones."""
    rows = list(range(len(cases)))
    return sorted(random.Random(0).sample(rows, min(max_cases, len(rows))))
