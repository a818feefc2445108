"""The fields of JSON records as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from m3b.data.phi import Phi, cell, is_personal
from m3b.facts import ColumnSummary
from m3b.tools.text import shorten

MAX_FIELDS = 120
MAX_DEPTH = 6
MAX_ITEMS = 2000
MAX_KEYS = 40
VOCABULARY = 20
SENTENCE = 4
"""So many words are prose rather than a name."""
NAMES: dict[type, str] = {
    dict: "object", list: "list", bool: "boolean", int: "integer", float: "number", str: "text", type(None): "null"
}  # fmt: skip


def fields(value: Any, phi: Phi) -> tuple[ColumnSummary, ...]:
    """Every field of the objects in a JSON value, those inside others as `outer.inner`; 120 at most."""
    columns = []
    for column in _walk([value], "", phi, 0):
        columns.append(column)
        if len(columns) == MAX_FIELDS:
            break
    return tuple(columns)


def _walk(values: list[Any], path: str, phi: Phi, depth: int) -> Iterator[ColumnSummary]:
    if depth > MAX_DEPTH:
        return
    records = [value for value in values if isinstance(value, dict)]
    if records and (counts := Counter(key for record in records for key in record)):
        keys = list(counts)
        if len(keys) > MAX_KEYS:  # names of files or cases: each value is an object of the same form
            inner = [value for record in records for value in list(record.values())[:MAX_ITEMS]][:MAX_ITEMS]
            yield from _walk(inner, path, phi, depth + 1)
            return
        for key in keys:
            field_values = [record[key] for record in records[:MAX_ITEMS] if key in record]
            place = f"{path}.{key}" if path else str(key)
            column = field(place, field_values, phi, keys)
            yield column
            if not column.personal:
                yield from _walk(field_values, place, phi, depth + 1)
    lists = [value for value in values if isinstance(value, list)]
    items = [item for value in lists for item in value[:MAX_ITEMS]][:MAX_ITEMS]
    if any(isinstance(item, dict | list) for item in items):
        yield from _walk(items, path, phi, depth + 1)


def field(name: str, values: list[Any], phi: Phi, names: list[Any]) -> ColumnSummary:
    """One field, its values masked as in the text."""
    words = [value for value in values if isinstance(value, str)]
    types = Counter(NAMES.get(type(value), type(value).__name__) for value in values)
    kind = types.most_common(1)[0][0] if types else "empty"
    key = name.rpartition(".")[2]
    if phi == "mask" and is_personal(key, values, names):
        return ColumnSummary(name=name, type=kind, personal=True)
    scalars = [value for value in values if isinstance(value, str | int | float | bool)]
    counts = Counter(map(str, scalars))
    small = len(counts) <= VOCABULARY and bool(words) and len(counts) < len(scalars)
    vocabulary = tuple((shorten(cell(text), 60), count) for text, count in counts.most_common()) if small else ()
    prose = any(len(text.split()) >= SENTENCE for text in words[:200])
    return ColumnSummary(name=name, type=kind, distinct=len(counts), values=vocabulary, prose=prose)
