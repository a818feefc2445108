"""The tables of the paper from the rows of a sweep, with intervals and the published results for comparison."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.bench.tables.costs import make_cost_table
from m3b.bench.tables.model_quality import make_failure_table, make_quality_table
from m3b.bench.tables.paper_tables import (
    make_completion_table,
    make_difference_table,
    make_execution_tables,
    make_role_tables,
    make_system_table,
)
from m3b.bench.tables.system_comparison import make_comparison_table

from .base import ResultTable, Row

__all__ = ["ResultTable", "make_tables"]


def make_tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return all tables of a sweep that have rows."""
    all_tables = [make_completion_table(rows), make_system_table(rows), make_difference_table(rows),
            make_comparison_table(rows), *make_execution_tables(rows), *make_role_tables(rows), make_quality_table(rows),
            make_failure_table(rows), make_cost_table(rows)]  # fmt: skip
    return [table for table in all_tables if table.rows]
