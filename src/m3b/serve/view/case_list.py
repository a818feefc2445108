"""The cases of a run that may be looked at: all of training and validation, and those of the locked test set that the report shows."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from m3b.data.index import LABELS, TRAIN, Index, guess_task, read_index
from m3b.data.index import TEST as TEST_INDEX
from m3b.data.records import Record, paths_of
from m3b.isolation import untrusted
from m3b.markup.json_values import as_dict, to_finite_number
from m3b.models.example_images import format_labels
from m3b.report.case_ranking import rank_cases, shorten_keys
from m3b.report.measured_view import find_report_section
from m3b.run.folder import RunFolder
from m3b.tasks.report_section import CaseSummary, ReportSection

ID_CHARS = 16
MAX_JSON_BYTES = 64 * 2**20
VALIDATION, TEST, TRAINING = "validation", "test", "training"
VALIDATION_FILE, TEST_FILE = "Logout/valid_predictions.json", "predictions.json"
MAX_HELD_LISTS = 4
Row = dict[str, Any]


@dataclass(frozen=True)
class ListedCase:
    """A case as it is listed.

    Args:
        id: in addresses; it tells nothing about files.
        value: how good the prediction is; None if there is none, or a single case has no such value.
        row: the stored prediction, with what is measured of it; empty if there is none.
    """

    id: str
    name: str
    record: Record
    part: str
    truth: str
    answer: str
    value: float | None
    is_wrong: bool | None
    row: Row


@dataclass(frozen=True)
class CaseList:
    """The cases of a run that may be looked at, those with the worst predictions first.

    Args:
        n_tests, n_hidden_tests: locked test cases, and those of them that are not listed.
    """

    task: str
    index: Index
    cases: tuple[ListedCase, ...]
    value_title: str
    lower_is_better: bool
    n_tests: int
    n_hidden_tests: int

    def find(self, case_id: str) -> int | None:
        """Return the place of a case; None if it is not listed."""
        return next((place for place, case in enumerate(self.cases) if case.id == case_id), None)


def list_cases(run: RunFolder) -> CaseList:
    """Return the cases of a run; the lists of the last runs are held until their files change.

    Raises:
        DataError: the run has no accepted index yet, or it was damaged.
    """
    files = (
        run.path / "run.json",
        *(run.locked / name for name in (TRAIN, TEST_INDEX, LABELS, TEST_FILE)),
        run.work / VALIDATION_FILE,
    )
    return _list_cases(run.path, tuple(_read_change(file) for file in files))


def _read_change(file: Path) -> tuple[int, int]:
    try:
        state = file.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size


@lru_cache(maxsize=MAX_HELD_LISTS)
def _list_cases(path: Path, changes: tuple[tuple[int, int], ...]) -> CaseList:
    run = RunFolder(path)
    result = as_dict(_read_json(run.path, "run.json")).get("result")
    named = as_dict(result).get("task") or as_dict(_read_json(run.path, "manifest.json")).get("task")
    task = named if isinstance(named, str) and named else guess_task(run.locked)
    index, section = read_index(run.locked, task), find_report_section(task)
    test_rows = {str(row.get("image", "")): row for row in _read_rows(run.locked, TEST_FILE)}
    shown_keys = set(rank_cases(list(test_rows.values()), section).shown_keys)
    validation_rows = {_key_of(row): row for row in _read_rows(run.work, VALIDATION_FILE)}
    records = (*index.train, *(record for record in index.test if record.key in shown_keys))
    cases, titles = [], []
    for record, name in zip(records, shorten_keys([record.key for record in records]), strict=True):
        row = validation_rows.get(record.key, {})
        part = VALIDATION if row else TRAINING
        if record.key in shown_keys:
            row, part = test_rows[record.key], TEST
        summary = _summarize(row, section) if row else None
        truth = (summary.truth if summary else "") or format_labels(record, index.classes)
        titles += [summary.value_title] if summary and summary.value_title else []
        cases.append(
            ListedCase(
                hashlib.sha256(record.key.encode("utf-8", "surrogateescape")).hexdigest()[:ID_CHARS],
                name,
                record,
                part,
                truth,
                summary.answer if summary else "",
                summary.value if summary else None,
                summary.is_wrong if summary else None,
                row,
            )
        )
    sign = -1 if section.is_case_value_lower_better else 1

    def order(case: ListedCase) -> tuple[Any, ...]:
        value = math.inf if case.value is None else case.value * sign
        return not case.row, not case.is_wrong, value, case.part != VALIDATION

    n_shown = sum(case.part == TEST for case in cases)
    return CaseList(
        task,
        index,
        tuple(sorted(cases, key=order)),
        titles[0] if titles else "",
        section.is_case_value_lower_better,
        len(index.test),
        len(index.test) - n_shown,
    )


def _key_of(row: Mapping[str, Any]) -> str:
    try:
        return "|".join(paths_of(row["image"]))
    except (KeyError, TypeError):
        return ""


def _summarize(row: Row, section: ReportSection) -> CaseSummary | None:
    """Return a stored prediction in words; a class is predicted if it has the highest probability or, of several, above one half."""
    with contextlib.suppress(KeyError, TypeError, ValueError, IndexError, AttributeError):
        dice = as_dict(row.get("dice"))
        if dice:
            values = {name: value for name in dice if (value := to_finite_number(dice[name])) is not None}
            answer = ", ".join(f"{name}: Dice {value:.3f}" for name, value in values.items() if len(values) > 1)
            return CaseSummary("", answer, sum(values.values()) / len(values) if values else None, "Dice")
        return _check_value(section.summarize_case(_add_decision(row)))
    return None


def _check_value(summary: CaseSummary | None) -> CaseSummary | None:
    is_valid = summary is None or summary.value is None or to_finite_number(summary.value) is not None
    return summary if is_valid else None


def _add_decision(row: Row) -> Row:
    probabilities = row.get("probabilities")
    if not isinstance(probabilities, dict) or not probabilities or "decided" in row:
        return row
    labels = row["labels"] if "labels" in row else [row["grade"]]
    is_single = abs(sum(probabilities.values()) - 1) < 0.02
    best = max(probabilities, key=lambda name: float(probabilities[name]))
    decided = [best] if is_single else [name for name, value in probabilities.items() if value >= 0.5]
    return {**row, "labels": labels, "decided": decided}


def _read_json(folder: Path, name: str) -> Any:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return json.loads(untrusted.read_text(folder, name, MAX_JSON_BYTES))
    return None


def _read_rows(folder: Path, name: str) -> list[Row]:
    rows = _read_json(folder, name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
