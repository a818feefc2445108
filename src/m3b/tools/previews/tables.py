"""Tables of every form (delimited text, workbooks, Parquet, MATLAB, XML, YAML, lists), as `m3b.dataset.tables` reads them."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from m3b.data.phi import Phi, is_personal, mask, personal_columns
from m3b.dataset.tables import ROW_COLUMN, LoadedTable, TableError, TableLimits, load_table
from m3b.errors import DataError, ToolError
from m3b.facts import TableSummary
from m3b.tools.previews.columns import ColumnStatistics, masked_value
from m3b.tools.previews.lines import Lines, count_lines
from m3b.tools.previews.masking import masked_line
from m3b.tools.text import pluralize, shorten

_LIMITS = TableLimits(megabytes=64, rows=2_000_000, cells=20_000_000, seconds=20)
_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", " ": "space"}
_MAX_COLUMNS = 60
_MIN_ROWS = 3
"""A text of fewer rows is shown as it is, and not as a table too."""
_MAX_OTHER_SHEETS = 4
_MAX_HEADINGS = 500
_MAX_TEXT_LINES = 10
"""Lines of a file that are shown before its table."""


def preview(path: Path, phi: Phi) -> Lines:
    """Return lines about a delimited text.

    Raises:
        ToolError: it cannot be read.
    """
    return _describe(_load(path), phi, path)


def preview_workbook(path: Path, phi: Phi) -> Lines:
    """Return lines about the sheet that holds the records, and a few about each other sheet.

    Raises:
        ToolError: no sheet can be read.
    """
    table = _load(path)
    info = table.info
    others = [name for name in info.sheets if name != info.sheet]
    described = _describe(table, phi)
    head = f"workbook, {pluralize(len(info.sheets), 'sheet')}; sheet {info.sheet!r}: {described[0]}"
    lines = [head, *described[1:]]
    for name in others[:_MAX_OTHER_SHEETS]:
        try:
            other = _describe(_load(path, name), phi)
        except ToolError:
            lines.append(f"sheet {name!r}: no rows below a header")
            continue
        lines += [f"sheet {name!r}: {other[0]}", *other[1:]]
    if len(others) > _MAX_OTHER_SHEETS:
        lines.append(f"more sheets: {', '.join(map(repr, others[_MAX_OTHER_SHEETS:][:20]))}")
    return Lines(lines, described.summary)


def preview_container(path: Path, phi: Phi) -> list[str]:
    """Return what its format says of a Parquet or MATLAB file, and the columns of the table in it."""
    from m3b.tools.previews import images

    lines: list[str] = []
    with contextlib.suppress(DataError):
        lines = images.preview(path, phi)
    return add_table(lines, path, phi, min_rows=1)


def add_table(lines: list[str], path: Path, phi: Phi, min_rows: int = _MIN_ROWS) -> list[str]:
    """Return lines about a file with those about its table behind them, if it is one.

    Raises:
        ToolError: it is no table, and there are no lines.
    """
    try:
        table = _load(path)
    except ToolError:
        if not lines:
            raise
        return lines
    if table.frame.height < min_rows or table.frame.width < 3:
        return lines
    described = _describe(table, phi, path)
    return Lines(
        [*lines[: _MAX_TEXT_LINES + 1], f"as a {described[0]}", *described[1:]] if lines else described,
        described.summary,
    )


def _load(path: Path, sheet: str = "") -> LoadedTable:
    try:
        return load_table(path.parent, [path.name], sheet=sheet, limits=_LIMITS)
    except (TableError, OSError) as error:
        raise ToolError(str(error).removeprefix(f"{path.name}: ")) from None


def _describe(table: LoadedTable, phi: Phi, path: Path | None = None) -> Lines:
    """Return the size of a table, what stands above its header, its columns and first rows.

    Args:
        path: of a delimited text, whose lines are counted if it was read in part.
    """
    frame, info = table.frame.drop(ROW_COLUMN), table.info
    names = frame.columns
    frame = frame[:, :_MAX_COLUMNS]
    if phi == "mask":
        frame = _mask_forms(frame)
    place = f" at {info.records!r}" if info.records else ""
    form = f", {_SEPARATORS.get(info.separator, 'not')}-separated, {info.encoding}" if info.separator else ""
    rows = pluralize(frame.height, "row")
    if info.partial:
        total = f" of about {count_lines(path):,}" if path is not None and info.form == "delimited" else ""
        rows = f"the first {rows}{total} (read in part)"
    lines = [f"table{place}{form}, {rows} x {pluralize(len(names), 'column')}"]
    lines += _quote("above and below it", info.title_rows, phi) + _quote("notes", info.notes, phi)
    if info.header_row == -1:
        lines.append("no header; columns are numbered")
    if info.units:
        lines.append(f"units: {', '.join(f'{name} {unit}' for name, unit in info.units.items())}")
    other_places = {name: count for name, count in info.places.items() if name != info.records and info.records}
    if other_places:
        lines.append(
            f"rows at other places: {', '.join(f'{name} x {count:,}' for name, count in other_places.items())}"
        )
    columns = [ColumnStatistics(column) for column in frame]
    first_rows = [[cell or "" for cell in row] for row in frame.head(200).iter_rows()]
    masked = personal_columns(frame.columns, first_rows) if phi == "mask" else set()
    lines.append(f"columns, of {'the rows read' if info.partial else 'all rows'}:")
    lines += ["  " + column.describe(index in masked) for index, column in enumerate(columns)]
    if len(names) > len(columns):
        lines.append(f"  ... {len(names) - len(columns)} more columns, up to {names[-1]}")
    lines.append("first rows:")
    lines += ["  " + _show_row(row, info.separator or ",", masked) for row in first_rows[:3]]
    summaries = tuple(column.summary(index in masked) for index, column in enumerate(columns))
    return Lines(lines, TableSummary(rows=frame.height, columns=summaries))


def _show_row(row: list[str], separator: str, masked: set[int]) -> str:
    out = io.StringIO()
    cells = [masked_value(cell, index in masked) for index, cell in enumerate(row)]
    csv.writer(out, delimiter=separator, lineterminator="").writerow(cells)
    return out.getvalue()


def _quote(title: str, texts: Sequence[str], phi: Phi) -> list[str]:
    """Return texts of a table in one line."""
    shown = [masked_line(text) if phi == "mask" else text for text in texts]
    return [f"{title}: {shorten('; '.join(shown), 300)}"] if texts else []


def _mask_forms(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with the rows masked in which one cell says that another names a person (`Date of birth`, `12.3.1956`)."""
    masked = frame
    for name in frame.columns:
        texts = frame[name].drop_nulls().unique()
        rows = frame.partition_by(name, as_dict=True, include_key=False) if len(texts) <= _MAX_HEADINGS else {}
        headings = [text for (text,), part in rows.items() if text and is_personal(str(text), part.row(0))]
        if headings:
            others = pl.exclude(name).map_elements(mask, return_dtype=pl.String)
            masked = masked.with_columns(pl.when(pl.col(name).is_in(headings)).then(others).otherwise(pl.exclude(name)))
    return masked
