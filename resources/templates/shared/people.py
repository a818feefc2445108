"""Whose cases these are, in words."""

from __future__ import annotations

from collections.abc import Iterable

UNKNOWN = "unknown-"
"""How the index calls a patient whom nobody knows, with a number for each case."""


def people(patients: Iterable[object]) -> str:
    """`12 patients`, `1 patient`, or `unknown patients` where nobody knows any: their number then is only that of cases."""
    names = {str(patient) for patient in patients}
    if names and all(name.startswith(UNKNOWN) for name in names):
        return "unknown patients"
    return f"{len(names)} patient" + ("s" if len(names) != 1 else "")
