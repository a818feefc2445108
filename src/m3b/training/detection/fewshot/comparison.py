"""A few-shot detector against the ordinary detector of this template, of masks: both learn from the same cases, and the same
cases that neither has seen tell which is delivered."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.detection.fewshot.data import Cases
from m3b.training.detection.fewshot.fitting import Fitted, answers
from m3b.training.ranking_metrics import auroc

ASIDE = Path("Logout/detector")
FILES = ("metrics.json", "calibration.json", "valid_predictions.json", "fold0/best.safetensors")
TrainDetector = Callable[[dict[str, Any], float], None]
"""Trains a plan of the ordinary detector for some minutes."""
OWN = ("patch", "batch", "channels", "precision", "mirror")
"""Settings of the ordinary detector that those of the few-shot engine take the place of; plan.json keeps them in `detector`."""


def detector_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of the ordinary detector out of that of the few-shot engine."""
    return {**plan, **plan["detector"], "engine": "patches"}


def run_detector(plan: Mapping[str, Any], minutes: float, train: TrainDetector) -> set[str]:
    """Train the ordinary detector and put its results aside; return the images that it was chosen on."""
    train(detector_plan(plan), minutes)
    for name in FILES:
        (ASIDE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"Logout/{name}", ASIDE / name)
    rows = json.loads((ASIDE / "valid_predictions.json").read_text())
    return {json.dumps(row["image"]) for row in rows}


def parted(cases: Cases, held: set[str]) -> tuple[list[int], list[int]]:
    """Rows to learn from and rows to compare on: those that the ordinary detector was chosen on."""
    names = [json.dumps(record["image_path"]) for record in cases.records]
    return [row for row, name in enumerate(names) if name not in held], [
        row for row, name in enumerate(names) if name in held
    ]


def quality(fitted: Fitted, valid: Cases, threshold: float) -> dict[str, float]:
    """AUROC of images, and mean Dice of the cases with something to mark, as the ordinary detector is measured."""
    score, shown, _ = answers(fitted, valid.pictures)
    truth, found = valid.truths[:, 0].numpy() > 0.5, shown >= threshold
    marked = truth.reshape(len(truth), -1).any(axis=1)
    both = (truth & found).reshape(len(truth), -1).sum(axis=1)
    sizes = truth.reshape(len(truth), -1).sum(axis=1) + found.reshape(len(truth), -1).sum(axis=1)
    dice = float(np.mean(2 * both[marked] / np.maximum(sizes[marked], 1))) if marked.any() else float("nan")
    return {"image_auroc": auroc(valid.abnormal.numpy(), score), "dice": dice}


def detector_wins(ours: Mapping[str, float], beside: Mapping[str, Any]) -> bool:
    """Whether the mean of Dice and AUROC of images is higher for the ordinary detector; says both.

    A figure that one of the two lacks (all held-out cases of one state have no AUROC) counts for neither.
    """
    known = [name for name in ("dice", "image_auroc") if np.isfinite(ours[name]) and beside.get(name) is not None]
    means = [float(np.mean([float(one[name]) for name in known])) if known else 0.0 for one in (ours, beside)]
    told = (
        ", ".join(f"{name} {ours[name]:.3f} against {float(beside[name]):.3f}" for name in known)
        or "nothing to compare on"
    )
    wins = means[1] > means[0]
    print(
        f"kept: {'the ordinary detector' if wins else 'few-shot'} (validation, few-shot against ordinary: {told})",
        flush=True,
    )
    return wins


def bring_back() -> None:
    """The ordinary detector's files in place of the few-shot engine's."""
    for name in FILES:
        shutil.copy(ASIDE / name, f"Logout/{name}")


def beside() -> dict[str, Any]:
    """The validation figures of the ordinary detector."""
    found: dict[str, Any] = json.loads((ASIDE / "metrics.json").read_text())["validation"]
    return found
