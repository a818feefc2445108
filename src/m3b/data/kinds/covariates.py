"""Covariates of index records: numbers and texts of a case that a model is given beside its image."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any, Final

from m3b.data.records import Covariate, Record

COVARIATES: Final = {"type": "object", "additionalProperties": {"type": ["string", "number", "null"]}}
RESERVED: Final = "image"
"""What names the image beside them, where a delivered model is asked."""
MAX_TEXT: Final = 100
"""Characters of a value: it names a group, and is no place for texts."""


def covariates(value: Any) -> dict[str, Covariate]:
    """The covariates of a record: name -> number, short text, or None where it is not known.

    Raises:
        ValueError: no such object, a number that is not finite, or a covariate that is called `image`.
    """
    if not isinstance(value, dict) or not all(_is_plain_value(item) for item in value.values()):
        raise ValueError(
            f'covariates must look like {{"age": 61, "sex": "F", "crp": null}}, is {json.dumps(value)[:80]}'
        )
    if RESERVED in value or not all(name and "=" not in name for name in value):
        raise ValueError(f"covariates must have names without '=', other than {RESERVED!r}; found {', '.join(value)}")
    return {
        sys.intern(str(name)): float(item) if isinstance(item, int | float) else item and sys.intern(str(item))
        for name, item in value.items()
    }


def _is_plain_value(value: Any) -> bool:
    if value is None or (isinstance(value, str) and 0 < len(value) <= MAX_TEXT):
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def list_covariates(records: Sequence[Record]) -> list[str]:
    """Return each covariate by name, with the number of cases of which it is not known."""
    names = []
    for name in records[0].covariates if records else ():
        unknown = sum(record.covariates.get(name) is None for record in records)
        names.append(f"{name} (unknown of {unknown:,} cases)" if unknown else name)
    return names


def mixed_covariates(records: Sequence[Record]) -> str:
    """Why the covariates of these records do not go together, in words; empty where they do."""
    first = next(iter(records), None)
    if first is None:
        return ""
    mixed = next((record for record in records if set(record.covariates) != set(first.covariates)), None)
    if mixed is not None:
        first_names, other_names = (", ".join(case.covariates) or "none" for case in (first, mixed))
        return (
            f"covariates must have the same names in all records, null where one is not known; found {first_names}, and "
            f"{other_names}"
        )
    for name in first.covariates:
        values = [record.covariates[name] for record in records]
        if any(isinstance(value, str) for value in values) and any(isinstance(value, float) for value in values):
            return (
                f"the covariate {name!r} is a number in some records and a text in others; use one of them throughout"
            )
    return ""


def numeric(name: str, records: Sequence[Record]) -> bool:
    """Whether a covariate of these records is a number; one that nobody knows is none."""
    return any(isinstance(record.covariates.get(name), float) for record in records)
