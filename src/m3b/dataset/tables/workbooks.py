"""Workbooks (XLSX, XLS, XLSB, ODS): which sheet holds the records, and its rows."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence

import polars as pl

from m3b.dataset.tables.headers import HEAD_ROWS, find_header
from m3b.dataset.tables.model import TableError, TableInfo, TableLimits
from m3b.dataset.tables.text_tables import clean_cells, finish_grid

_MAX_NOTE_ROWS = 60
_MAX_UNPACKED_BYTES = 2 << 30
_VALID = re.compile(
    r"\b(valid|current|final|correct(ed)?|use|used|authoritative|up.to.date|latest"
    r"|gültig\w*|gueltig\w*|aktuell\w*|verwende\w*|nutze\w*|ma(ß|ss)geblich\w*|korrigiert\w*|endgültig\w*"
    r"|valable|valide|à jour|définitive?|utiliser?|corrigée?|válid[oa]|vigente|usar|definitiv[oa]|corregid[oa])\b"
    r"|有效|最终|使用|当前",
    re.IGNORECASE,
)
_INVALID = re.compile(
    r"\b(invalid|obsolete|outdated|deprecated|old|superseded|do not use|don't use|not (valid|used?|current)|draft"
    r"|ungültig\w*|ungueltig\w*|veraltet\w*|alte[rsn]?|nicht (mehr )?(gültig|verwenden|nutzen|benutzen)|überholt\w*|entwurf"
    r"|obsolète|périmée?|ancien(ne)?|ne pas utiliser|brouillon"
    r"|obsolet[oa]|antigu[oa]|anticuad[oa]|no (usar|válid[oa])|borrador)\b"
    r"|无效|过时|旧|请勿使用|作废",
    re.IGNORECASE,
)


def read_workbook(
    data: bytes, *, sheet: str = "", header: int | None = None, limits: TableLimits | None = None
) -> tuple[pl.DataFrame, TableInfo]:
    """Read the sheet that is named, else the one that a note in the workbook calls valid, else the one with most records."""
    import fastexcel

    limits = limits or TableLimits()
    _refuse_large_archive(data)
    try:
        book = fastexcel.read_excel(data)
        names = list(book.sheet_names)
    except fastexcel.FastExcelError as error:
        raise TableError(f"this workbook cannot be opened ({error}); save it again as XLSX or CSV") from error
    if sheet and sheet not in names:
        raise TableError(f"the workbook has no sheet {sheet!r}; its sheets: {', '.join(names)}")
    grids = {name: _load_grid(book, name, limits) for name in ([sheet] if sheet else names)}
    info = TableInfo("workbook", sheets=tuple(names))
    filled = {name: grid for name, grid in grids.items() if grid.height}
    if not filled:
        raise TableError(f"no sheet of the workbook holds a cell; its sheets: {', '.join(names)}")
    sheet_name, quote = (sheet, "") if sheet else choose_sheet(filled)
    if sheet and sheet not in filled:
        raise TableError(f"sheet {sheet!r} holds no cell; its sheets: {', '.join(names)}")
    info.sheet = sheet_name
    if quote:
        info.notes.append(f"sheet {sheet_name!r} by the note: {quote}")
    grid = filled[sheet_name]
    layout = find_header([[cell or "" for cell in row] for row in grid.head(HEAD_ROWS).iter_rows()], header)
    missing = len(layout.names) - grid.width
    if missing > 0:
        grid = grid.with_columns(pl.lit(None, dtype=pl.String).alias(f"extra {place}") for place in range(missing))
    grid = grid.select(grid.columns[: len(layout.names)]).slice(layout.first_row)
    if grid.height * max(grid.width, 1) >= limits.cells or grid.height >= limits.rows:
        info.partial = True
        info.notes.append(f"read in part: the first {grid.height:,} rows")
    return finish_grid(grid, layout, info), info


def _refuse_large_archive(data: bytes) -> None:
    """Refuse a workbook whose parts would fill the memory when they are unpacked."""
    if not data.startswith(b"PK"):
        return
    try:
        n_bytes = sum(member.file_size for member in zipfile.ZipFile(io.BytesIO(data)).infolist())
    except (zipfile.BadZipFile, ValueError) as error:
        raise TableError(f"this workbook is damaged ({error}); save it again as XLSX or CSV") from error
    if n_bytes > _MAX_UNPACKED_BYTES:
        raise TableError(
            f"the workbook holds {n_bytes >> 20:,} MB when it is unpacked, m3b reads up to "
            f"{_MAX_UNPACKED_BYTES >> 20:,} MB; save it as CSV"
        )


def choose_sheet(grids: dict[str, pl.DataFrame]) -> tuple[str, str]:
    """Return the sheet of the records, and the note that names it, if one does."""
    quote = ""
    candidates = dict(grids)
    for texts in (_list_notes(grid) for grid in grids.values()):
        for text in texts:
            for sentence in re.split(r"(?<=[.;!?。])\s*|\n", text):
                mentioned = [name for name in grids if _mentions(sentence, name)]
                is_invalid, is_valid = _INVALID.search(sentence), _VALID.search(sentence)
                if is_invalid and len(mentioned) < len(candidates):
                    for name in mentioned:
                        candidates.pop(name, None)
                    quote = quote or (text if mentioned else "")
                elif is_valid and len(mentioned) == 1:
                    return mentioned[0], text
    candidates = candidates or dict(grids)
    return max(candidates, key=lambda name: _count_records(candidates[name])), quote


def _mentions(sentence: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence, re.IGNORECASE) is not None


def _list_notes(grid: pl.DataFrame) -> Sequence[str]:
    """Return the sentences of a sheet: cells of several words, in a short sheet or above and below the records."""
    rows = [*grid.head(_MAX_NOTE_ROWS).iter_rows(), *grid.tail(5).iter_rows()]
    cells = [[cell for cell in row if cell] for row in rows]
    is_note_sheet = grid.height <= _MAX_NOTE_ROWS and sum(len(" ".join(row).split()) > 4 for row in cells) > 0
    return [" ".join(row) for row in cells if len(row) == 1 or is_note_sheet]


def _count_records(grid: pl.DataFrame) -> int:
    """Count the rows that fill at least half of the columns of the widest common row; sheets of one column come last."""
    filled = grid.select(pl.sum_horizontal(pl.all().is_not_null())).to_series()
    width = int(filled.quantile(0.9) or 0)
    return int((filled >= max(2, width / 2)).sum()) if width > 1 else 0


def _load_grid(book: object, name: str, limits: TableLimits) -> pl.DataFrame:
    sheet = book.load_sheet(name, header_row=None, dtypes="string", n_rows=min(limits.rows, 1_048_576))  # type: ignore[attr-defined]
    frame: pl.DataFrame = sheet.to_polars()
    if not frame.width:
        return pl.DataFrame()
    frame = frame.rename({column: str(place) for place, column in enumerate(frame.columns)})
    midnight = pl.all().str.replace(r"^(\d{4}-\d{2}-\d{2}) 00:00:00$", "$1")
    return clean_cells(frame.with_columns(midnight)).head(max(1, limits.cells // frame.width))
