"""Load a table of one file, or of several that are stacked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from m3b.dataset.archives import local_file
from m3b.dataset.tables.arrays import read_arrays, read_parquet
from m3b.dataset.tables.documents import Row, find_field_names, read_json, read_keys, read_xml, read_yaml
from m3b.dataset.tables.labeling_tasks import add_file_names
from m3b.dataset.tables.model import FILE_COLUMN, ROW_COLUMN, LoadedTable, TableError, TableInfo, TableLimits
from m3b.dataset.tables.text_tables import clean_cells, decode_text, is_prose, read_delimited, read_written_lists
from m3b.dataset.tables.workbooks import read_workbook

TableForm = Literal["auto", "lines", "text"]
TableFiles = Sequence[str] | Mapping[str, Mapping[str, str]]
"""Paths below the root, or path -> slots of the pattern that found it."""

WORKBOOK_SUFFIXES = frozenset({".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"})
ARRAY_SUFFIXES = frozenset({".npy", ".npz", ".h5", ".hdf5", ".hdf", ".mat", ".nxs"})
DOCUMENT_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".geojson", ".xml", ".yaml", ".yml"})
DELIMITED_SUFFIXES = frozenset({".csv", ".tsv", ".tab", ".psv", ".ssv", ".txt", ".dat", ".lst", ".list"})
TABLE_SUFFIXES = (
    WORKBOOK_SUFFIXES
    | ARRAY_SUFFIXES
    | DOCUMENT_SUFFIXES
    | DELIMITED_SUFFIXES
    | {".parquet", ".pq", ".ini", ".cfg", ".toml"}
)
"""Suffixes of files that may be tables."""
_KEY_SUFFIXES = frozenset({".ini", ".cfg", ".toml", ".properties"})
ROW_SUFFIXES = (".csv", ".tsv", ".tab", ".psv")
"""Files that are tables, however few rows they have."""
_PROSE_WORDS = 8
_Part = pl.DataFrame | list[Row]


def load_table(
    root: Path,
    files: TableFiles,
    *,
    form: TableForm = "auto",
    sheet: str = "",
    records: str = "",
    header: int | None = None,
    limits: TableLimits | None = None,
) -> LoadedTable:
    """Load files of one form as one table. All cells are texts as stored, without blanks around them; empty ones are null,
    and the items of written lists (`['a', 'b']`) are joined by `LIST_SEPARATOR`.

    `(row)` numbers the rows from 0. Rows of several files have the column `(file)`, and one for each slot of the pattern.
    A small file that holds one record (an object of JSON, lines of `key: value`, a text) is one row.

    Args:
        files: paths below `root`, or path -> slots.
        form: `lines` for a row a line (column `line`), `text` for a row a file (column `text`).
        sheet: of a workbook. Default: the one that a note in it calls valid, else the one with most records.
        records: where the rows lie in a document or container. Default: where most are.
        header: number of the header row among the rows that are not blank; -1 for none. Default: found.
        limits: how much is read.

    Raises:
        TableError: a single file is no table, or no file of several is; the message says why.
    """
    limits = limits or TableLimits()
    slots = (
        {path: dict(values) for path, values in files.items()}
        if isinstance(files, Mapping)
        else {path: {} for path in files}
    )
    if not slots:
        raise TableError("no file matches; name a path or pattern of table files")
    is_stack = len(slots) > 1
    is_record = is_stack and _share_field_names(Path(root), list(slots), limits)
    parts: list[tuple[str, _Part]] = []
    failures: list[str] = []
    first_info: TableInfo | None = None
    deadline = time.monotonic() + limits.seconds
    n_rows = 0
    partial = ""
    for path, values in slots.items():
        if (parts and time.monotonic() > deadline) or n_rows >= limits.rows:
            partial = f"read in part: {len(parts):,} of {len(slots):,} files"
            break
        try:
            part, info = _read_file(
                local_file(Path(root), path), form, sheet, records, header, is_stack, is_record, limits
            )
        except (TableError, OSError) as error:
            if not is_stack:
                raise TableError(f"{path}: {error}") from error
            failures.append(f"{path}: {error}")
            continue
        n_rows += len(part)
        first_info = first_info or info
        first_info.partial |= info.partial
        columns = {**({FILE_COLUMN: path} if is_stack else {}), **values}
        parts.append((path, _add_columns(part, columns)))
    if first_info is None:
        raise TableError(f"none of {len(slots)} files is a table; the first: {failures[0]}")
    frame = add_file_names(read_written_lists(_stack([part for _, part in parts])))
    first_info.notes += [f"{len(failures)} files are left out; the first: {failures[0]}"] if failures else []
    if partial:
        first_info.partial = True
        first_info.notes.append(partial)
    frame = (
        frame.drop(ROW_COLUMN, strict=False).with_row_index(ROW_COLUMN).with_columns(pl.col(ROW_COLUMN).cast(pl.String))
    )
    return LoadedTable(frame.select(*[name for name in frame.columns if name != ROW_COLUMN], ROW_COLUMN), first_info)


_MAX_COMPARED = 3
"""Documents whose names of fields are compared."""


def _share_field_names(root: Path, paths: Sequence[str], limits: TableLimits) -> bool:
    """Return whether XML documents are records: each has elements with the same names, which are no names of cases."""
    names: list[set[str]] = []
    for path in paths[:_MAX_COMPARED]:
        if not path.lower().endswith(".xml"):
            return False
        try:
            names.append(find_field_names(_read_bytes(local_file(root, path), limits.megabytes << 20)[0]))
        except (TableError, OSError):
            continue
    return bool(names) and bool(set.intersection(*names))


def _add_columns(part: _Part, columns: Mapping[str, str]) -> _Part:
    if not columns:
        return part
    if isinstance(part, list):
        return [{**columns, **row} for row in part]
    clashes = [name for name in columns if name in part.columns]
    part = part.rename({name: f"{name} (2)" for name in clashes})
    return part.select(*[pl.lit(text).alias(name) for name, text in columns.items()], pl.all())


def _stack(parts: Sequence[_Part]) -> pl.DataFrame:
    """Stack frames and records of several files in their order; columns that a file lacks are null."""
    frames: list[pl.DataFrame] = []
    rows: list[Row] = []
    for part in (*parts, pl.DataFrame()):
        if isinstance(part, list):
            rows += part
            continue
        if rows:
            frames.append(_frame_records(rows))
            rows = []
        if part.width:
            frames.append(part)
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def _frame_records(rows: Sequence[Row]) -> pl.DataFrame:
    names = list(dict.fromkeys(name for row in rows for name in row))
    frame = pl.DataFrame({name: pl.Series([row.get(name) for row in rows], dtype=pl.String) for name in names})
    return clean_cells(frame)


def _read_file(
    path: Path,
    form: TableForm,
    sheet: str,
    records: str,
    header: int | None,
    is_stack: bool,
    is_record: bool,
    limits: TableLimits,
) -> tuple[_Part, TableInfo]:
    suffix = path.suffix.lower()
    if form == "text":
        data = _read_bytes(path, limits.text_kilobytes << 10)[0]
        text, encoding = decode_text(data)
        return [{"text": text.strip()}], TableInfo("text", encoding=encoding)
    if form == "lines":
        data, is_partial = _read_bytes(path, limits.megabytes << 20)
        text, encoding = decode_text(data)
        lines = [{"line": line.strip()} for line in text.splitlines() if line.strip()]
        return lines[: limits.rows], TableInfo(
            "lines", encoding=encoding, partial=is_partial or len(lines) > limits.rows
        )
    if suffix in ARRAY_SUFFIXES:
        return read_arrays(path, records=records, limits=limits)
    if suffix in (".parquet", ".pq"):
        return read_parquet(path, limits=limits)
    data, is_partial = _read_bytes(path, limits.megabytes << 20)
    if not data.strip():
        raise TableError("the file is empty")
    reader = _find_whole_file_reader(data, suffix, sheet, records, header, is_stack, is_record, limits)
    if reader is not None:
        if is_partial:
            raise TableError(
                f"the file is larger than {limits.megabytes} MB, up to which m3b reads files of this form; save it as CSV"
            )
        return reader()
    if (
        b"\0" in data[:4096]
        and not data.startswith((b"\xff\xfe", b"\xfe\xff"))
        and data[:512].count(0) not in range(64, 320)
    ):
        raise TableError("this is a binary file, not a text table")
    is_small_text = is_stack and suffix not in ROW_SUFFIXES and len(data) < limits.text_kilobytes << 10
    if suffix in _KEY_SUFFIXES or is_small_text:
        record = _read_small_text(data)
        if record is not None:
            return [record], TableInfo("keys" if "text" not in record else "text", encoding=decode_text(data)[1])
    if suffix not in ROW_SUFFIXES and header is None and is_prose(decode_text(data[:65536])[0]):
        raise TableError("this is prose, not a table; use form `lines` for a row a line, or `text` for a row a file")
    return read_delimited(data, suffix=suffix, header=header, is_partial=is_partial, limits=limits)


def _find_whole_file_reader(
    data: bytes,
    suffix: str,
    sheet: str,
    records: str,
    header: int | None,
    is_stack: bool,
    is_record: bool,
    limits: TableLimits,
) -> Callable[[], tuple[_Part, TableInfo]] | None:
    """Return the reader of a file that must be read whole, by its first bytes and suffix; None for delimited text."""
    start = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n")
    if data.startswith(b"PAR1"):
        raise TableError("this is a Parquet file; name it with the suffix .parquet")
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return lambda: read_workbook(data, sheet=sheet, header=header, limits=limits)
    if suffix in (".json", ".jsonl", ".ndjson", ".geojson") or start.startswith((b'{"', b"[{")):
        return lambda: read_json(decode_text(data)[0], records=records, limits=limits, is_stack=is_stack)
    if suffix == ".xml" or start.startswith(b"<?xml"):
        return lambda: read_xml(data, records=records, limits=limits, is_record=is_record)
    if suffix in (".yaml", ".yml"):
        return lambda: read_yaml(decode_text(data)[0], records=records, limits=limits)
    return None


def _read_small_text(data: bytes) -> Row | None:
    """Return the record of a small file of which each is a row: `key: value` lines, or prose; None if it is a table."""
    text = decode_text(data)[0]
    record = read_keys(text)
    if record is not None:
        return record
    lines = [line for line in text.splitlines() if line.strip()]
    n_words = sum(len(line.split()) for line in lines)
    is_prose = n_words > _PROSE_WORDS and not any(separator in text for separator in "\t;|")
    has_table = len({len(line.split()) for line in lines}) == 1 and len(lines) > 1
    return {"text": text.strip()} if len(lines) <= 1 or (is_prose and not has_table) else None


def _read_bytes(path: Path, limit: int) -> tuple[bytes, bool]:
    """Return up to `limit` bytes of a file, and whether it holds more."""
    with path.open("rb") as stream:
        data = stream.read(limit + 1)
    return (data, False) if len(data) <= limit else (data[:limit], True)
