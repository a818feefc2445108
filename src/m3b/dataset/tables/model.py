"""What loading a table returns, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

ROW_COLUMN = "(row)"
"""Place of a row in its table, from 0."""
FILE_COLUMN = "(file)"
"""Path of the file that a row comes from, in a table of several files."""
KEY_COLUMN = "(key)"
"""Key of a record in a JSON object of records."""
LIST_SEPARATOR = "|"
"""What joins the items of a list in one cell of a JSON, XML, YAML or Parquet table."""
EMPTY_LIST = "[]"
"""Text of a list without items: unlike an empty cell it says that there is none."""


class TableError(ValueError):
    """A file is no table that can be read; the message says why, and what to do next."""


@dataclass(frozen=True)
class TableLimits:
    """How much of a table is read; larger ones are read in part.

    Args:
        megabytes: of one file.
        text_kilobytes: of one small text file of which each is a row.
        seconds: for all files of a table.
        columns: of a delimited text; the first ones.
    """

    megabytes: int = 512
    rows: int = 5_000_000
    cells: int = 100_000_000
    text_kilobytes: int = 64
    seconds: float = 300.0
    columns: int = 50_000


@dataclass
class TableInfo:
    """How a table is written.

    Args:
        form: `delimited`, `workbook`, `json`, `json lines`, `xml`, `yaml`, `keys` (small files of `key: value`), `parquet`, `arrays`,
            `lines` or `text`.
        separator: between cells of a delimited file; a space stands for any run of blanks.
        header_row: its number from 0, among the rows that are not blank; -1 if no row names the columns.
        title_rows: the texts above the header, and those below the last row.
        units: column -> unit, from a row of units below the header.
        sheet, sheets: of a workbook: which is read, and all names.
        records: where the rows lie in a document or container.
        places: all such places -> number of rows.
        code_names: column -> code -> name, as the file itself declares them (Parquet files of hub data sets).
        partial: whether a limit ended the reading.
    """

    form: str
    separator: str = ""
    encoding: str = ""
    header_row: int | None = None
    title_rows: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)
    sheet: str = ""
    sheets: tuple[str, ...] = ()
    records: str = ""
    places: dict[str, int] = field(default_factory=dict)
    code_names: dict[str, dict[str, str]] = field(default_factory=dict)
    partial: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LoadedTable:
    """A table as texts: cells as stored, without blanks around them; empty ones are null. `(row)` numbers its rows from 0."""

    frame: pl.DataFrame
    info: TableInfo
