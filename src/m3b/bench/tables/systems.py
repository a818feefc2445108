"""Table 2: systems and ablations by family, and the differences between ours."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.bench import paper
from m3b.bench.statistics import bootstrap_difference
from m3b.bench.tasks import DECLINE

from .base import (
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
    group_rows,
    mean_of_successes,
)

TASK_FAMILIES = tuple(paper.load_paper()["table3"])
"""The four kinds of task, in the order of the paper's tables."""


def make_system_table(rows: Sequence[Row]) -> ResultTable:
    """Completion and mean cost by family, ours and then the published rows as printed."""
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
    for row in paper.load_systems() if table_rows else ():
        cells = (_format_published_family(row, family) for family in TASK_FAMILIES)
        interval = row.total.interval()
        average_text = f"{row.average_percent:.2f} % printed; Wilson {interval.percent()}"
        table_rows.append((f"{row.name} (published)", *cells, str(row.total), average_text, "", "", "", "", "", ""))
        bars.append((f"{row.name} (published)", interval.value, interval.low, interval.high))
    raw = paper.load_paper()
    notes = (
        "By family: completed runs, and in brackets mean actions / iterations of the completed ones. Actions, tokens, cost "
        "and time are means over completed runs; of outside systems a request counts as an action.",
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


def _format_published_family(row: paper.PublishedSystem, family: str) -> str:
    means = row.mean_costs.get(family)
    return f"{row.runs[family]}" + (f" ({means.actions:g} / {means.iterations:g})" if means else "")


def make_difference_table(rows: Sequence[Row]) -> ResultTable:
    """Every system against m3b with the same model, on common tasks; never without its interval."""
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
