"""Cells of HTML tables below a heading that names a person, and identifiers of FHIR in XML: other lines say what a value is."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from m3b.data.phi import mask, personal_columns

_TAG = re.compile(r"<(/?)([a-zA-Z][\w.:-]{0,60})[^<>]{0,2000}>")
_IDENTIFIER = re.compile(r"<(?:\w{1,30}:)?identifier\b[^<>]{0,500}>(.{0,4000}?)</(?:\w{1,30}:)?identifier>", re.DOTALL)
_VALUE = re.compile(r"""<(?:\w{1,30}:)?value\b[^<>]{0,500}?\bvalue=(["'])([^"'<>]{1,300})\1""")
_CELLS = frozenset(("td", "th"))

Span = tuple[int, int]


@dataclass
class _Table:
    """Rows of a table; a cell is the spans of its texts."""

    rows: list[list[list[Span]]] = field(default_factory=list)

    def add_cell(self) -> list[Span]:
        if not self.rows:
            self.rows.append([])
        self.rows[-1].append([])
        return self.rows[-1][-1]


def mask_markup(text: str) -> str:
    """Return a text of the same lines with the values masked that name a person by a heading or element in another line."""
    spans = sorted({*_find_personal_cells(text), *_find_identifiers(text)})
    parts, position = [], 0
    for start, end in spans:
        masked = "\n".join(mask(line) if line.strip() else line for line in text[start:end].split("\n"))
        parts += [text[position:start], masked]
        position = end
    return "".join([*parts, text[position:]])


def _find_identifiers(text: str) -> Iterator[Span]:
    for record in _IDENTIFIER.finditer(text):
        for value in _VALUE.finditer(record[1]):
            yield record.start(1) + value.start(2), record.start(1) + value.end(2)


def _find_personal_cells(text: str) -> Iterator[Span]:
    for table in _read_tables(text):
        texts = [[_read_cell(text, cell) for cell in row] for row in table.rows if row]
        if len(texts) < 2:
            continue
        width = len(texts[0])
        for column in personal_columns(texts[0], [row for row in texts[1:] if len(row) <= width]):
            for row in [row for row in table.rows if row][1:]:
                yield from row[column] if column < len(row) else ()


def _read_cell(text: str, spans: list[Span]) -> str:
    return html.unescape(" ".join(text[start:end] for start, end in spans)).strip()


def _read_tables(text: str) -> list[_Table]:
    """Return the tables of a text, which may lack end tags; a table in a cell is a table of its own."""
    tables: list[_Table] = []
    open_tables: list[_Table] = []
    cell: list[Span] | None = None
    position = 0
    for tag in _TAG.finditer(text):
        if cell is not None and text[position : tag.start()].strip():
            cell.append((position, tag.start()))
        position = tag.end()
        is_end, name = bool(tag[1]), tag[2].lower()
        if name == "table":
            cell = None
            if not is_end:
                tables.append(_Table())
                open_tables.append(tables[-1])
            elif open_tables:
                open_tables.pop()
        elif name == "tr":
            cell = None
            if not is_end and open_tables:
                open_tables[-1].rows.append([])
        elif name in _CELLS:
            cell = open_tables[-1].add_cell() if not is_end and open_tables else None
    return tables
