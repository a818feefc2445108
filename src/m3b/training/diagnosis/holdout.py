"""Which training cases each network of an ensemble is not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.folds import count
from m3b.training.patients import assign_folds

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
        assigned = assign_folds(patients, strata, parts, seed)
        return np.tile(assigned == typical_part(assigned, people, strata, 2), (networks, 1))
    shared = np.zeros(len(people), bool)
    if not plan.get("refit") and len(set(patients)) >= 2 * networks:
        parts = min(SHARED_PARTS, len(set(patients)))
        assigned = assign_folds(patients, strata, parts, seed)
        shared = assigned == typical_part(assigned, people, strata, networks + 1)
    held = np.tile(shared, (networks, 1))
    held[:, ~shared] = np.arange(networks)[:, None] == assign_folds(
        people[~shared].tolist(), strata[~shared], networks, seed
    )
    return held


def typical_part(assigned: np.ndarray, people: np.ndarray, strata: np.ndarray, least: int) -> int:
    """Return the part in which the shares of `strata` (N, S) are nearest to those of all cases.

    Before that, no part without a stratum that at least `least` patients have, and none with all of its cases.

    Args:
        assigned: (N,) part of each case.
    """
    table = np.concatenate([strata > 0.5, np.ones((len(people), 1), bool)], axis=1)
    common = np.array([len(set(people[column])) >= least for column in table.T])

    def rank(part: int) -> tuple[int, float]:
        share = table[assigned == part].sum(axis=0) / np.maximum(table.sum(axis=0), 1)
        unfit = ((share == 0) & common | (share == 1) & table.any(axis=0)).sum()
        return int(unfit), float(((share - share[-1]) ** 2).sum() + (share[-1] - 1 / (assigned.max() + 1)) ** 2)

    return min(np.unique(assigned).tolist(), key=rank)


def held_share(plan: Mapping[str, Any]) -> float:
    """Return the share of the cases that one network is not trained on, approximately."""
    networks = count(plan)
    if networks == 1 or not plan.get("cross_validation", True):
        return float(plan["validation_share"])
    shared = 0.0 if plan.get("refit") else 1 / SHARED_PARTS
    return shared + (1 - shared) / networks
