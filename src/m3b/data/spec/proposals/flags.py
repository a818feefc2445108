"""Columns of a table that say yes or no of a finding each, some of them that it is uncertain."""

from __future__ import annotations

from collections.abc import Mapping

from m3b.data.spec.labels import UNCERTAIN
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.vocabulary import NOT_LABELS
from m3b.data.survey.table_facts import Column

MOST_UNCERTAIN = 0.25
"""Share of a table's rows in which a finding may be uncertain for the others to be taken without asking."""
_SAID = frozenset(("0", "1", "0.0", "1.0", "true", "false", "yes", "no"))
_YES = frozenset(("1", "1.0", "true", "yes"))


def is_flag(column: Column, values: Mapping[str, int]) -> bool:
    """Whether a column says yes and no, or yes alone where all else is blank; values that say neither may stand beside."""
    low = {value.casefold() for value in values} - UNCERTAIN
    plain = column.type in ("boolean", "integer", "number", "category") and 0 < len(low) <= 2 and low <= _SAID
    constant = low <= _YES and not column.missing and len(values) == 1  # a number that every row has
    return plain and not constant and not set(words(column.name)) & NOT_LABELS


def counted(columns: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Rows that say yes, of each column, given by its values and how many rows have each."""
    return {name: _of(values, _YES) for name, values in columns.items()}


def uncertain(columns: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Rows that say neither yes nor no, of each column that has some."""
    found = {name: _of(values, UNCERTAIN) for name, values in columns.items()}
    return {name: count for name, count in found.items() if count}


def _of(values: Mapping[str, int], texts: frozenset[str]) -> int:
    return sum(count for text, count in values.items() if text.casefold() in texts)


def told_uncertain(found: Mapping[str, int], rows: int) -> tuple[str, str]:
    """What is said of uncertain findings, and what a person should say where there are many; both may be empty."""
    if not found:
        return "", ""
    listed = ", ".join(f"{name} in {count:,}" for name, count in list(found.items())[:6])
    told = f"uncertain (-1), so that these cases are left out: {listed} of {rows:,} rows"
    asks = f"what to do with findings that are uncertain (-1): {listed} of {rows:,} rows; they would be left out"
    return told, asks if sum(found.values()) > MOST_UNCERTAIN * rows else ""
