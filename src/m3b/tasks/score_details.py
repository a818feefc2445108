"""Details of scores: subgroups, uncertainty, and the look-up control.

The look-up control compares the predictions for test images with those for altered copies of them. If copies of an
image were predicted, the row of the case has their rows under `ALTERED_KEY`, by alteration.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.altering import WAYS, can_alter
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.metrics import Scores
from m3b.models import Prediction
from m3b.tasks.base import Row, TaskFamily, sample_evenly

MIN_PATIENTS = 5
"""A group with fewer patients is not scored."""
MAX_GROUPS = 12
"""Maximum number of groups of one attribute, those with most cases first."""
NUMBER_RANGES = 3
"""Numbers are divided into this many groups of about equal size."""
_NUMBER_PATTERN = re.compile(r"\s*(-?\d+(?:[.,]\d+)?)\s*(?:[YyMmWwDd]|years?|yrs?)?\s*")
"""A number, also an age as DICOM writes it: `045Y`."""


def score_by_subgroup(
    task_family: TaskFamily, rows: Sequence[Row], index: Index, *, primary: str, seed: int = 0
) -> dict[str, list[dict[str, Any]]]:
    """Compute the primary metric of each group of measured test cases.

    Returns:
        Attribute -> groups as JSON values: `group`, `n`, `patients`, `measure` (see `Measure.to_dict`; null if the
        group is too small or the metric is undefined). Attributes with a single group are omitted.
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
        except ValueError:  # the metric is undefined in this group, for example because it has only one class
            scores = None
        if scores is not None and not np.isnan(scores.primary.value):
            measure = {
                **scores.primary.to_dict(),
                "baseline": None,
                "gain": None,
            }  # they belong to all cases, not to this group
    return {"group": group, "n": len(rows), "patients": patients, "measure": measure}


def split_into_groups(values: Sequence[str]) -> dict[str, list[int]]:
    """Return group -> positions of its values.

    Numbers become ranges; texts are compared without case; empty values belong to no group.
    """
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
    """Split numbers into `NUMBER_RANGES` ranges of about equal size; equal numbers stay together."""
    boundaries = np.quantile(list(numbers.values()), np.arange(1, NUMBER_RANGES) / NUMBER_RANGES, method="lower")
    parts: list[list[int]] = [[] for _ in range(NUMBER_RANGES)]
    for position, value in numbers.items():
        parts[int(np.searchsorted(boundaries, value))].append(position)
    return {_format_range([numbers[position] for position in part]): part for part in parts if part}


def _format_range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def describe_group_differences(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return sentences on attributes whose best and worst group have disjoint intervals."""
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
    """Add `subgroups` to the details of the scores, if the index has attributes of its cases."""
    groups = score_by_subgroup(task_family, rows, index, primary=scores.primary.name, seed=seed)
    return replace(scores, details={**scores.details, "subgroups": groups}) if groups else scores


OOD_KEY, PREDICTION_SET_KEY = "out_of_distribution", "prediction_set"
"""Keys of a row."""


def add_uncertainty(row: Row, record: Record, answer: Prediction) -> Row:
    """Add the model's uncertainty to a measured case, if the prediction has any."""
    uncertainty: Row = {}
    if answer.out_of_distribution is not None:
        uncertainty[OOD_KEY] = answer.out_of_distribution
    if answer.prediction_set is not None:
        uncertainty[PREDICTION_SET_KEY] = {
            "classes": list(answer.prediction_set),
            "level": answer.set_level,
            "abstains": bool(answer.abstains),
            "labels": list(record.labels),
        }
    return {**row, **uncertainty}


def add_uncertainty_scores(scores: Scores, rows: Sequence[Row]) -> Scores:
    """Add to the details how many test images were flagged, and how often prediction sets hold the true labels."""
    uncertainty: dict[str, Any] = {}
    if flags := [bool(row[OOD_KEY]) for row in rows if OOD_KEY in row]:
        uncertainty[OOD_KEY] = {"flagged": sum(flags), "n": len(flags)}
    if sets := [row[PREDICTION_SET_KEY] for row in rows if PREDICTION_SET_KEY in row]:
        uncertainty["prediction_sets"] = _measure_prediction_sets(sets)
    return replace(scores, details={**scores.details, **uncertainty}) if uncertainty else scores


def _measure_prediction_sets(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the coverage of prediction sets: the share of true labels that are in the set of their case."""
    is_covered = [(name in prediction_set["classes"]) for prediction_set in sets for name in prediction_set["labels"]]
    return {
        "promised": sets[0]["level"],
        "held": round(sum(is_covered) / len(is_covered), 6) if is_covered else None,
        "mean_size": round(sum(len(prediction_set["classes"]) for prediction_set in sets) / len(sets), 3),
        "abstained": sum(prediction_set["abstains"] for prediction_set in sets),
        "n": len(sets),
    }


ALTERED_KEY, VERBATIM_KEY = "altered", "copied_verbatim"
"""Keys of a row."""
MIN_COPIES = 5
"""With fewer copies nothing is reported."""


@dataclass(frozen=True)
class AlteredCopy:
    """A copy of the image of the case at position `record_position`, altered as in `m3b.data.altering`."""

    record_position: int
    alteration: str


def plan_copies(records: Sequence[Record], index: Index, task_family: TaskFamily, root: Path) -> list[AlteredCopy]:
    """Return the altered copies to predict, of test cases spread evenly over `records`.

    The paths of the records are relative to `root`.
    """
    alterations = task_family.list_alterations()
    if not alterations:
        return []
    test_keys = {record.key for record in index.test}
    position_by_key = {record.key: number for number, record in enumerate(records)}
    eligible = [record for record in records if record.key in test_keys and can_alter(record.reference, root)]
    return [
        AlteredCopy(position_by_key[record.key], alteration)
        for record in sample_evenly(eligible, task_family.max_altered_cases())
        for alteration in alterations
    ]


def attach_copies(
    rows: Sequence[Row], copies: Sequence[AlteredCopy], copy_rows: Sequence[Row], was_altered: Sequence[bool]
) -> list[Row]:
    """Add the rows of its copies to each row, if the copies were really altered."""
    copies_by_position: dict[int, dict[str, Row]] = {}
    for copy, row, is_altered in zip(copies, copy_rows, was_altered, strict=True):
        if is_altered:
            copies_by_position.setdefault(copy.record_position, {})[copy.alteration] = row
    return [
        {**row, ALTERED_KEY: copies_by_position[position]} if position in copies_by_position else row
        for position, row in enumerate(rows)
    ]


def mark_verbatim(rows: Sequence[Row], verbatim: Collection[int]) -> list[Row]:
    """Mark the rows at the positions of cases whose files were staged as they are, with all their texts."""
    return [{**row, VERBATIM_KEY: True} if position in verbatim else row for position, row in enumerate(rows)]


def add_lookup_control(scores: Scores, rows: Sequence[Row], task_family: TaskFamily) -> Scores:
    """Add `control` to the details, if enough copies were predicted, and `verbatim`, the number of rows marked so.

    It has for each alteration the number of copies `n`, and `change`: the mean distance, 0 to 1, of the predictions for
    an image and its copy.
    """
    control: dict[str, Mapping[str, Any]] = {}
    for alteration in WAYS:
        pairs = [(row, row[ALTERED_KEY][alteration]) for row in rows if alteration in row.get(ALTERED_KEY, {})]
        if len(pairs) >= MIN_COPIES:
            control[alteration] = {"n": len(pairs), "change": round(task_family.mean_answer_change(pairs, rows), 6)}
    verbatim = sum(bool(row.get(VERBATIM_KEY)) for row in rows)
    details = {**({"control": control} if control else {}), **({"verbatim": verbatim} if verbatim else {})}
    return replace(scores, details={**scores.details, **details}) if details else scores
