"""The tables of the paper from the rows of a sweep, with intervals and the published results for comparison."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.bench.tables.costs import make_cost_table
from m3b.bench.tables.model_quality import make_failure_table, make_field_table, make_quality_table
from m3b.bench.tables.paper_tables import (
    make_completion_table,
    make_difference_table,
    make_execution_tables,
    make_role_tables,
    make_system_table,
)
from m3b.bench.tables.system_comparison import make_comparison_table
from m3b.bench.tasks import FIELD_VARIANT

from .base import ResultTable, Row

__all__ = ["ResultTable", "make_tables"]


def make_tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return all tables of a sweep that have rows.

    Field sets have a table of their own and are in none of the paper's; where systems are compared, they have own rows.
    """
    field_rows = [row for row in rows if row["variant"] == FIELD_VARIANT]
    task_rows = [row for row in rows if row["variant"] != FIELD_VARIANT]
    if field_rows and task_rows:
        rows = [*task_rows, *({**row, "model": f"{row['model']}, field sets"} for row in field_rows)]
    all_tables = [make_completion_table(task_rows), make_system_table(task_rows), make_field_table(field_rows),
            make_difference_table(rows), make_comparison_table(rows), *make_execution_tables(task_rows),
            *make_role_tables(task_rows), make_quality_table(task_rows), make_failure_table(rows), make_cost_table(rows)]  # fmt: skip
    return [table for table in all_tables if table.rows]
