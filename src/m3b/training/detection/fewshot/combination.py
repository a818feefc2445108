"""Ensemble of a few-shot detector and ordinary networks: one score per image.

The few-shot detector and networks from random weights err on different images, and networks trained with different parts of few
examples differ randomly, so their mean is more stable than any of them. How much each counts follows from examples that it was not
trained with: it depends on the backbone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.detection.boxes import apply_logistic, fit_logistic, logit
from m3b.training.detection.fewshot.convnet import KIND
from m3b.training.detection.fewshot.scoring import weights_by_separation, within_state_deviation

EXPECTED_RATIO = 4.0
"""Ratio of the separations of a few-shot detector and ordinary networks before any example is seen; 1 for the small `convnet`.

Ratios from 1 to 6 were compared on 300 test images of PneumoniaMNIST with four, eight and sixteen examples a state: this one lost at
most 0.003 of AUROC to the few-shot detector alone on a ViT-S (benchmarks/RESULTS.md).
"""


def expected_ratio(backbone: Mapping[str, Any]) -> float:
    """Return the ratio for the backbone of plan.json."""
    return 1.0 if backbone["format"] == KIND else EXPECTED_RATIO


@torch.no_grad()
def predict_probabilities(model: nn.Module, batches: Iterable[torch.Tensor]) -> np.ndarray:
    """Return (N,) uncalibrated probabilities of an ordinary network for batches of its pictures."""
    model.eval()
    return np.asarray(torch.cat([model(pixel_values=pictures)["logits"][:, 0] for pictures in batches]).sigmoid())


def mean_logit(models: Sequence[nn.Module], batches: Iterable[torch.Tensor]) -> np.ndarray:
    """Return the (N,) mean logits of ordinary networks for batches of their pictures."""
    of_batches = [
        np.mean([logit(predict_probabilities(model, [pictures])) for model in models], axis=0) for pictures in batches
    ]
    return np.concatenate(of_batches)


def fit_combination(
    fewshot_scores: np.ndarray, ordinary_logits: np.ndarray, abnormal: np.ndarray, ratio: float
) -> dict[str, Any]:
    """Return the weights of both scores and the calibration of their sum, from cases that neither was trained with.

    Args:
        fewshot_scores: (N,) deviations above normal.
        ordinary_logits: (N,) logits.
        abnormal: (N,) truth, with both states.
        ratio: of the separations before any case is seen (`expected_ratio`).
    """
    weights = weights_by_separation([fewshot_scores, ordinary_logits], abnormal, (ratio, 1.0))
    config: dict[str, Any] = {"weights": weights}
    combined = combine_scores(fewshot_scores, ordinary_logits, config)
    config["scale"] = within_state_deviation(combined, abnormal)
    config["middle"] = float(0.5 * (combined[abnormal].mean() + combined[~abnormal].mean()))
    config["calibration"] = list(fit_logistic(_to_unit_interval(combined, config), abnormal))
    return config


def combine_scores(fewshot_scores: np.ndarray, ordinary_logits: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Return the (N,) weighted mean of both."""
    fewshot_weight, ordinary_weight = config["weights"]
    result: np.ndarray = fewshot_weight * fewshot_scores + ordinary_weight * ordinary_logits
    return result


def ensemble_probabilities(
    fewshot_scores: np.ndarray, ordinary_logits: np.ndarray, config: Mapping[str, Any]
) -> np.ndarray:
    """Return (N,) anomaly scores from 0 to 1."""
    combined = combine_scores(fewshot_scores, ordinary_logits, config)
    return apply_logistic(_to_unit_interval(combined, config), config["calibration"])


def _to_unit_interval(scores: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    scaled = (scores - float(config["middle"])) / float(config["scale"])
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(scaled, -30, 30)))
    return result
