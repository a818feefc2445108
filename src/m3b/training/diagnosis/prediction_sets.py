"""Prediction sets: the classes of an image that cannot be ruled out at a stated coverage.

Split conformal prediction (Sadinle et al., 2019; Angelopoulos & Bates, 2023) on the cross-fitted probabilities of held-out cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

COVERAGE_LEVEL = 0.9
"""Share of images whose set has the true class; multi-label: of the images with a label, those whose set has it."""
MIN_PATIENTS = 20
"""Minimum held-out patients for prediction sets."""


def fit_prediction_sets(
    scores: np.ndarray, truth: np.ndarray, patients: Sequence[str], multi_label: bool, level: float = COVERAGE_LEVEL
) -> dict[str, Any]:
    """Return `level`, `cuts` (minimum probability of a class in the set) and `patients`; or why sets are `unavailable`.

    Args:
        scores: (N, K) probabilities of held-out cases.
        truth: (N, K) of 0 and 1.
        multi_label: each class has its own cut, and one with few patients is never ruled out.
    """
    count = len(set(patients))
    if count < MIN_PATIENTS:
        return {"level": level, "unavailable": f"{count} held-out patients; {MIN_PATIENTS} are needed"}
    if not multi_label:
        cut = _fit_cut(scores[truth > 0.5], count, level)
        return {"level": level, "cuts": [cut] * scores.shape[1], "patients": count}
    cuts = []
    for k in range(scores.shape[1]):
        rows = truth[:, k] > 0.5
        class_patients = len({patient for patient, has_class in zip(patients, rows, strict=True) if has_class})
        cuts.append(_fit_cut(scores[rows, k], class_patients, level) if class_patients >= MIN_PATIENTS else 0.0)
    return {"level": level, "cuts": cuts, "patients": count}


def _fit_cut(true_scores: np.ndarray, patients: int, level: float) -> float:
    """Return the probability that the true class reaches in all but `1 - level` of new patients, as far as so many patients show
    it."""
    miss_share = np.floor((patients + 1) * (1 - level) + 1e-9) / patients
    rank = int(np.floor(miss_share * len(true_scores) + 1e-9))
    return 0.0 if rank < 1 else float(np.floor(np.sort(true_scores)[rank - 1] * 1e6) / 1e6)


def measure_coverage(scores: np.ndarray, truth: np.ndarray, sets: dict[str, Any]) -> dict[str, float]:
    """Return the coverage and mean size of the sets on the cases that the cuts were fitted on."""
    if "cuts" not in sets:
        return {}
    is_in_set = scores >= np.array(sets["cuts"])
    is_covered = is_in_set[truth > 0.5]
    return {
        "set_coverage": round(float(is_covered.mean()), 4) if len(is_covered) else 0.0,
        "set_size": round(float(is_in_set.sum(1).mean()), 3),
    }
