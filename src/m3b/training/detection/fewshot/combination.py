"""Ensemble of a few-shot detector and ordinary networks: one score per image.

The few-shot detector and networks from random weights err on different images, and networks trained with different parts of few
examples differ randomly, so their mean is more stable than any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.detection.boxes import apply_logistic, fit_logistic, logit
from m3b.training.detection.fewshot.scoring import MIN_CASES_PER_STATE

ORDINARY_WEIGHT = 2.0
"""Weight of the ordinary networks relative to the few-shot detector.

Better than equal weights with 4, 8 and 16 examples per state (training part of PneumoniaMNIST, three draws). The ordinary networks
alone were slightly better from 8 on, and worse with 4.
"""


@torch.no_grad()
def predict_probabilities(model: nn.Module, images: torch.Tensor, batch: int = 32) -> np.ndarray:
    """Return (N,) uncalibrated probabilities of an ordinary network."""
    model.eval()
    logits = [model(pixel_values=part)["logits"][:, 0] for part in images.split(batch)]
    return np.asarray(torch.cat(logits).sigmoid())


def mean_logit(models: Sequence[nn.Module], images: torch.Tensor) -> np.ndarray:
    """Return the (N,) mean logits of ordinary networks."""
    mean: np.ndarray = np.mean([logit(predict_probabilities(model, images)) for model in models], axis=0)
    return mean


def fit_combination(fewshot_scores: np.ndarray, ordinary_logits: np.ndarray, abnormal: np.ndarray) -> dict[str, Any]:
    """Return scales of both scores and the calibration of their sum, from cases that neither was trained with.

    Args:
        fewshot_scores: (N,) deviations above normal.
        ordinary_logits: (N,) logits.
        abnormal: (N,) truth, with both states.
    """
    deviations = [_within_state_sd(values, abnormal) for values in (fewshot_scores, ordinary_logits)]
    config: dict[str, Any] = {"deviations": deviations, "share": ORDINARY_WEIGHT}
    combined = combine_scores(fewshot_scores, ordinary_logits, config)
    config["middle"] = float(0.5 * (combined[abnormal].mean() + combined[~abnormal].mean()))
    config["calibration"] = list(fit_logistic(_to_unit_interval(combined, config), abnormal))
    return config


def combine_scores(fewshot_scores: np.ndarray, ordinary_logits: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Return the (N,) weighted mean of both, each divided by its standard deviation."""
    (fewshot_sd, ordinary_sd), share = config["deviations"], float(config["share"])
    result: np.ndarray = (fewshot_scores / fewshot_sd + share * ordinary_logits / ordinary_sd) / (1 + share)
    return result


def ensemble_probabilities(
    fewshot_scores: np.ndarray, ordinary_logits: np.ndarray, config: Mapping[str, Any]
) -> np.ndarray:
    """Return (N,) anomaly scores from 0 to 1."""
    combined = combine_scores(fewshot_scores, ordinary_logits, config)
    return apply_logistic(_to_unit_interval(combined, config), config["calibration"])


def _within_state_sd(values: np.ndarray, abnormal: np.ndarray) -> float:
    """Return the standard deviation within a state, mean of both; of all cases if a state has too few."""
    variance = 0.5 * (values[abnormal].var() + values[~abnormal].var())
    has_enough = min(int(abnormal.sum()), int((~abnormal).sum())) >= MIN_CASES_PER_STATE
    return max(float(np.sqrt(variance if has_enough else values.var())), 1e-6)


def _to_unit_interval(scores: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(scores - float(config["middle"]), -30, 30)))
    return result
