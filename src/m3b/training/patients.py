"""Patients of the cases: a description, and patient-wise folds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

UNKNOWN_PREFIX = "unknown-"
"""Prefix of unknown patients in the index; a number for each case follows."""


def describe_patients(patients: Iterable[object]) -> str:
    """Return `12 patients`, `1 patient`, or `unknown patients` if none is known: their number is then only that of cases."""
    names = {str(patient) for patient in patients}
    if names and all(name.startswith(UNKNOWN_PREFIX) for name in names):
        return "unknown patients"
    return f"{len(names)} patient" + ("s" if len(names) != 1 else "")


def list_patients(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the patient of each record; a record without one is a patient by itself."""
    return [str(record.get("patient") or json.dumps(record["image_path"])) for record in records]


def list_sites(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the site of each record; "" where it is not known."""
    return [str((record.get("attributes") or {}).get("site") or "") for record in records]


def describe_reliability(patients: int, share: float, are_known: bool = True) -> str:
    """Return how far figures of so few patients (cases if patients are unknown) can be trusted."""
    if patients == 1:
        return "one patient: the figures only show that the training works, and say nothing about other patients"
    if patients < 4:
        return (
            f"{patients} patients: one is held out for validation. A figure of one patient has no interval, and thresholds chosen on "
            "it are optimistic. Use the model as a first try, not as evidence"
        )
    held_out = max(1, round(patients * share))
    note = ": a rough figure, and thresholds chosen on it are optimistic" if held_out < 10 else ""
    return f"validation on about {held_out} of {patients} {'patients' if are_known else 'cases'}{note}"


def assign_folds(patients: Sequence[str], columns: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """Return (N,) the fold of each case: all cases of a patient in one fold, and in each fold its share of every column.

    Greedy: from the largest patient down (ties in random order), each to the fold that lacks its columns most.

    Args:
        columns: (N, K) quantities to distribute, such as labels; the number of cases is added.
    """
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(patients):
        groups.setdefault(name, []).append(row)
    members = [np.array(rows) for rows in groups.values()]
    np.random.default_rng(seed).shuffle(members)
    members.sort(key=len, reverse=True)
    table = np.concatenate([columns, np.ones((len(patients), 1), np.float32)], axis=1)  # the last column counts cases
    weight = 1.0 / np.maximum(table.sum(axis=0), 1.0)
    missing = np.tile(table.sum(axis=0) / folds, (folds, 1))
    result = np.zeros(len(patients), np.int64)
    for rows in members:
        counts = table[rows].sum(axis=0)
        fold = int(np.argmax(((missing**2 - (missing - counts) ** 2) * weight).sum(axis=1)))
        missing[fold] -= counts
        result[rows] = fold
    return result
