"""The tables of the paper: completed runs (1), systems (2), roles (3, 15 to 18) and single executions (5 to 14).

Each table has the results of the sweep and the published results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from m3b.agents.roles import BUILTIN_ROLES
from m3b.bench import published_results
from m3b.bench.statistics import bootstrap_difference, wilson_interval
from m3b.bench.tables.base import (
    MAIN_SYSTEM,
    ResultTable,
    Row,
    average_success,
    collect_successes,
    count_successes,
    format_mean_tokens,
    format_mean_usage,
    format_pass_k,
    format_ratio,
    format_ratio_with_interval,
    group_rows,
    mean_of_successes,
    order_tasks,
)
from m3b.bench.tasks import DECLINE

ROLE_HEADER = ("role", "handed over", "share (Wilson)", "actions", "iterations", "tokens")
REACHED_NOTE = (
    "Only runs in which the role was reached; an accepted artifact counts. Published shares: interval computed here."
)
ROLE_TITLES = {role.name: role.title for role in BUILTIN_ROLES}


def make_role_tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return Table 3 by task family, and the single executions of Tables 15 to 18."""
    rows_with_roles = [row for row in rows if row["roles"]]
    if not rows_with_roles:
        return []
    return [
        _make_family_table(rows_with_roles),
        *(_make_role_execution_table(rows_with_roles, family) for family in TASK_FAMILIES),
    ]


def _make_family_table(rows: Sequence[Row]) -> ResultTable:
    table_rows = []
    for family in TASK_FAMILIES:
        family_rows = [row for row in rows if row["family"] == family]
        for (system, model), group in group_rows(family_rows, "system", "model").items():
            table_rows += [
                _make_role_row(f"{family}: {role.title} ({system} / {model})", role.name, group)
                for role in BUILTIN_ROLES
            ]
        if family_rows:
            table_rows += [
                _make_published_role_row(family, name, figures)
                for name, figures in published_results.load_roles(family).items()
            ]
    other_rows = [row for row in rows if row["family"] not in TASK_FAMILIES]
    for (system, model), group in group_rows(other_rows, "system", "model").items():
        table_rows += [
            _make_role_row(f"other: {role.title} ({system} / {model})", role.name, group) for role in BUILTIN_ROLES
        ]
    notes = (REACHED_NOTE, *published_results.load_notes("Table 3"))
    return ResultTable("table3", "Roles by family", ROLE_HEADER, tuple(row for row in table_rows if row), notes)


def _make_role_row(name: str, role: str, rows: Sequence[Row]) -> tuple[str, ...]:
    role_results = [row["roles"][role] for row in rows if role in row["roles"]]
    if not role_results:
        return ()
    accepted = sum(result["status"] == "done" for result in role_results)
    actions, iterations = (
        sum(result[key] for result in role_results) / len(role_results) for key in ("actions", "iterations")
    )
    tokens = sum(map(_count_tokens, role_results)) / len(role_results)
    share = wilson_interval(accepted, len(role_results)).percent()
    return (name, f"{accepted}/{len(role_results)}", share, f"{actions:.1f}", f"{iterations:.1f}", f"{tokens:,.0f}")


def _make_published_role_row(family: str, role: str, figures: published_results.RoleFigures) -> tuple[str, ...]:
    return (f"{family}: {ROLE_TITLES[role]} (M3Builder, published)", str(figures.runs), figures.runs.interval().percent(),
            f"{figures.actions:g}", f"{figures.iterations:g}", f"{figures.tokens:,}")  # fmt: skip


def _make_role_execution_table(rows: Sequence[Row], family: str) -> ResultTable:
    number, published_runs = published_results.load_role_executions(family)
    family_rows = [row for row in rows if row["family"] == family]
    table_rows = [(f"{row['task']} {row['run']} ({row['system']} / {row['model']})",
             *(_format_own_role(row["roles"].get(role.name)) for role in BUILTIN_ROLES)) for row in family_rows]  # fmt: skip
    if family_rows:
        table_rows += [(f"M3Builder, published, execution "
                        f"{number}", *(_format_published_role(published_run.get(role.name)) for role in BUILTIN_ROLES))
                 for number, published_run in enumerate(published_runs, start=1)]  # fmt: skip
    header = ("execution", *(role.title for role in BUILTIN_ROLES))
    note = "Handed over (1) or not (0): actions / iterations / tokens."
    return ResultTable(f"table{number}", f"Roles, single executions: {family}", header, tuple(table_rows), (note,))


def _format_own_role(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    return (
        f"{int(result['status'] == 'done')}: {result['actions']} / {result['iterations']} / {_count_tokens(result):,}"
    )


def _format_published_role(figures: published_results.RoleFigures | None) -> str:
    return (
        ""
        if figures is None
        else f"{figures.runs.successes}: {figures.actions:g} / {figures.iterations:g} / {figures.tokens:,}"
    )


def _count_tokens(result: Mapping[str, Any]) -> int:
    return int(result["input_tokens"]) + int(result["output_tokens"])


TASK_FAMILIES = tuple(published_results.load_paper()["table3"])
"""The four task families, in the order of the tables of the paper."""


def make_system_table(rows: Sequence[Row]) -> ResultTable:
    """Return Table 2: completed runs and mean costs by task family, first ours, then the published rows as printed."""
    task_rows = [row for row in rows if row["family"] != DECLINE]
    table_rows, bars = [], []
    for (name, model), group in group_rows(task_rows, "system", "model").items():
        share = average_success(group)
        any_success, all_success, k = format_pass_k(count_successes(group))
        table_rows.append((f"{name} / {model}", *(_format_family(group, family) for family in TASK_FAMILIES), format_ratio(group),
                     share.percent(), f"{any_success} / {all_success} "
                                      f"(k={k})", format_mean_usage(group, "actions"), format_mean_usage(group, "iterations"),
                     format_mean_tokens(group), format_mean_usage(group, "cost_usd", 3),
                     format_mean_usage(group, "wall_s")))  # fmt: skip
        bars.append((f"{name} / {model}", share.value, share.low, share.high))
    for row in published_results.load_systems() if table_rows else ():
        cells = (_format_published_family(row, family) for family in TASK_FAMILIES)
        interval = row.total.interval()
        average_text = f"{row.average_percent:.2f} % printed; Wilson {interval.percent()}"
        table_rows.append((f"{row.name} (published)", *cells, str(row.total), average_text, "", "", "", "", "", ""))
        bars.append((f"{row.name} (published)", interval.value, interval.low, interval.high))
    raw = published_results.load_paper()
    notes = (
        "By family: completed runs, and in brackets mean actions / iterations of the completed ones. Actions, tokens, cost "
        "and time are means over completed runs; for external systems a request counts as an action.",
        f"Published rows: {raw['table2']['agent_core']}; intervals computed here. M3Builder's completed runs took "
        f"{raw['actions']['low']} to {raw['actions']['high']} actions and {raw['tokens']['low'] // 1000}k to "
        f"{raw['tokens']['high'] // 1000}k tokens.",
    )
    header = ("system / model", *TASK_FAMILIES, "completed", "average, by task", "pass@k / pass^k", "actions", "iterations",
            "tokens", "US$", "s")  # fmt: skip
    return ResultTable(
        "table2", "Systems and ablations", header, tuple(table_rows), notes if table_rows else (), tuple(bars)
    )


def _format_family(rows: Sequence[Row], family: str) -> str:
    family_rows = [row for row in rows if row["family"] == family]
    if not family_rows:
        return ""
    actions = mean_of_successes(family_rows, lambda row: row["usage"].get("actions"))
    iterations = mean_of_successes(family_rows, lambda row: row["usage"].get("iterations"))
    cost = "" if actions is None or iterations is None else f" ({actions:.1f} / {iterations:.1f})"
    return format_ratio(family_rows) + cost


def _format_published_family(row: published_results.PublishedSystem, family: str) -> str:
    means = row.mean_costs.get(family)
    return f"{row.runs[family]}" + (f" ({means.actions:g} / {means.iterations:g})" if means else "")


def make_difference_table(rows: Sequence[Row]) -> ResultTable:
    """Return the table of differences of each system from m3b with the same model, on common tasks, with intervals."""
    grouped = group_rows(rows, "system", "model")
    table_rows = []
    for (name, model), group in grouped.items():
        main_rows = grouped.get((MAIN_SYSTEM, model))
        if name == MAIN_SYSTEM or main_rows is None:
            continue
        try:
            estimate = bootstrap_difference(collect_successes(group), collect_successes(main_rows))
        except ValueError:
            continue
        assert estimate.low is not None
        assert estimate.high is not None
        differs_text = "yes" if estimate.low > 0 or estimate.high < 0 else "no"
        interval_text = f"{100 * estimate.low:+.1f} to {100 * estimate.high:+.1f}"
        table_rows.append(
            (
                f"{name} - {MAIN_SYSTEM} / {model}",
                f"{100 * estimate.value:+.1f}",
                interval_text,
                str(estimate.n),
                differs_text,
            )
        )
    header = ("difference in completion", "points", "95 % interval", "tasks (runs if one task)", "differs from 0")
    return ResultTable("differences", "Differences from m3b, paired by task", header, tuple(table_rows))


EXECUTION_NOTE = (
    "Published: the printed success flag, actions and debug loops; an empty cell was printed without figures. Ours: "
    "success, actions, iterations."
)


def make_execution_tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return a table for each system that is in the paper too, with one row for each execution."""
    task_rows = [row for row in rows if row["family"] != DECLINE]
    present = {system for (system,) in group_rows(task_rows, "system")}
    return [
        _make_execution_table(name, [row for row in task_rows if row["system"] == name])
        for name in published_results.PAPER_NAMES
        if name in present
    ]


def _make_execution_table(name: str, rows: Sequence[Row]) -> ResultTable:
    number, published_by_task = published_results.load_executions(published_results.PAPER_NAMES[name])
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
    notes = (EXECUTION_NOTE, *published_results.load_notes(f"Table {number} "))
    return ResultTable(
        f"table{number}",
        f"Single executions: {name} and {published_results.PAPER_NAMES[name]}",
        header,
        tuple(table_rows),
        notes,
    )


def _format_own_execution(row: Row | None) -> str:
    if row is None:
        return ""
    usage = row["usage"]
    cost = f", {usage['actions']:g} / {usage.get('iterations', 0):g}" if "actions" in usage else ""
    return f"{int(row['ok'])}{cost}"


def _format_published_execution(execution: published_results.Execution | None) -> tuple[str, str, str]:
    if execution is None:
        return "", "", ""
    actions, loops = ("" if value is None else str(value) for value in (execution.actions, execution.debug_loops))
    return str(execution.success), actions, loops


COMPUTED_NOTE = (
    "Published columns are as printed; their Wilson intervals and pass@k are computed here from the printed counts."
)
REAL_DATA_NOTE = (
    "The published runs used the real data sets; ours used the data of the sweep (generated stand-ins unless --data)."
)


def make_completion_table(rows: Sequence[Row]) -> ResultTable:
    """Return Table 1: one row per task and one column per model, first for m3b, then for M3Builder as published."""
    main_rows = [row for row in rows if row["system"] == MAIN_SYSTEM]
    task_rows = [row for row in main_rows if row["family"] != DECLINE]
    decline_rows = [row for row in main_rows if row["family"] == DECLINE]
    models = list(dict.fromkeys(str(row["model"]) for row in task_rows or decline_rows))
    published = published_results.load_completion() if task_rows else {}
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
    notes = (COMPUTED_NOTE, REAL_DATA_NOTE, *published_results.load_notes("Table 1")) if published else ()
    header = ("task", *models, *(f"{model} (published)" for model in published))
    return ResultTable("table1", "Completed runs per task and model", header, tuple(table_rows), notes, tuple(bars))


def _make_task_rows(
    task_rows: Sequence[Row],
    models: Sequence[str],
    published: Mapping[str, Mapping[str, published_results.SuccessCount]],
) -> list[tuple[str, ...]]:
    cells = group_rows(task_rows, "task", "model")
    published_tasks = [task for model_cells in published.values() for task in model_cells]
    table_rows = []
    for task in order_tasks([*(str(row["task"]) for row in task_rows), *published_tasks]):
        own_cells = (format_ratio_with_interval(cells.get((task, model), [])) for model in models)
        table_rows.append((task, *own_cells, *(str(model_cells.get(task, "")) for model_cells in published.values())))
    return table_rows


def _make_summary_rows(
    task_rows: Sequence[Row],
    models: Sequence[str],
    published_cells: Mapping[str, Mapping[str, published_results.SuccessCount]],
) -> list[tuple[str, ...]]:
    by_model = [[row for row in task_rows if row["model"] == model] for model in models]
    averages = published_results.load_printed_averages()
    published = [published_results.SuccessCount(sum(c.successes for c in entry.values()), sum(c.runs for c in entry.values()))
                 for entry in published_cells.values()]  # fmt: skip
    totals = [
        published_results.SuccessCount(sum(bool(row["ok"]) for row in model_rows), len(model_rows))
        for model_rows in by_model
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
