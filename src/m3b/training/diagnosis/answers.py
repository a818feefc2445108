"""From network outputs to the answers of predict.py: probabilities and a class, a grade, or a number with an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from m3b.training.diagnosis.followup import median_time, survival_risk
from m3b.training.diagnosis.grade_rules import decide_grades


def interpret_logits(logits: torch.Tensor, config: Mapping[str, Any]) -> torch.Tensor:
    """Return what (B, K) scaled outputs mean: probabilities, numbers, or survival curves."""
    if config["task"] == "survival":
        return (1 - logits.sigmoid()).cumprod(dim=1)
    if not config["probabilities"]:
        return logits
    return logits.sigmoid() if config["multi_label"] else logits.softmax(dim=1)


def format_answer(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    """Return the answer for one image from its (K,) values."""
    if not np.isfinite(row).all():
        return {"error": "the prediction for this image is not finite"}
    return ANSWER_FORMATS[str(config["task"])](config, np.asarray(row, dtype=np.float64))


def _format_classes(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    classes, values = config["classes"], [float(value) for value in row]
    if config["multi_label"]:
        decided: Any = [
            name for name, p, threshold in zip(classes, values, config["thresholds"], strict=True) if p >= threshold
        ]
    else:
        decided = classes[int(np.argmax(row / np.array(config["thresholds"])))]
    answer = {"probabilities": dict(zip(classes, values, strict=True)), "prediction": decided}
    return {**answer, **format_prediction_set(config, values, decided)}


def format_prediction_set(config: Mapping[str, Any], values: list[float], decided: Any) -> dict[str, Any]:
    """Return the classes that cannot be ruled out (conformal prediction), and whether they differ from the decision."""
    sets = config.get("sets") or {}
    if "cuts" not in sets:
        return {}
    prediction_set = [
        name for name, p, threshold in zip(config["classes"], values, sets["cuts"], strict=True) if p >= threshold
    ]
    decided_for = decided if isinstance(decided, list) else [decided]
    return {
        "prediction_set": prediction_set,
        "set_level": sets["level"],
        "abstains": set(prediction_set) != set(decided_for),
    }


def _format_grade(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    classes = config["classes"]
    class_probabilities = dict(zip(classes, [float(value) for value in row], strict=True))
    decided = classes[int(decide_grades(row[None], config["decide"])[0])]
    return {
        "probabilities": class_probabilities,
        "prediction": decided,
        **format_prediction_set(config, [float(value) for value in row], decided),
    }


def _format_number(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    value, interval = float(row[0]), config.get("interval")
    if not interval:
        return {"value": value}
    limits = [value - interval["reach"], value + interval["reach"]]
    return {"value": value, "interval": limits, "interval_level": interval["level"]}


def _format_survival(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    edges = [float(edge) for edge in config["edges"]]
    curve = [[edge, float(value)] for edge, value in zip(edges, row, strict=True)]
    return {"risk": float(survival_risk(row[None], edges)[0]), "survival": curve, "median": median_time(row, edges)}


ANSWER_FORMATS = {
    "diagnosis": _format_classes,
    "grading": _format_grade,
    "regression": _format_number,
    "survival": _format_survival,
}
"""Task -> answer for one image."""
