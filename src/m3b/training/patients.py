"""Whose cases these are: in words, and shared out to folds by patient."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

UNKNOWN = "unknown-"
"""How the index calls a patient whom nobody knows, with a number for each case."""


def people(patients: Iterable[object]) -> str:
    """`12 patients`, `1 patient`, or `unknown patients` where nobody knows any: their number then is only that of cases."""
    names = {str(patient) for patient in patients}
    if names and all(name.startswith(UNKNOWN) for name in names):
        return "unknown patients"
    return f"{len(names)} patient" + ("s" if len(names) != 1 else "")


def people_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The patient of each record; a record without one is a patient by itself."""
    return [str(record.get("patient") or json.dumps(record["image_path"])) for record in records]


def worth(patients: int, share: float, known: bool = True) -> str:
    """How far figures of so few patients, or cases where nobody knows them, can be trusted, plainly."""
    if patients == 1:
        return "one patient: nothing can be said about any other; the figures only show that the training works"
    if patients < 4:
        return (
            f"{patients} patients: one is held out for validation, the others are trained on. A figure of one patient "
            "has no interval; thresholds chosen on it will flatter it. Take the model as a first try, not as evidence"
        )
    held = max(1, round(patients * share))
    few = ": a rough figure, thresholds chosen on it flatter it" if held < 10 else ""
    return f"validation on about {held} of {patients} {'patients' if known else 'cases'}{few}"


def assign_folds(people: Sequence[str], columns: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """(N,) fold of each case: a patient lies in one fold, and each fold gets its share of every column.

    Greedy: patients from the largest down (ties in random order), each to the fold that lacks their columns most.

    Args:
        columns: (N, K) of what is shared out, such as labels; cases are counted besides.
    """
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(people):
        groups.setdefault(name, []).append(row)
    members = [np.array(rows) for rows in groups.values()]
    np.random.default_rng(seed).shuffle(members)
    members.sort(key=len, reverse=True)
    table = np.concatenate([columns, np.ones((len(people), 1), np.float32)], axis=1)  # the last one counts cases
    weight = 1.0 / np.maximum(table.sum(axis=0), 1.0)
    want = np.tile(table.sum(axis=0) / folds, (folds, 1))
    result = np.zeros(len(people), np.int64)
    for rows in members:
        gain = table[rows].sum(axis=0)
        fold = int(np.argmax(((want**2 - (want - gain) ** 2) * weight).sum(axis=1)))
        want[fold] -= gain
        result[rows] = fold
    return result
