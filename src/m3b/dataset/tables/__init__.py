"""Tables of a data folder as frames of texts, and the facts of their columns."""

from m3b.dataset.tables.columns import (
    ColumnFact,
    describe_columns,
    parse_numbers,
)
from m3b.dataset.tables.legends import Legend, find_legend_in_frame, find_legends
from m3b.dataset.tables.loading import ROW_SUFFIXES, TABLE_SUFFIXES, WORKBOOK_SUFFIXES, load_table
from m3b.dataset.tables.model import (
    EMPTY_LIST,
    FILE_COLUMN,
    KEY_COLUMN,
    LIST_SEPARATOR,
    ROW_COLUMN,
    LoadedTable,
    TableError,
    TableInfo,
    TableLimits,
)

__all__ = [
    "FILE_COLUMN",
    "KEY_COLUMN",
    "EMPTY_LIST",
    "LIST_SEPARATOR",
    "ColumnFact",
    "Legend",
    "describe_columns",
    "find_legend_in_frame",
    "find_legends",
    "parse_numbers",
    "ROW_COLUMN",
    "ROW_SUFFIXES",
    "TABLE_SUFFIXES",
    "LoadedTable",
    "TableError",
    "TableInfo",
    "TableLimits",
    "WORKBOOK_SUFFIXES",
    "load_table",
]
