"""The rows of tables as text: CSV, TSV, JSON and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from folder_layouts import HALF_WORDS

LIST = "\x1f"
"""Stands between the items of a JSON list in one cell."""


MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>"})


def read_rows(file: Path, asked: Iterable[str] = ()) -> list[dict[str, str]]:
    """Rows of a table, all values as text; what means a missing value is empty.

    Args:
        asked: the columns that will be used; all numbers mean that the table has no header.
    """
    text = decode(file.read_bytes())
    if file.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        rows = _from_json(file, text, [name for name in asked if name])
    else:
        rows = _from_text(file, text, [name for name in asked if name])
    return [{key: "" if value in MISSING else value for key, value in row.items()} for row in rows]


def decode(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def _from_text(file: Path, text: str, asked: list[str]) -> list[dict[str, str]]:
    csv.field_size_limit(2**27)
    delimiter = _delimiter(text, file.suffix.lower())
    lines = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    if not lines:
        return []
    names = _names(lines[0])
    if asked and all(name.isdecimal() for name in asked) and not set(asked) <= set(names):
        names, lines = [str(at) for at in range(len(lines[0]))], [[], *lines]
    return [dict(zip(names, (*map(str.strip, row), *[""] * len(names)), strict=False)) for row in lines[1:]]


def _names(header: list[str]) -> list[str]:
    """Column names, made unique; those without a name are called by their place."""
    seen: dict[str, int] = {}
    names = []
    for at, cell in enumerate(header):
        name = cell.strip() or f"(column {at})"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _delimiter(text: str, suffix: str) -> str:
    """The one that cuts the first rows into most equally many cells."""
    head = text[:65536]
    if suffix in (".tsv", ".tab") and "\t" in head:
        return "\t"
    best, score = ",", 0.0
    for one in ",\t;|":
        widths = [len(row) for row in islice(csv.reader(io.StringIO(head, newline=""), delimiter=one), 30) if row]
        if widths and widths[0] > 1:
            same = sum(width == widths[0] for width in widths) / len(widths)
            if same * (1 + min(widths[0], 50) / 100) > score:
                best, score = one, same * (1 + min(widths[0], 50) / 100)
    return best


def _from_json(file: Path, text: str, asked: list[str]) -> list[dict[str, str]]:
    try:
        if file.suffix.lower() == ".json":
            value = json.loads(text)
        else:
            value = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise SystemExit(f"{file} is not valid JSON: {error}.") from None
    items = _records(value, asked)
    if items is None:
        raise SystemExit(f"{file} holds no list of records; name a file that does, or write a table with a script.")
    return [_flat(item) for item in items]


def _records(value: Any, asked: list[str]) -> list[dict[str, Any]] | None:
    """The records in a JSON value: a list, a list inside an object, or an object of one entry an image."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)] or None
    if not isinstance(value, dict):
        return None
    lists = {key: found for key, item in value.items() if isinstance(item, list) and (found := _records(item, asked))}
    if lists and all(key.lower() in HALF_WORDS for key in lists):
        return [{"(part)": HALF_WORDS[key.lower()], **item} for key, found in lists.items() for item in found]
    if lists:
        return max(lists.values(), key=lambda found: (sum(name in _flat(found[0]) for name in asked), len(found)))
    if value and all(isinstance(item, dict) for item in value.values()):
        return [{"(key)": key, **item} for key, item in value.items()]
    return [{"(key)": key, "(value)": item} for key, item in value.items()] or None


def _flat(item: dict[str, Any], before: str = "") -> dict[str, str]:
    row: dict[str, str] = {}
    for key, value in item.items():
        if isinstance(value, dict):
            row.update(_flat(value, f"{before}{key}."))
        elif isinstance(value, list):
            row[f"{before}{key}"] = LIST.join(str(part).strip() for part in value)
        else:
            row[f"{before}{key}"] = "" if value is None else str(value).strip()
    return row
