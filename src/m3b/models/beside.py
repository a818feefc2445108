"""What a delivered model is given beside an image: a case taken apart, and looked at before anything is run."""

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
    """The image of a case, and its covariates; a case of a model that is given none is its image.

    Args:
        rules: `Model.covariates`.
        case_number: of the case, for messages.
        strict: whether a case that is not whole is an error here; otherwise predict.py says of it what is wrong.

    Raises:
        ModelError: it lacks a covariate, has one that the model does not know, or a value that it cannot be.
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
    """What a case looks like."""
    example_values = {
        str(rule["name"]): rule["values"][0] if rule["kind"] == "category" else rule["centre"] for rule in rules
    }
    return "{'image': path, " + ", ".join(f"{name!r}: {value!r}" for name, value in example_values.items()) + "}"
