"""The tables of the paper, from the rows of a sweep, each figure with its interval and beside it what was published."""

from __future__ import annotations

from collections.abc import Sequence

from .base import ResultTable, Row
from .completion import completion
from .executions import executions
from .quality import failures, quality
from .roles import roles
from .systems import differences, systems

__all__ = ["ResultTable", "tables"]


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Everything that can be said of a sweep."""
    all_tables = [completion(rows), systems(rows), differences(rows), *executions(rows), *roles(rows), quality(rows),
            failures(rows)]  # fmt: skip
    return [table for table in all_tables if table.rows]
