"""Scores of candidates: logistic functions of measured features, with weights learnt on generated layouts.

The weights in `weights.json` are written by `benchmarks/fit_weights.py` (even seeds) and never edited by hand; the priors beside them,
which they are pulled towards, are set by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

SET_FEATURES = ("set:", "row:")
"""Beginnings of the features that tell whether the right files are taken as the cases, whatever their target."""
WEIGHTS_FILE = Path(__file__).with_name("weights.json")


@lru_cache(maxsize=1)
def load_weights() -> dict[str, dict[str, float]]:
    """Return decision -> feature -> weight; the feature `""` is the constant."""
    weights: dict[str, dict[str, float]] = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))["weights"]
    return weights


def probability(decision: str, features: Mapping[str, float]) -> float:
    """Return the probability that a candidate of a decision is right: that of its target times that of its image set.

    Args:
        decision: `label`, `number`, `text`, `survival`, `mask`, `boxes`, `patient`, `split`.
        features: those of `SET_FEATURES` are scored by the weights of `image_set`, which all tasks share.
    """
    of_set = {name: value for name, value in features.items() if name.startswith(SET_FEATURES)}
    result = _sigmoid(decision, without_set(features))
    return result * _sigmoid("image_set", of_set) if of_set else result


def _sigmoid(decision: str, features: Mapping[str, float]) -> float:
    weights = load_weights()[decision]
    odds = weights.get("", 0.0) + sum(weights.get(name, 0.0) * value for name, value in features.items())
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, odds))))


def without_set(features: Mapping[str, float]) -> dict[str, float]:
    """Return the features that tell of the target alone."""
    return {name: value for name, value in features.items() if not name.startswith(SET_FEATURES)}


def logit(decision: str, features: Mapping[str, float]) -> float:
    """Return the log odds of `probability`."""
    result = min(probability(decision, features), 1 - 1e-12)
    return math.log(result / (1 - result)) if result else -math.inf
