"""Comparison of a few-shot detector with the ordinary detector for masks.

Both learn from the same cases, and held-out cases that neither has seen decide which one is delivered.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.detection.fewshot.data import PictureCases
from m3b.training.detection.fewshot.fitting import Fitted, predict_images
from m3b.training.detection.fewshot.scoring import enlarge_map, lesion_probabilities
from m3b.training.ignored_voxels import clear_ignored
from m3b.training.lesions import dice, mean_defined
from m3b.training.ranking_metrics import auroc

DETECTOR_FOLDER = Path("Logout/detector")
RESULT_FILES = ("metrics.json", "calibration.json", "valid_predictions.json", "fold0/best.safetensors")
TrainDetector = Callable[[dict[str, Any], float], None]
"""Trains a plan of the ordinary detector for some minutes."""
ORDINARY_SETTINGS = ("patch", "batch", "channels", "precision", "mirror")
"""Settings of the ordinary detector that the few-shot engine replaces; plan.json stores them in `detector`."""


def ordinary_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of the ordinary detector from that of the few-shot engine."""
    return {**plan, **plan["detector"], "engine": "patches"}


def train_ordinary_detector(plan: Mapping[str, Any], minutes: float, train: TrainDetector) -> set[str]:
    """Train the ordinary detector and move its results away; return its validation images."""
    train(ordinary_plan(plan), minutes)
    for name in RESULT_FILES:
        (DETECTOR_FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"Logout/{name}", DETECTOR_FOLDER / name)
    rows = json.loads((DETECTOR_FOLDER / "valid_predictions.json").read_text())
    return {json.dumps(row["image"]) for row in rows}


def split_rows(cases: PictureCases, held_out_images: set[str]) -> tuple[list[int], list[int]]:
    """Return rows to train on, and rows to compare on: the validation cases of the ordinary detector."""
    names = [json.dumps(record["image_path"]) for record in cases.records]
    train_rows = [row for row, name in enumerate(names) if name not in held_out_images]
    return train_rows, [row for row, name in enumerate(names) if name in held_out_images]


def measure_fewshot(plan: Mapping[str, Any], fitted: Fitted, valid: PictureCases, threshold: float) -> dict[str, float]:
    """Return AUROC of images, and mean Dice, as the ordinary detector is measured: 0 for a case without lesion in which one is marked,
    none if none is."""
    score, maps, _ = predict_images(fitted, valid)
    dices = []
    for truth, deviation_map in zip(valid.masks(), maps, strict=True):
        lesion = lesion_probabilities(plan, enlarge_map(deviation_map, truth.shape), threshold) >= 0.5
        predicted, true_mask = clear_ignored(lesion, truth)
        dices.append(dice(predicted, true_mask > 0))
    return {"image_auroc": auroc(valid.abnormal.numpy(), score), "dice": mean_defined(dices)}


def is_ordinary_better(fewshot: Mapping[str, float], ordinary: Mapping[str, Any]) -> bool:
    """Return whether the mean of Dice and image AUROC is higher for the ordinary detector; print both.

    A metric that one of them lacks (AUROC if all held-out cases have one state) is ignored.
    """
    shared = [name for name in ("dice", "image_auroc") if np.isfinite(fewshot[name]) and ordinary.get(name) is not None]
    means = [
        float(np.mean([float(metrics[name]) for name in shared])) if shared else 0.0 for metrics in (fewshot, ordinary)
    ]
    figures = [f"{name} {fewshot[name]:.3f} against {float(ordinary[name]):.3f}" for name in shared]
    is_better = means[1] > means[0]
    winner = "the ordinary detector" if is_better else "few-shot"
    comparison = ", ".join(figures) or "nothing to compare on"
    print(f"kept: {winner} (validation, few-shot against ordinary: {comparison})", flush=True)
    return is_better


def restore_ordinary_results() -> None:
    """Replace the results of the few-shot engine by those of the ordinary detector."""
    for name in RESULT_FILES:
        shutil.copy(DETECTOR_FOLDER / name, f"Logout/{name}")


def read_ordinary_metrics() -> dict[str, Any]:
    """Return the validation metrics of the ordinary detector."""
    metrics: dict[str, Any] = json.loads((DETECTOR_FOLDER / "metrics.json").read_text())["validation"]
    return metrics
