"""Cases that each network of an ensemble is not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.folds import SITES, count_folds
from m3b.training.patients import assign_folds

SHARED_PARTS = 12
"""With cross-validation, no network is trained on one of so many parts of the patients; the networks are compared on it."""


def assign_held_out(
    plan: Mapping[str, Any], patients: Sequence[str], strata: np.ndarray, sites: Sequence[str] = ()
) -> np.ndarray:
    """Return (networks, N): the cases that each network is not trained on.

    With `cross_validation` each network holds out its fold, and all hold out a shared part, except for a refit or if there are fewer
    than two patients for each network. Otherwise all hold out the same `validation_share`. If folds are sites, each network holds out
    a site, and the other cases of its patients; cases without a site are only trained on.
    """
    if plan.get("fold_groups") == SITES:
        patients_by_site = {
            site: {patients[n] for n, name in enumerate(sites) if name == site} for site in set(sites) - {""}
        }
        return np.array(
            [[patient in patients_by_site[site] for patient in patients] for site in sorted(patients_by_site)]
        )
    networks, seed, patient_ids = count_folds(plan), int(plan["seed"]), np.array(patients)
    if networks == 1 or not plan.get("cross_validation", True):
        parts = max(2, round(1 / float(plan["validation_share"])))
        assigned = assign_folds(patients, strata, parts, seed)
        return np.tile(assigned == typical_part(assigned, patient_ids, strata, 2), (networks, 1))
    shared = np.zeros(len(patient_ids), bool)
    if not plan.get("refit") and len(set(patients)) >= 2 * networks:
        parts = min(SHARED_PARTS, len(set(patients)))
        assigned = assign_folds(patients, strata, parts, seed)
        shared = assigned == typical_part(assigned, patient_ids, strata, networks + 1)
    is_held_out = np.tile(shared, (networks, 1))
    is_held_out[:, ~shared] = np.arange(networks)[:, None] == assign_folds(
        patient_ids[~shared].tolist(), strata[~shared], networks, seed
    )
    return is_held_out


def typical_part(assigned: np.ndarray, patient_ids: np.ndarray, strata: np.ndarray, min_patients: int) -> int:
    """Return the part in which the shares of `strata` (N, S) are nearest to those of all cases.

    Parts without a stratum that at least `min_patients` patients have, or with all of its cases, are avoided if possible.

    Args:
        assigned: (N,) part of each case.
    """
    table = np.concatenate([strata > 0.5, np.ones((len(patient_ids), 1), bool)], axis=1)
    is_common = np.array([len(set(patient_ids[column])) >= min_patients for column in table.T])

    def rank(part: int) -> tuple[int, float]:
        share = table[assigned == part].sum(axis=0) / np.maximum(table.sum(axis=0), 1)
        unfit_strata = ((share == 0) & is_common | (share == 1) & table.any(axis=0)).sum()
        return int(unfit_strata), float(((share - share[-1]) ** 2).sum() + (share[-1] - 1 / (assigned.max() + 1)) ** 2)

    return min((int(part) for part in np.unique(assigned)), key=rank)


def held_out_share(plan: Mapping[str, Any]) -> float:
    """Return the share of the cases that one network is not trained on, approximately."""
    networks = count_folds(plan)
    if networks == 1 or not plan.get("cross_validation", True):
        return float(plan["validation_share"])
    shared = 0.0 if plan.get("refit") or plan.get("fold_groups") == SITES else 1 / SHARED_PARTS
    return shared + (1 - shared) / networks
