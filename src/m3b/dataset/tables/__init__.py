"""Tables of a data folder as frames of texts, and the facts of their columns."""

from m3b.dataset.tables.columns import (
    ColumnFact,
    ColumnGroup,
    describe_columns,
    find_survival_columns,
    find_yes_no_groups,
    parse_numbers,
)
from m3b.dataset.tables.legends import Legend, find_legend_in_frame, find_legends
from m3b.dataset.tables.loading import TABLE_SUFFIXES, load_table
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
    "ColumnGroup",
    "Legend",
    "describe_columns",
    "find_legend_in_frame",
    "find_legends",
    "find_survival_columns",
    "find_yes_no_groups",
    "parse_numbers",
    "ROW_COLUMN",
    "TABLE_SUFFIXES",
    "LoadedTable",
    "TableError",
    "TableInfo",
    "TableLimits",
    "load_table",
]
