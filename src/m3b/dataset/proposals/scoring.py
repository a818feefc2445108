"""Scores of candidates: logistic functions of measured features, with weights learnt on generated layouts.

`weights.json` is written by `benchmarks/fit_weights.py` (even seeds) and never edited by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

WEIGHTS_FILE = Path(__file__).with_name("weights.json")


@lru_cache(maxsize=1)
def load_weights() -> dict[str, dict[str, float]]:
    """Return decision -> feature -> weight; the feature `""` is the constant."""
    weights: dict[str, dict[str, float]] = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))["weights"]
    return weights


def logit(decision: str, features: Mapping[str, float]) -> float:
    """Return the weighted sum of features.

    Args:
        decision: `image_set`, `label`, `number`, `text`, `mask`, `boxes`, `patient`, `split`.
    """
    weights = load_weights()[decision]
    return weights.get("", 0.0) + sum(weights.get(name, 0.0) * value for name, value in features.items())


def probability(decision: str, features: Mapping[str, float]) -> float:
    """Return the probability that a candidate of a decision is right."""
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, logit(decision, features)))))
