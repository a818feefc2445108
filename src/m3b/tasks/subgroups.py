"""The figure of a model told apart by sex, age, site and whatever else an index says of its cases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from m3b.data.index import Index
from m3b.metrics import Scores

from .base import Row, TaskFamily

MIN_PATIENTS = 5
"""Patients below which nothing is said of a group."""
MAX_GROUPS = 12
"""Groups of one attribute that are looked at, those with most cases first."""
NUMBER_RANGES = 3
"""Groups of about one size that numbers are divided into."""
_NUMBER_PATTERN = re.compile(r"\s*(-?\d+(?:[.,]\d+)?)\s*(?:[YyMmWwDd]|years?|yrs?)?\s*")
"""A number, as DICOM writes an age too: `045Y`."""


def score_by_subgroup(
    task_family: TaskFamily, rows: Sequence[Row], index: Index, *, primary: str, seed: int = 0
) -> dict[str, list[dict[str, Any]]]:
    """The primary metric of each group of measured test cases.

    Returns:
        Attribute -> groups as JSON values: `group`, `n`, `patients`, `measure` (as `Measure.to_dict` gives it, null where the
        group is too small or the metric undefined). Attributes that tell no groups apart are left out.
    """
    attributes_by_key = {record.key: record.attributes for record in index.test}
    row_attributes = [attributes_by_key.get(row["image"], {}) for row in rows]
    subgroups = {}
    for name in dict.fromkeys(name for attributes in row_attributes for name in attributes):
        groups = split_into_groups([attributes.get(name, "") for attributes in row_attributes])
        if len(groups) > 1:
            subgroups[name] = [
                _score_group(task_family, group, [rows[position] for position in positions], index, primary, seed)
                for group, positions in groups.items()
            ]
    return subgroups


def _score_group(
    task_family: TaskFamily, group: str, rows: Sequence[Row], index: Index, primary: str, seed: int
) -> dict[str, Any]:
    patients = len({row["patient"] for row in rows})
    measure = None
    if patients >= MIN_PATIENTS:
        try:
            scores = task_family.score(rows, index, primary=primary, seed=seed)
        except ValueError:  # the metric cannot be measured on these alone: one class, for instance
            scores = None
        if scores is not None and not np.isnan(scores.primary.value):
            measure = {**scores.primary.to_dict(), "baseline": None, "gain": None}  # those of all cases, not of these
    return {"group": group, "n": len(rows), "patients": patients, "measure": measure}


def split_into_groups(values: Sequence[str]) -> dict[str, list[int]]:
    """Group -> places of its values; numbers become ranges, texts are told apart without case; empty ones have no group."""
    known_values = {position: value.strip() for position, value in enumerate(values) if value.strip()}
    numbers = {
        position: float(match[1].replace(",", "."))
        for position, value in known_values.items()
        if (match := _NUMBER_PATTERN.fullmatch(value))
    }
    if len(numbers) == len(known_values) and len(set(numbers.values())) > 2 * NUMBER_RANGES:
        return _split_numbers(numbers)
    groups: dict[str, list[int]] = {}
    spelling: dict[str, str] = {}
    for position, value in known_values.items():
        groups.setdefault(spelling.setdefault(value.casefold(), value), []).append(position)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1]))[:MAX_GROUPS])


def _split_numbers(numbers: Mapping[int, float]) -> dict[str, list[int]]:
    """Three of about one size; equal numbers stay together."""
    boundaries = np.quantile(list(numbers.values()), np.arange(1, NUMBER_RANGES) / NUMBER_RANGES, method="lower")
    parts: list[list[int]] = [[] for _ in range(NUMBER_RANGES)]
    for position, value in numbers.items():
        parts[int(np.searchsorted(boundaries, value))].append(position)
    return {_format_range([numbers[position] for position in part]): part for part in parts if part}


def _format_range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def describe_group_differences(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Sentences on groups whose intervals do not meet: the model is better for one than for another."""
    sentences = []
    for name, attribute_groups in groups.items():
        measured_groups = [
            (group["group"], group["measure"])
            for group in attribute_groups
            if group["measure"] and group["measure"]["low"] is not None
        ]
        if len(measured_groups) < 2:
            continue
        lowest, highest = (choose(measured_groups, key=lambda group: float(group[1]["value"])) for choose in (min, max))
        if lowest[1]["high"] < highest[1]["low"]:
            metric = lowest[1]["name"]
            sentences.append(
                f"{metric} differs by {name}: {lowest[1]['value']:.3f} ({lowest[0]}, n = {lowest[1]['n']}) and "
                f"{highest[1]['value']:.3f} ({highest[0]}, n = {highest[1]['n']}), 95 % intervals apart."
            )
    return sentences


def add_subgroups(
    scores: Scores, task_family: TaskFamily, rows: Sequence[Row], index: Index, *, seed: int = 0
) -> Scores:
    """Scores whose `details` have `subgroups`, where the index says of what kind its cases are."""
    groups = score_by_subgroup(task_family, rows, index, primary=scores.primary.name, seed=seed)
    return replace(scores, details={**scores.details, "subgroups": groups}) if groups else scores
