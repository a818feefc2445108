"""Table 1: completed runs a task and model, ours beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from m3b.bench import paper
from m3b.bench.statistics import wilson_interval
from m3b.bench.tasks import DECLINE

from .base import (
    MAIN_SYSTEM,
    ResultTable,
    Row,
    average_success,
    count_successes,
    format_pass_k,
    format_ratio,
    format_ratio_with_interval,
    group_rows,
    order_tasks,
)

COMPUTED_NOTE = (
    "Published columns stand as printed; their Wilson intervals and pass@k are computed here from the printed counts."
)
REAL_DATA_NOTE = "The published runs are of the real data sets; ours are of what the sweep was given (drawn stand-ins unless --data)."


def make_completion_table(rows: Sequence[Row]) -> ResultTable:
    """A row a task and a column a model, for m3b itself and then for M3Builder as published."""
    main_rows = [row for row in rows if row["system"] == MAIN_SYSTEM]
    task_rows = [row for row in main_rows if row["family"] != DECLINE]
    decline_rows = [row for row in main_rows if row["family"] == DECLINE]
    models = list(dict.fromkeys(str(row["model"]) for row in task_rows or decline_rows))
    published = paper.load_completion() if task_rows else {}
    table_rows = _make_task_rows(task_rows, models, published)
    averages = (
        {model: average_success([row for row in task_rows if row["model"] == model]) for model in models}
        if task_rows
        else {}
    )
    if task_rows:
        table_rows += _make_summary_rows(task_rows, models, published)
    if decline_rows:
        decline_ratios = (format_ratio([row for row in decline_rows if row["model"] == model]) for model in models)
        table_rows.append(("requests to be declined", *decline_ratios, *("" for _ in published)))
    bars = [(model, figure.value, figure.low, figure.high) for model, figure in averages.items()]
    for model, cells in published.items():
        share = wilson_interval(
            sum(figure.successes for figure in cells.values()), sum(figure.runs for figure in cells.values())
        )
        bars.append((f"{model} (published)", share.value, share.low, share.high))
    notes = (COMPUTED_NOTE, REAL_DATA_NOTE, *paper.load_notes("Table 1")) if published else ()
    header = ("task", *models, *(f"{model} (published)" for model in published))
    return ResultTable("table1", "Completed runs per task and model", header, tuple(table_rows), notes, tuple(bars))


def _make_task_rows(
    task_rows: Sequence[Row], models: Sequence[str], published: Mapping[str, Mapping[str, paper.SuccessCount]]
) -> list[tuple[str, ...]]:
    cells = group_rows(task_rows, "task", "model")
    published_tasks = [task for model_cells in published.values() for task in model_cells]
    table_rows = []
    for task in order_tasks([*(str(row["task"]) for row in task_rows), *published_tasks]):
        own_cells = (format_ratio_with_interval(cells.get((task, model), [])) for model in models)
        table_rows.append((task, *own_cells, *(str(model_cells.get(task, "")) for model_cells in published.values())))
    return table_rows


def _make_summary_rows(
    task_rows: Sequence[Row], models: Sequence[str], published_cells: Mapping[str, Mapping[str, paper.SuccessCount]]
) -> list[tuple[str, ...]]:
    by_model = [[row for row in task_rows if row["model"] == model] for model in models]
    averages = paper.load_printed_averages()
    published = [paper.SuccessCount(sum(c.successes for c in entry.values()), sum(c.runs for c in entry.values()))
                 for entry in published_cells.values()]  # fmt: skip
    totals = [
        paper.SuccessCount(sum(bool(row["ok"]) for row in model_rows), len(model_rows)) for model_rows in by_model
    ]
    pass_k_values = [format_pass_k(count_successes(model_rows)) for model_rows in by_model]
    pass_k_values += [
        format_pass_k([(c.runs, c.successes) for c in entry.values()]) for entry in published_cells.values()
    ]
    return [
        ("average, by task", *(average_success(model_rows).percent() for model_rows in by_model),
         *(f"{averages[model]:.2f} % (printed)" for model in published_cells)),
        ("all runs", *map(str, totals), *map(str, published)),
        ("all runs: Wilson", *(entry.interval().percent() for entry in (*totals, *published))),
        ("pass@k", *(f"{any_success} (k={k})" for any_success, _, k in pass_k_values)),
        ("pass^k", *(f"{all_success} (k={k})" for _, all_success, k in pass_k_values)),
    ]  # fmt: skip
