"""Tables 5 to 14: single executions of a system, ours beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.bench import paper
from m3b.bench.tasks import DECLINE

from .base import ResultTable, Row, group_rows, order_tasks

EXECUTION_NOTE = (
    "Published: the printed success flag, actions and debug loops; an empty cell was printed without figures. Ours: "
    "success, actions, iterations."
)


def make_execution_tables(rows: Sequence[Row]) -> list[ResultTable]:
    """A table for each system that has a counterpart in the paper, a row an execution."""
    task_rows = [row for row in rows if row["family"] != DECLINE]
    present = {system for (system,) in group_rows(task_rows, "system")}
    return [
        _make_execution_table(name, [row for row in task_rows if row["system"] == name])
        for name in paper.PAPER_NAMES
        if name in present
    ]


def _make_execution_table(name: str, rows: Sequence[Row]) -> ResultTable:
    number, published_by_task = paper.load_executions(paper.PAPER_NAMES[name])
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    cells = group_rows(rows, "task", "model")
    table_rows = []
    for task in order_tasks([*(str(row["task"]) for row in rows), *published_by_task]):
        own_runs = [sorted(cells.get((task, model), []), key=lambda row: int(row["run"])) for model in models]
        published = published_by_task.get(task, ())
        for run in range(max(len(published), *map(len, own_runs))):
            own_cells = (
                _format_own_execution(model_runs[run] if run < len(model_runs) else None) for model_runs in own_runs
            )
            table_rows.append(
                (
                    f"{task} {run + 1}",
                    *own_cells,
                    *_format_published_execution(published[run] if run < len(published) else None),
                )
            )
    header = ("execution", *models, "published: success", "actions", "debug loops")
    notes = (EXECUTION_NOTE, *paper.load_notes(f"Table {number} "))
    return ResultTable(
        f"table{number}", f"Single executions: {name} and {paper.PAPER_NAMES[name]}", header, tuple(table_rows), notes
    )


def _format_own_execution(row: Row | None) -> str:
    if row is None:
        return ""
    usage = row["usage"]
    cost = f", {usage['actions']:g} / {usage.get('iterations', 0):g}" if "actions" in usage else ""
    return f"{int(row['ok'])}{cost}"


def _format_published_execution(execution: paper.Execution | None) -> tuple[str, str, str]:
    if execution is None:
        return "", "", ""
    actions, loops = ("" if value is None else str(value) for value in (execution.actions, execution.debug_loops))
    return str(execution.success), actions, loops
