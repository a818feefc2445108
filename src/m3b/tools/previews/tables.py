"""CSV and other delimited text: columns, types, value counts, first rows, number of all rows."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from m3b.data.delimited import Layout, allow_long_cells, is_table, parse, sniff
from m3b.data.phi import Phi, personal_columns
from m3b.facts import TableSummary
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.blocks import count_lines, spread
from m3b.tools.previews.columns import ColumnTally, masked_value
from m3b.tools.previews.lines import Lines
from m3b.tools.text import pluralize

_WHOLE_UP_TO = 64 * 2**20
_FIRST_ROWS = 20_000
_PLACES = 20
MAX_COLUMNS = 60
_LONGEST = 2**24
_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", " ": "space"}


__all__ = ["Layout", "is_table", "preview", "sniff"]


def preview(path: Path, phi: Phi) -> Lines:
    """Lines about a table; statistics are of every row up to 64 MiB, else of a sample that is named."""
    allow_long_cells()
    with open_for_reading(path, path.name) as file:
        head = file.read(1 << 18)
        length = os.fstat(file.fileno()).st_size
    layout = sniff(head, path.suffix.lower(), whole=length <= len(head))
    columns = [ColumnTally(name) for name in layout.names[:MAX_COLUMNS]]
    width = len(layout.names)
    if length <= _WHOLE_UP_TO:
        rows, ragged, first = _feed(columns, width, _rows(path, layout))
        of, total = "all rows", pluralize(rows, "row")
    else:
        taken, ragged, first = _feed(columns, width, islice(_rows(path, layout), _FIRST_ROWS))
        more, _, _ = _feed(columns, width, _spread_rows(path, layout))
        of = f"the first {taken:,} rows and {more:,} spread over the rest"
        total = _total(path, layout)
    lines = [f"table, {_NAMES[layout.delimiter]}-separated, {layout.encoding}, {total} x {pluralize(width, 'column')}"]
    if not layout.header:
        lines.append("no header; columns are numbered from 0")
    if ragged:
        lines.append(f"{pluralize(ragged, 'row')} with another number of cells than {width}")
    described = describe_rows(columns, layout.names, first, of, phi, layout.delimiter)
    return Lines([*lines, *described], described.summary)


def describe_rows(
    columns: Sequence[ColumnTally],
    names: Sequence[str],
    first_rows: Sequence[list[str]],
    scope: str,
    phi: Phi,
    delimiter: str = ",",
) -> Lines:
    """Return a line for each column and the first rows; columns of personal data are masked.

    Args:
        columns: statistics of the first columns.
        names: of all columns.
        scope: the rows that the statistics are computed from, in words.
    """
    masked = personal_columns(names[: len(columns)], first_rows) if phi == "mask" else set()
    lines = [f"columns, of {scope}:"]
    lines += ["  " + column.describe(index in masked) for index, column in enumerate(columns)]
    if len(names) > len(columns):
        lines.append(f"  ... {len(names) - len(columns)} more columns, up to {names[-1]}")
    lines.append("first rows:")
    lines += ["  " + _show_row(row, delimiter, masked, len(names) > len(columns)) for row in first_rows[:3]]
    summaries = tuple(column.summary(index in masked) for index, column in enumerate(columns))
    return Lines(lines, TableSummary(rows=max((column.count for column in columns), default=0), columns=summaries))


def _rows(path: Path, layout: Layout) -> Iterator[list[str]]:
    """Rows behind the header, without empty lines."""
    with open_for_reading(path, path.name) as raw:
        buffered = io.BufferedReader(raw, 1 << 20)
        text = io.TextIOWrapper(buffered, layout.encoding, errors="replace", newline="")
        rows = (row for row in parse(text, layout.delimiter) if row)
        yield from islice(rows, 1 if layout.header else 0, None)


def _spread_rows(path: Path, layout: Layout) -> Iterator[list[str]]:
    """Rows from places all over the file; those that do not have every cell were cut and are left out."""
    for block in spread(path, 1 << 20, _PLACES, 1 << 15):
        lines = io.StringIO(block.decode(layout.encoding, "replace"), newline="")
        yield from (row for row in parse(lines, layout.delimiter) if len(row) == len(layout.names))


def _feed(columns: list[ColumnTally], width: int, rows: Iterator[list[str]]) -> tuple[int, int, list[list[str]]]:
    """Give all rows to the columns; returns how many there were, how many were ragged, and the first 200."""
    count, ragged, kept = 0, 0, len(columns)
    first: list[list[str]] = []
    step = max(1, min(5000, 1_000_000 // max(width, 1)))
    while chunk := list(islice(rows, step)):
        count += len(chunk)
        even = [row for row in chunk if len(row) == width]
        whole = len(even) == len(chunk)
        ragged += len(chunk) - len(even)
        chunk = chunk if width == kept else [row[:kept] for row in chunk]
        even = chunk if whole else [(row + [""] * kept)[:kept] for row in chunk]
        if len(first) < 200:
            first += chunk[: 200 - len(first)]
        for column, values in zip(columns, zip(*even, strict=True), strict=True):
            column.feed(values)
    return count, ragged, first


def _total(path: Path, layout: Layout) -> str:
    found = count_lines(path, quotes=True)
    if layout.encoding == "utf-16" or not found.balanced:
        lines = count_lines(path, quotes=False).lines - layout.header
        return f"about {lines:,} rows (a quote is never closed: lines were counted)"
    return pluralize(found.lines - layout.header, "row")


def _show_row(row: list[str], delimiter: str, masked: set[int], is_cut: bool) -> str:
    cells = [masked_value(cell, index in masked) for index, cell in enumerate(row)]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="").writerow(cells)
    return out.getvalue() + (" ..." if is_cut else "")
