"""The gain of a candidate for the delivered model on validation cases, with its standard error over patients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from m3b.training.diagnosis.classification import ClassTarget

JACKKNIFE_PARTS = 20
"""Maximum parts of the patients that the standard error of the gain is computed from, each left out once."""


def measure_gain(
    target: ClassTarget, before: np.ndarray, after: np.ndarray, labels: np.ndarray, patients: Sequence[str]
) -> tuple[float, float]:
    """Return by how much the loss of `after` is lower than that of `before`, both (N, K) logits, and the standard error."""
    names, numbers = np.unique(np.array(patients), return_inverse=True)
    patient_of_case = np.random.default_rng(0).permutation(len(names))[numbers]

    def reduce_loss(part: np.ndarray) -> float:
        return target.view_loss(before[part], labels[part]) - target.view_loss(after[part], labels[part])

    parts = min(len(names), JACKKNIFE_PARTS)
    gains = np.array([reduce_loss(patient_of_case % parts != part) for part in range(parts)])
    return reduce_loss(np.ones(len(labels), bool)), float(np.sqrt((parts - 1) * gains.var()))
