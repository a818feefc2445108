"""Table 1 of a paper kit: cases, patients, targets and attributes of both parts of the index."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from m3b.agents.artifacts import DataIndex
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.markup.formatting import shorten
from m3b.tasks import get_family

COLUMNS = ("train", "test", "all")
MAX_CATEGORIES = 12
"""Maximum values of an attribute that have a row each."""
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?")


@dataclass(frozen=True)
class Cell:
    """A cell: the counted JSON value, and its text."""

    value: Any
    text: str


@dataclass(frozen=True)
class CharacteristicRow:
    """A row of Table 1.

    Args:
        name: prefix of the names of its facts.
        title: the row's first column.
        cells: column -> cell; empty for a heading.
        source: what was counted, for the facts file.
    """

    name: str
    title: str
    cells: Mapping[str, Cell] = field(default_factory=dict)
    source: str = "counted"


def describe_characteristics(index: Index, data: DataIndex) -> tuple[CharacteristicRow, ...]:
    """Return the rows of Table 1 for any task, from what its records hold."""
    parts = {"train": index.train, "test": index.test, "all": index.records}
    rows = [_make_row("table1.cases", "Cases, n", parts, lambda records: _count(len(records)), "number of records")]
    if data.patients_known:
        rows.append(
            _make_row(
                "table1.patients", "Patients, n", parts,
                lambda records: _count(len({record.patient for record in records})), "different patients",
            )
        )  # fmt: skip
    if any(len(record.images) > 1 for record in index.records):
        rows.append(
            _make_row(
                "table1.images", "Image files, n", parts,
                lambda records: _count(sum(len(record.images) for record in records)), "paths of the images",
            )
        )  # fmt: skip
    rows += _describe_targets(index, data, parts)
    rows += _describe_attributes(parts, by_patient=data.patients_known)
    return tuple(rows)


def _make_row(
    name: str,
    title: str,
    parts: Mapping[str, Sequence[Record]],
    make_cell: Callable[[Sequence[Record]], Cell],
    source: str,
) -> CharacteristicRow:
    return CharacteristicRow(name, title, {column: make_cell(parts[column]) for column in COLUMNS}, source)


def _count(number: int, total: int | None = None) -> Cell:
    """Return a count, with its percentage of a total."""
    if total is None:
        return Cell(number, f"{number:,}")
    share = f" ({100 * number / total:.1f}%)" if total else ""
    return Cell({"n": number, "of": total}, f"{number:,}{share}")


def _summarize(values: Sequence[float]) -> Cell:
    """Return median and quartiles of numbers."""
    if not values:
        return Cell(None, "not known")
    if len(values) == 1:
        return Cell({"median": values[0]}, f"{values[0]:g}")
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Cell({"median": middle, "quartiles": [low, high]}, f"{middle:.4g} ({low:.4g} to {high:.4g})")


# --- targets -------------------------------------------------------------------------------------------------------


def _describe_targets(index: Index, data: DataIndex, parts: Mapping[str, Sequence[Record]]) -> list[CharacteristicRow]:
    """Return what is to be learnt: classes, boxes, numbers, times, words."""
    predicts_classes = get_family(index.task).predicts_classes()
    rows: list[CharacteristicRow] = []
    class_names = list(dict.fromkeys(name for counts in data.counts.values() for name in counts))
    if class_names and (predicts_classes or class_names != list(index.classes)):
        rows.append(
            CharacteristicRow("table1.class", "Cases with the class, n (%)" if predicts_classes else "Cases, n (%)")
        )
        for position, name in enumerate(class_names):
            counts = {split: data.counts.get(split, {}).get(name, 0) for split in ("train", "test")}
            counts["all"] = sum(counts.values())
            cells = {column: _count(counts[column], len(parts[column])) for column in COLUMNS}
            title = f"  {shorten(name, 60)}"
            rows.append(
                CharacteristicRow(f"table1.class.{position}", title, cells, "counts of the index in the journal")
            )
    if index.boxed:
        rows.append(CharacteristicRow("table1.boxes", "Boxes, n"))
        rows += [
            _make_row(
                f"table1.boxes.{position}", f"  {shorten(name, 60)}", parts, partial(_count_boxes, name),
                "boxes of the class",
            )
            for position, name in enumerate(index.classes)
        ]  # fmt: skip
    rows += _describe_extra(index, parts, "" if predicts_classes else next(iter(index.classes), ""))
    if any(record.report for record in index.records):
        rows.append(
            _make_row(
                "table1.words", "Words of a report, median (quartiles)", parts,
                lambda records: _summarize([float(len(record.report.text.split())) for record in records if record.report]),
                "words of findings and impression",
            )
        )  # fmt: skip
    return rows


def _describe_extra(index: Index, parts: Mapping[str, Sequence[Record]], quantity: str) -> list[CharacteristicRow]:
    """Return a row for every number that the records of the task hold, such as the value or the time to predict."""
    rows = []
    for key in dict.fromkeys(key for record in index.records for key in record.extra):
        if any(_list_numbers(key, records) for records in parts.values()):
            title = f"{shorten(quantity or key, 60)}, median (quartiles)"
            source = f"the key {key} of the records"
            rows.append(_make_row(f"table1.{key}", title, parts, partial(_summarize_key, key), source))
    return rows


def _count_boxes(name: str, records: Sequence[Record]) -> Cell:
    return _count(sum(box.label == name for record in records for box in record.boxes or ()))


def _list_numbers(key: str, records: Sequence[Record]) -> list[float]:
    values = [record.extra.get(key) for record in records]
    return [float(value) for value in values if isinstance(value, float | int) and not isinstance(value, bool)]


def _summarize_key(key: str, records: Sequence[Record]) -> Cell:
    return _summarize(_list_numbers(key, records))


# --- attributes ----------------------------------------------------------------------------------------------------


def _describe_attributes(parts: Mapping[str, Sequence[Record]], *, by_patient: bool) -> list[CharacteristicRow]:
    """Return age, sex and whatever else the index knows of patients and acquisition."""
    unit = "patients" if by_patient else "cases"
    values = {column: _list_attributes(records, by_patient=by_patient) for column, records in parts.items()}
    rows: list[CharacteristicRow] = []
    for position, name in enumerate(dict.fromkeys(name for unit_values in values["all"] for name in unit_values)):
        prefix, title = f"table1.attribute.{position}", shorten(name, 60).capitalize()
        texts = {column: [row.get(name, "") for row in rows_of] for column, rows_of in values.items()}
        known_texts = [text for text in texts["all"] if text]
        source = f"the attribute {name} of {unit}"
        is_number = bool(known_texts) and all(_NUMBER.fullmatch(text) for text in known_texts)
        if is_number and len(set(known_texts)) > 2:
            cells = {column: _summarize([_to_float(text) for text in texts[column] if text]) for column in COLUMNS}
            rows.append(CharacteristicRow(prefix, f"{title}, median (quartiles), {unit}", cells, source))
        else:
            rows += _describe_categories(prefix, f"{title}, n (%), {unit}", texts, source)
        if len(known_texts) < len(texts["all"]):
            cells = {column: _count(texts[column].count(""), len(texts[column])) for column in COLUMNS}
            rows.append(CharacteristicRow(f"{prefix}.unknown", "  not known, n (%)", cells, source))
    return rows


def _describe_categories(
    prefix: str, title: str, texts: Mapping[str, Sequence[str]], source: str
) -> list[CharacteristicRow]:
    categories = [text for text, _ in Counter(filter(None, texts["all"])).most_common()]
    if len(categories) > MAX_CATEGORIES:
        cells = {column: _count(len(set(filter(None, texts[column])))) for column in COLUMNS}
        return [CharacteristicRow(prefix, f"{title.partition(',')[0]}, different values", cells, source)]
    return [
        CharacteristicRow(prefix, title),
        *(
            CharacteristicRow(
                f"{prefix}.{number}", f"  {shorten(category, 60)}",
                {column: _count(texts[column].count(category), len(texts[column])) for column in COLUMNS}, source,
            )
            for number, category in enumerate(categories)
        ),
    ]  # fmt: skip


def _list_attributes(records: Sequence[Record], *, by_patient: bool) -> list[dict[str, str]]:
    """Return name -> text for each patient (from the first of its cases that knows it) or case."""
    units: dict[str, dict[str, str]] = {}
    for position, record in enumerate(records):
        values = units.setdefault(record.patient if by_patient else str(position), {})
        covariate_texts = {name: "" if value is None else f"{value:g}" if isinstance(value, float) else value
                 for name, value in record.covariates.items()}  # fmt: skip
        for name, text in [*covariate_texts.items(), *record.attributes.items()]:
            values[name] = values.get(name) or str(text).strip()
    return list(units.values())


def _to_float(text: str) -> float:
    return float(text.replace(",", "."))
