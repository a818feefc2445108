"""A few-shot detector and ordinary networks asked together: one score of an image out of both.

The few-shot detector and networks from random weights err on different images, and networks that were taught with different parts
of so few examples differ from each other by chance, so that their mean is steadier than any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.detection.boxes import apply_logistic, fit_logistic, logit
from m3b.training.detection.fewshot.scoring import SURE

SHARE = 2.0
"""Of the ordinary networks where the few-shot detector has one: better than one to one with 4, 8 and 16 examples a state (training
part of PneumoniaMNIST, three draws). The ordinary networks alone were a little better from 8 on, and worse with 4."""


@torch.no_grad()
def raw(model: nn.Module, images: torch.Tensor, batch: int = 32) -> np.ndarray:
    """(N,) chances as an ordinary network gives them."""
    model.eval()
    return torch.cat([model(pixel_values=one)["logits"][:, 0].sigmoid() for one in images.split(batch)]).numpy()


def mean_logit(models: Sequence[nn.Module], images: torch.Tensor) -> np.ndarray:
    """(N,) what ordinary networks say on average, as logits."""
    found: np.ndarray = np.mean([logit(raw(model, images)) for model in models], axis=0)
    return found


def settle(few: np.ndarray, ordinary: np.ndarray, abnormal: np.ndarray) -> dict[str, Any]:
    """What brings both to one scale, and their sum to chances, from what each says of cases that it was not taught with.

    Args:
        few: (N,) deviations above normal.
        ordinary: (N,) logits.
        abnormal: (N,) truth, both states.
    """
    config: dict[str, Any] = {"deviations": [_deviation(one, abnormal) for one in (few, ordinary)], "share": SHARE}
    found = total(few, ordinary, config)
    config["middle"] = float(0.5 * (found[abnormal].mean() + found[~abnormal].mean()))
    config["calibration"] = list(fit_logistic(_squashed(found, config), abnormal))
    return config


def total(few: np.ndarray, ordinary: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """(N,) weighted mean of both, each in its own deviations."""
    (one, other), share = config["deviations"], float(config["share"])
    result: np.ndarray = (few / one + share * ordinary / other) / (1 + share)
    return result


def joint_chances(few: np.ndarray, ordinary: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """(N,) anomaly scores from 0 to 1."""
    return apply_logistic(_squashed(total(few, ordinary, config), config), config["calibration"])


def _deviation(values: np.ndarray, abnormal: np.ndarray) -> float:
    """Within a state, the mean of both; of all where a state has too few cases to tell."""
    inside = 0.5 * (values[abnormal].var() + values[~abnormal].var())
    sure = min(int(abnormal.sum()), int((~abnormal).sum())) >= SURE
    return max(float(np.sqrt(inside if sure else values.var())), 1e-6)


def _squashed(found: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(found - float(config["middle"]), -30, 30)))
    return result
