"""Whose cases these are, in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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


def worth(patients: int, share: float) -> str:
    """How far figures of so few patients can be trusted, plainly."""
    if patients == 1:
        return "one patient: nothing can be said about any other; the figures only show that the training works"
    if patients < 4:
        return (
            f"{patients} patients: one is held out for validation, the others are trained on. A figure of one patient "
            "has no interval; thresholds chosen on it will flatter it. Take the model as a first try, not as evidence"
        )
    held = max(1, round(patients * share))
    few = ": a rough figure, thresholds chosen on it flatter it" if held < 10 else ""
    return f"validation on about {held} of {patients} patients{few}"
