"""Which training cases each network of an ensemble is not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .members import count
from .people import assign_folds

SHARED_PARTS = 12
"""With cross-validation, no network is trained on one of so many parts of the patients: the networks are compared there."""


def held_out(plan: Mapping[str, Any], patients: Sequence[str], strata: np.ndarray) -> np.ndarray:
    """Return (networks, N): the cases that each network is not trained on.

    With `cross_validation` each network holds out its fold, and all hold out a shared part, except for a refit or if there are fewer
    than two patients for each network. Otherwise all hold out the same `validation_share`.
    """
    networks, seed, people = count(plan), int(plan["seed"]), np.array(patients)
    if networks == 1 or not plan.get("cross_validation", True):
        parts = max(2, round(1 / float(plan["validation_share"])))
        return np.tile(assign_folds(patients, strata, parts, seed) == 0, (networks, 1))
    shared = np.zeros(len(people), bool)
    if not plan.get("refit") and len(set(patients)) >= 2 * networks:
        parts = min(SHARED_PARTS, len(set(patients)))
        shared = assign_folds(patients, strata, parts, seed) == int(np.random.default_rng(seed).integers(parts))
    held = np.tile(shared, (networks, 1))
    held[:, ~shared] = np.arange(networks)[:, None] == assign_folds(
        people[~shared].tolist(), strata[~shared], networks, seed
    )
    return held


def held_share(plan: Mapping[str, Any]) -> float:
    """Return the share of the cases that one network is not trained on, approximately."""
    networks = count(plan)
    if networks == 1 or not plan.get("cross_validation", True):
        return float(plan["validation_share"])
    shared = 0.0 if plan.get("refit") else 1 / SHARED_PARTS
    return shared + (1 - shared) / networks
