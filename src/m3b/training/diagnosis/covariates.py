"""Covariates that a network gets in addition to the image: numbers, categories, and unknown values. NumPy only.

`covariates` of plan.json lists them: {"name": "age", "kind": "number", "centre": 61.0, "scale": 12.5, "unknown": 3} or
{"name": "sex", "kind": "category", "values": ["F", "M"], "unknown": 0}; `unknown` counts training cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError

Rule = Mapping[str, Any]
IMAGE_KEY = "image"
"""Key of the image in a case with covariates."""
MAX_CATEGORIES, MAX_DEVIATIONS = 40, 5.0
"""Categories with an input of their own, the most frequent; deviations from the centre to which a number is clipped."""


def make_covariate_rules(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rules from the training cases."""
    rules: list[dict[str, Any]] = []
    for name in records[0].get("covariates") or {}:
        values = [record["covariates"][name] for record in records]
        known_values = [value for value in values if value is not None]
        rule: dict[str, Any] = {"name": name, "unknown": len(values) - len(known_values)}
        if any(isinstance(value, str) for value in known_values):
            categories = [value for value, _ in Counter(map(str, known_values)).most_common(MAX_CATEGORIES)]
            rules.append({**rule, "kind": "category", "values": sorted(categories)})
            continue
        numbers = np.array(known_values or [0.0], dtype=np.float64)
        low, centre, high = (float(value) for value in np.percentile(numbers, (25, 50, 75)))
        scale = (high - low) / 1.349 or float(numbers.std()) or 1.0
        rules.append({**rule, "kind": "number", "centre": centre, "scale": round(scale, 6)})
    return rules


def input_sizes(rules: Sequence[Rule]) -> list[int]:
    """Return the inputs of each covariate: its number or one a category, and one for an unknown value."""
    return [(len(rule["values"]) if rule["kind"] == "category" else 1) + 1 for rule in rules]


def input_width(rules: Sequence[Rule]) -> int:
    """Return the number of inputs of all covariates."""
    return sum(input_sizes(rules))


def encode(cases: Sequence[Mapping[str, Any]], rules: Sequence[Rule]) -> np.ndarray:
    """Return (N, width) float32 of cases, name -> value each; None and categories without a training case are unknown."""
    table = np.zeros((len(cases), input_width(rules)), np.float32)
    for row, case in enumerate(cases):
        start = 0
        for rule, size in zip(rules, input_sizes(rules), strict=True):
            position, value = _encode_value(case.get(rule["name"]), rule)
            table[row, start + position] = value
            start += size
    return table


def _encode_value(value: Any, rule: Rule) -> tuple[int, float]:
    """Return the index and value of the covariate's input that is set."""
    if rule["kind"] == "category":
        categories = rule["values"]
        return (
            (categories.index(str(value)), 1.0)
            if value is not None and str(value) in categories
            else (len(categories), 1.0)
        )
    if value is None:
        return 1, 1.0
    return 0, float(np.clip((float(value) - rule["centre"]) / rule["scale"], -MAX_DEVIATIONS, MAX_DEVIATIONS))


def drop_covariates(table: Any, rules: Sequence[Rule], share: float) -> Any:
    """Return a tensor (N, width) with a share of the covariates made unknown, so that the network can predict without any of them and
    does not depend on a single one."""
    import torch

    if not share:
        return table
    parts = []
    for part in table.split(input_sizes(rules), dim=1):
        is_dropped, unknown = torch.rand(len(table), 1, device=table.device) < share, torch.zeros_like(part)
        unknown[:, -1] = 1.0
        parts.append(torch.where(is_dropped, unknown, part))
    return torch.cat(parts, dim=1)


def unknown_covariates(plan: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return unknown covariates of so many cases as network inputs; {} if the plan has none."""
    import torch

    rules = plan.get("covariates") or []
    return {"covariates": torch.from_numpy(encode([{}] * count, rules))} if rules else {}


def split_case(case: Any, rules: Sequence[Rule], *, complete: bool = True) -> tuple[Any, dict[str, Any]]:
    """Return the image of a case, and its covariates: `{"image": path, "age": 61, "sex": null}`.

    Args:
        complete: a missing covariate is an error; otherwise it is unknown.

    Raises:
        DataError: a covariate is missing or unexpected, or no number where one is expected.
    """
    if not rules:
        return case, {}
    names = [rule["name"] for rule in rules]
    fields = case if isinstance(case, dict) and IMAGE_KEY in case else {IMAGE_KEY: case}
    missing = [name for name in names if name not in fields]
    if missing and complete:
        raise DataError(f"{_short(fields[IMAGE_KEY])}: {', '.join(missing)} missing; {describe_case(rules)}")
    if unexpected := [name for name in fields if name not in (IMAGE_KEY, *names)]:
        raise DataError(f"{_short(fields[IMAGE_KEY])}: unexpected {', '.join(unexpected)}; {describe_case(rules)}")
    values = {name: fields.get(name) for name in names}
    for rule in rules:
        value = values[rule["name"]]
        number = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
        if rule["kind"] == "number" and value is not None and not number:
            raise DataError(
                f"{_short(fields[IMAGE_KEY])}: {rule['name']} must be a number, it is {value!r}; {describe_case(rules)}"
            )
    return fields[IMAGE_KEY], values


def describe_case(rules: Sequence[Rule]) -> str:
    """Return the expected form of a case, for messages."""
    examples = ", ".join(f'"{rule["name"]}": {_example_value(rule)}' for rule in rules)
    return f'a case is {{"{IMAGE_KEY}": path, {examples}}}, null for unknown values'


def _example_value(rule: Rule) -> str:
    return f'"{rule["values"][0]}"' if rule["kind"] == "category" else f"{rule['centre']:g}"


def _short(image: Any) -> str:
    return str(image)[:200]


def describe_covariates(rules: Sequence[Rule]) -> list[str]:
    """Return a line on the covariates, if there are any."""
    if not rules:
        return []
    descriptions = [
        f"{rule['name']} ("
        + (f"median {rule['centre']:g}" if rule["kind"] == "number" else ", ".join(rule["values"]))
        + (f"; unknown of {rule['unknown']} training cases)" if rule["unknown"] else ")")
        for rule in rules
    ]
    return [f"covariates: {', '.join(descriptions)}"]
