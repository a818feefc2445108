"""Rows out of text tables, workbooks and plain lists, within limits; of documents see `reading_documents`."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

from m3b.data.delimited import decode, parse, sniff
from m3b.data.opening import Unreadable
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.reading_documents import flat, read_json, read_xml
from m3b.data.survey.reading_texts import read_text
from m3b.data.survey.rows import Rows
from m3b.isolation.untrusted import parse_data_json

MOST_PROSE = 1 << 18
"""Bytes of a text that one person wrote about one case."""
_PROSE = 8.0
"""Words a line, on average, from which a text file without columns is prose and no list."""
_ITEM = re.compile(r"""'([^'\n]*)'|"([^"\n]*)\"""")
_LIST = re.compile(r"""\s*\[\s*(?:(?:'[^'\n]*'|"[^"\n]*")(?:\s*,\s*|\s*(?=\])))+\]\s*""")
"""A list of quoted texts in one cell, as programs print them: `['effusion', 'nodule']`."""


def read_rows(path: Path, suffix: str, limits: SurveyLimits) -> list[Rows]:
    """Every table of a file; none where it holds no table.

    Raises:
        Unreadable: it is too large for its kind, a bomb, or no regular file.
        ValueError, OSError and what the readers raise.
    """
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("special", path.name)
    if suffix in (".xlsx", ".xlsm"):
        return _workbook(path, limits)
    if suffix in (".csv", ".tsv", ".tab"):
        table = _text(path, suffix, limits)
        return [table] if table else []
    if suffix in (".json", ".jsonl", ".ndjson", ".geojson"):
        return read_json(path, limits, found.st_size)
    if suffix == ".xml":
        if found.st_size > limits.table_bytes:
            raise Unreadable("large", path.name)
        return [read_xml(path)]
    if not found.st_size:
        return []
    return [one for one in (_text(path, suffix, limits), _record(path)) if one is not None]


# --- text ---------------------------------------------------------------------------------------------------------


def _text(path: Path, suffix: str, limits: SurveyLimits) -> Rows | None:
    with path.open("rb") as file:
        data = file.read(limits.table_bytes + 1)
    exact = len(data) <= limits.table_bytes
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    if not exact:
        data = data[: data.rfind(b"\n") + 1]
    layout = sniff(data[: 1 << 18], suffix, whole=len(data) <= 1 << 18)
    text = decode(data)[0]
    if suffix not in (".csv", ".tsv", ".tab"):
        if (plain := _plain(text, layout.delimiter)) is None:
            return None
        if plain:
            return _list(text, limits, exact, layout.encoding, plain)
    table = Rows("csv", list(layout.names), delimiter=layout.delimiter, encoding=layout.encoding, header=layout.header)
    rows = parse(io.StringIO(text, newline=""), layout.delimiter)
    filled = (row for row in rows if any(cell.strip() for cell in row))
    for row in islice(filled, 1 if layout.header else 0, limits.rows + 1):
        if len(table.rows) >= limits.rows:
            exact = False
            break
        table.rows.append(dict(zip(table.names, row, strict=False)))
    if len(table.names) == 1 and suffix not in (".csv", ".tsv", ".tab"):
        table.format = "list"
    table.exact = exact
    return _opened(table)


def _record(path: Path) -> Rows | None:
    with path.open("rb") as file:
        data = file.read(MOST_PROSE + 1)
    if b"\0" in data:
        return None
    text, encoding = decode(data[:MOST_PROSE])
    return read_text(text, exact=len(data) <= MOST_PROSE, encoding=encoding)


def _opened(table: Rows) -> Rows:
    """A table whose cells hold JSON objects with a column more for each of their fields."""
    for name in [one for one in table.names if any(str(row.get(one, "")).startswith("{") for row in table.rows[:20])]:
        try:
            objects = [parse_data_json(str(row.get(name) or "{}")) for row in table.rows]
        except (ValueError, RecursionError):
            continue
        if all(isinstance(one, dict) for one in objects) and any(objects):
            fields = [flat(one, f"{name}.") for one in objects]
            table.names += [
                one for one in dict.fromkeys(key for row in fields for key in row) if one not in table.names
            ]
            table.rows = [{**row, **more} for row, more in zip(table.rows, fields, strict=True)]
    for name in [one for one in table.names if any(_LIST.fullmatch(str(row.get(one, ""))) for row in table.rows[:200])]:
        cells = [str(row.get(name) or "").strip() for row in table.rows]
        if all(cell in ("", "[]") or _LIST.fullmatch(cell) for cell in cells):
            for row, cell in zip(table.rows, cells, strict=True):
                row[name] = [found[1] or found[2] for found in _ITEM.finditer(cell)] or ""
    return table


def _plain(text: str, delimiter: str) -> str | None:
    """Of a text file: "" where its delimiter makes columns, " " where spaces do, "\\n" for one item a line, None: prose."""
    lines = [line for line in text[:65536].splitlines()[:400] if line.strip()]
    if not lines:
        return None
    widths = {len(line.split(delimiter)) for line in lines[:-1] or lines}
    if len(widths) == 1 and widths != {1}:
        return ""
    spaced = {len(line.split()) for line in lines[:-1] or lines}
    if len(spaced) == 1 and 1 < min(spaced) <= 12 and len(lines) > 1:
        return " "
    words = sum(len(line.split()) for line in lines) / len(lines)
    return "\n" if words < _PROSE and max(map(len, lines)) <= 500 else None


def _list(text: str, limits: SurveyLimits, exact: bool, encoding: str, mark: str) -> Rows:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if mark == " ":
        cells = [line.split() for line in lines[: limits.rows]]
        names = [str(at) for at in range(max(map(len, cells)))]
        table = Rows("csv", names, delimiter=" ", encoding=encoding, header=False)
        table.rows = [dict(zip(names, row, strict=False)) for row in cells]
    else:
        table = Rows("list", ["0"], encoding=encoding, header=False)
        table.rows = [{"0": line} for line in lines[: limits.rows]]
    table.exact = exact and len(lines) <= limits.rows
    return table


# --- workbooks ----------------------------------------------------------------------------------------------------


def _workbook(path: Path, limits: SurveyLimits) -> list[Rows]:
    with zipfile.ZipFile(path) as archive:
        if sum(one.file_size for one in archive.infolist()) > 8 * limits.table_bytes:
            raise Unreadable("bomb", path.name)
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        return [table for sheet in book.worksheets[:32] if (table := _sheet(sheet, limits)) is not None]
    finally:
        book.close()


def _sheet(sheet: Any, limits: SurveyLimits) -> Rows | None:
    rows = ([_cell(cell) for cell in row] for row in sheet.iter_rows(values_only=True))
    filled = (row for row in rows if any(cell.strip() for cell in row))
    first = next(filled, None)
    if first is None:
        return None
    while first and not first[-1].strip():
        first.pop()
    header = not any(re.fullmatch(r"[+-]?\d+(\.\d+)?", cell) for cell in first) and len(set(first)) == len(first)
    names = [cell.strip() or f"(column {at})" for at, cell in enumerate(first)] if header else [
        str(at) for at in range(len(first))
    ]  # fmt: skip
    table = Rows("xlsx", names, sheet=sheet.title, header=header)
    if not header:
        table.rows.append(dict(zip(names, first, strict=False)))
    for row in islice(filled, limits.rows):
        table.rows.append(dict(zip(names, row, strict=False)))
    table.exact = next(filled, None) is None
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)
