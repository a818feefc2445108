"""Covariates that a user gives beside an image, checked against those of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from m3b.data.kinds.covariates import RESERVED
from m3b.data.records import Covariate
from m3b.errors import ModelError


def split_covariates(
    case: Any, rules: Sequence[Mapping[str, Any]], case_number: int = 1, *, strict: bool = True
) -> tuple[Any, dict[str, Covariate]]:
    """Split a case into its image and its covariates; for a model without covariates a case is its image.

    Args:
        rules: `Model.covariates`.
        case_number: number of the case, for messages.
        strict: whether an incomplete case is an error here; otherwise predict.py reports what is wrong.

    Raises:
        ModelError: the case lacks a covariate, has one that the model does not know, or has an invalid value.
    """
    if not rules:
        return case, {}
    has_covariates = isinstance(case, Mapping) and RESERVED in case
    image, values = (case[RESERVED], {k: v for k, v in case.items() if k != RESERVED}) if has_covariates else (case, {})
    problems = [problem for rule in rules if (problem := _find_covariate_problem(rule, values))]
    names = [str(rule["name"]) for rule in rules]
    problems += [f"the model is not given {name}" for name in values if name not in names]
    if problems and strict:
        raise ModelError(
            f"case {case_number}: {'; '.join(problems)}. A case is {example_case(rules)}, None where one is not known"
        )
    return image, {str(name): value for name, value in values.items()}


def _find_covariate_problem(rule: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    name = rule["name"]
    if name not in values:
        return f"it has no {name}"
    value = values[name]
    if value is None:
        return ""
    if rule["kind"] == "number":
        is_valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return "" if is_valid else f"its {name} must be a number, it is {value!r}"
    return (
        "" if value in rule["values"] else f"its {name} is {value!r}, and the model knows {', '.join(rule['values'])}"
    )


def example_case(rules: Sequence[Mapping[str, Any]]) -> str:
    """Return an example of a case with covariates, for messages."""
    example_values = {
        str(rule["name"]): rule["values"][0] if rule["kind"] == "category" else rule["centre"] for rule in rules
    }
    return "{'image': path, " + ", ".join(f"{name!r}: {value!r}" for name, value in example_values.items()) + "}"
