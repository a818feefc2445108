"""From the network's outputs to what predict.py says: probabilities and a class, a grade, or a number with an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from m3b.training.diagnosis.followup import median_of, risk_of

RULES = ("mode", "median", "mean")
"""How probabilities of grades become one: the likeliest, the middle one, or the expected one, rounded."""


def meaning(logits: torch.Tensor, config: Mapping[str, Any]) -> torch.Tensor:
    """(B, K) scaled outputs as what they mean: probabilities, for a number itself, for survival the curve."""
    if config["task"] == "survival":
        return (1 - logits.sigmoid()).cumprod(dim=1)
    if not config["probabilities"]:
        return logits
    return logits.sigmoid() if config["multi_label"] else logits.softmax(dim=1)


def grade_of(scores: np.ndarray, rule: str) -> np.ndarray:
    """(N,) number of the grade that the rule makes of (N, K) probabilities."""
    if rule == "mode":
        return scores.argmax(axis=1)
    if rule == "median":
        return (scores.cumsum(axis=1) < 0.5 - 1e-9).sum(axis=1).clip(0, scores.shape[1] - 1)
    return np.floor(scores @ np.arange(scores.shape[1]) + 0.5).astype(np.int64).clip(0, scores.shape[1] - 1)


def answer_of(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    """What is said of one image: (K,) meanings."""
    if not np.isfinite(row).all():
        return {"error": "the network's answer to this image is not finite"}
    return ANSWERS[str(config["task"])](config, np.asarray(row, dtype=np.float64))


def _classes(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    classes, values = config["classes"], [float(value) for value in row]
    if config["multi_label"]:
        called: Any = [name for name, p, cut in zip(classes, values, config["thresholds"], strict=True) if p >= cut]
    else:
        called = classes[int(np.argmax(row / np.array(config["thresholds"])))]
    told = {"probabilities": dict(zip(classes, values, strict=True)), "prediction": called}
    return {**told, **in_set(config, values, called)}


def in_set(config: Mapping[str, Any], values: list[float], called: Any) -> dict[str, Any]:
    """The classes that cannot be ruled out (conformal prediction), and whether they are others than those decided for."""
    sets = config.get("sets") or {}
    if "cuts" not in sets:
        return {}
    some = [name for name, p, cut in zip(config["classes"], values, sets["cuts"], strict=True) if p >= cut]
    decided_for = called if isinstance(called, list) else [called]
    return {"prediction_set": some, "set_level": sets["level"], "abstains": set(some) != set(decided_for)}


def _grades(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    classes = config["classes"]
    chances = dict(zip(classes, [float(value) for value in row], strict=True))
    called = classes[int(grade_of(row[None], config["decide"])[0])]
    return {"probabilities": chances, "prediction": called, **in_set(config, [float(value) for value in row], called)}


def _number(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    value, interval = float(row[0]), config.get("interval")
    if not interval:
        return {"value": value}
    ends = [value - interval["reach"], value + interval["reach"]]
    return {"value": value, "interval": ends, "interval_level": interval["level"]}


def _followed(config: Mapping[str, Any], row: np.ndarray) -> dict[str, Any]:
    edges = [float(edge) for edge in config["edges"]]
    curve = [[edge, float(value)] for edge, value in zip(edges, row, strict=True)]
    return {"risk": float(risk_of(row[None], edges)[0]), "survival": curve, "median": median_of(row, edges)}


ANSWERS = {"diagnosis": _classes, "grading": _grades, "regression": _number, "survival": _followed}
"""Task -> what is said of one image."""
