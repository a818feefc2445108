"""Prediction sets: the classes of an image that cannot be ruled out, so that the true one is among them as often as is said.

Split conformal prediction (Sadinle et al., 2019; Angelopoulos & Bates, 2023) on held-out cases, their probabilities calibrated by
other cases than themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LEVEL = 0.9
"""Share of images whose true class shall be in the set; of several labels, of the images that have a label those whose set has it."""
FEWEST = 20
"""Held-out patients below which no set is promised."""


def sets_of(
    scores: np.ndarray, truth: np.ndarray, patients: Sequence[str], multi: bool, level: float = LEVEL
) -> dict[str, Any]:
    """`level`, `cuts` (a class is in the set from this probability on) and `patients`; or why sets are `unavailable`.

    Args:
        scores: (N, K) probabilities of held-out cases.
        truth: (N, K) of 0 and 1.
        multi: whether a case may have several labels; each then has its own cut, and one with few patients is never ruled out.
    """
    count = len(set(patients))
    if count < FEWEST:
        return {"level": level, "unavailable": f"{count} held-out patients; {FEWEST} are needed"}
    if not multi:
        cut = _cut(scores[truth > 0.5], count, level)
        return {"level": level, "cuts": [cut] * scores.shape[1], "patients": count}
    cuts = []
    for k in range(scores.shape[1]):
        rows = truth[:, k] > 0.5
        mine = len({one for one, own in zip(patients, rows, strict=True) if own})
        cuts.append(_cut(scores[rows, k], mine, level) if mine >= FEWEST else 0.0)
    return {"level": level, "cuts": cuts, "patients": count}


def _cut(true_scores: np.ndarray, patients: int, level: float) -> float:
    """The probability of the true class that all but `1 - level` of new patients reach, as far as so many patients can say it."""
    share = np.floor((patients + 1) * (1 - level) + 1e-9) / patients
    place = int(np.floor(share * len(true_scores) + 1e-9))
    return 0.0 if place < 1 else float(np.floor(np.sort(true_scores)[place - 1] * 1e6) / 1e6)


def measured(scores: np.ndarray, truth: np.ndarray, sets: dict[str, Any]) -> dict[str, float]:
    """How often the true classes are in the sets, and how many classes a set has, on the cases that the cuts were made of."""
    if "cuts" not in sets:
        return {}
    inside = scores >= np.array(sets["cuts"])
    held = inside[truth > 0.5]
    return {
        "set_coverage": round(float(held.mean()), 4) if len(held) else 0.0,
        "set_size": round(float(inside.sum(1).mean()), 3),
    }
