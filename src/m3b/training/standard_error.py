"""Standard error of a validation figure, by the jackknife over patients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

MAX_GROUPS = 100
"""Maximum groups of patients that are left out in turn; more patients share groups."""


def jackknife_errors(patients: Sequence[object], figures: Callable[[np.ndarray], dict[str, float]]) -> dict[str, float]:
    """Return the standard error of each figure (Efron and Stein, 1981), without those that are undefined if a group is left out.

    Args:
        patients: of the cases, in their order.
        figures: (positions of cases) to figures of these cases.
    """
    names = {patient: number for number, patient in enumerate(dict.fromkeys(patients))}
    count = min(len(names), MAX_GROUPS)
    if count < 2:
        return {}
    groups = np.array([names[patient] % count for patient in patients])
    estimates = [figures(np.flatnonzero(groups != group)) for group in range(count)]
    errors = {}
    for name in estimates[0]:
        values = np.array([estimate.get(name, np.nan) for estimate in estimates], float)
        if np.isfinite(values).all():
            errors[name] = round(float(np.sqrt((count - 1) * values.var())), 4)
    return errors


def describe_errors(errors: dict[str, float]) -> str:
    """Return the standard errors in brackets for the end of a line; "" without any."""
    listing = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in errors.items())
    return f" (standard errors: {listing})" if errors else ""
