"""What a network is given beside the image: numbers, categories, and that something is not known. NumPy alone.

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
IMAGE = "image"
"""What names the image of a case beside its covariates."""
MOST, REACH = 40, 5.0
"""Values of a category that have an input each, the commonest; deviations from the centre that a number is cut to."""


def facts_of(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rules, from the training cases."""
    rules: list[dict[str, Any]] = []
    for name in records[0].get("covariates") or {}:
        values = [record["covariates"][name] for record in records]
        known = [value for value in values if value is not None]
        rule: dict[str, Any] = {"name": name, "unknown": len(values) - len(known)}
        if any(isinstance(value, str) for value in known):
            common = [value for value, _ in Counter(map(str, known)).most_common(MOST)]
            rules.append({**rule, "kind": "category", "values": sorted(common)})
            continue
        numbers = np.array(known or [0.0], dtype=np.float64)
        low, centre, high = (float(value) for value in np.percentile(numbers, (25, 50, 75)))
        scale = (high - low) / 1.349 or float(numbers.std()) or 1.0
        rules.append({**rule, "kind": "number", "centre": centre, "scale": round(scale, 6)})
    return rules


def sizes(rules: Sequence[Rule]) -> list[int]:
    """Inputs of each covariate: its number or one a category, and one that says that it is not known."""
    return [(len(rule["values"]) if rule["kind"] == "category" else 1) + 1 for rule in rules]


def width(rules: Sequence[Rule]) -> int:
    """Inputs of all covariates together."""
    return sum(sizes(rules))


def encode(cases: Sequence[Mapping[str, Any]], rules: Sequence[Rule]) -> np.ndarray:
    """(N, width) float32 of cases, name -> value each; None and texts that no training case had are not known."""
    table = np.zeros((len(cases), width(rules)), np.float32)
    for row, case in enumerate(cases):
        start = 0
        for rule, size in zip(rules, sizes(rules), strict=True):
            place, value = _placed(case.get(rule["name"]), rule)
            table[row, start + place] = value
            start += size
    return table


def _placed(value: Any, rule: Rule) -> tuple[int, float]:
    """Which of a covariate's inputs is set, and to what."""
    if rule["kind"] == "category":
        known = rule["values"]
        return (known.index(str(value)), 1.0) if value is not None and str(value) in known else (len(known), 1.0)
    if value is None:
        return 1, 1.0
    return 0, float(np.clip((float(value) - rule["centre"]) / rule["scale"], -REACH, REACH))


def blank(table: Any, rules: Sequence[Rule], share: float) -> Any:
    """A tensor (N, width) of which that share of the covariates is made unknown: a network that has seen this answers where one
    is not known, and does not rest on a single one."""
    import torch

    if not share:
        return table
    parts = []
    for part in table.split(sizes(rules), dim=1):
        gone, unknown = torch.rand(len(table), 1, device=table.device) < share, torch.zeros_like(part)
        unknown[:, -1] = 1.0
        parts.append(torch.where(gone, unknown, part))
    return torch.cat(parts, dim=1)


def examples(plan: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Unknown covariates of so many cases as a network takes them; empty where it takes none."""
    import torch

    rules = plan.get("covariates") or []
    return {"covariates": torch.from_numpy(encode([{}] * count, rules))} if rules else {}


def split_case(case: Any, rules: Sequence[Rule], *, whole: bool = True) -> tuple[Any, dict[str, Any]]:
    """The image of a case, and its covariates: `{"image": path, "age": 61, "sex": null}`.

    Args:
        whole: a case that lacks one is an error; otherwise it is not known.

    Raises:
        DataError: a covariate is missing, has a name that the model does not know, or is no number where one is needed.
    """
    if not rules:
        return case, {}
    names = [rule["name"] for rule in rules]
    given = case if isinstance(case, dict) and IMAGE in case else {IMAGE: case}
    lacking = [name for name in names if name not in given]
    if lacking and whole:
        raise DataError(f"{_short(given[IMAGE])}: has no {', '.join(lacking)}, {wanted(rules)}")
    if odd := [name for name in given if name not in (IMAGE, *names)]:
        raise DataError(f"{_short(given[IMAGE])}: {', '.join(odd)} is nothing that this model takes, {wanted(rules)}")
    found = {name: given.get(name) for name in names}
    for rule in rules:
        value = found[rule["name"]]
        number = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
        if rule["kind"] == "number" and value is not None and not number:
            raise DataError(
                f"{_short(given[IMAGE])}: {rule['name']} must be a number, it is {value!r}; {wanted(rules)}"
            )
    return given[IMAGE], found


def wanted(rules: Sequence[Rule]) -> str:
    """What a case has to look like, for a message."""
    shown = ", ".join(f'"{rule["name"]}": {_sample(rule)}' for rule in rules)
    return f'a case is {{"{IMAGE}": path, {shown}}}, null where one is not known'


def _sample(rule: Rule) -> str:
    return f'"{rule["values"][0]}"' if rule["kind"] == "category" else f"{rule['centre']:g}"


def _short(image: Any) -> str:
    return str(image)[:200]


def told(rules: Sequence[Rule]) -> list[str]:
    """A line on what is given beside the image, for people."""
    if not rules:
        return []
    each = [
        f"{rule['name']} ("
        + (f"median {rule['centre']:g}" if rule["kind"] == "number" else ", ".join(rule["values"]))
        + (f"; unknown of {rule['unknown']} training cases)" if rule["unknown"] else ")")
        for rule in rules
    ]
    return [f"given beside the image: {', '.join(each)}"]
