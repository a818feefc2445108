"""What a table is, and what every table counts with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from m3b.bench.statistics import Estimate, bootstrap_by_task, pass_all_k, pass_at_k, wilson_interval
from m3b.bench.tasks import load_tasks

Row = Mapping[str, Any]
MAIN_SYSTEM = "m3b"


@dataclass(frozen=True)
class ResultTable:
    """A table ready to be shown.

    Args:
        name: for files: `table1` and so on.
        rows: texts; the first of each names the row.
        bars: label, share, low, high of what a chart shows.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    bars: tuple[tuple[str, float, float | None, float | None], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "head": list(self.header),
                "rows": [list(row) for row in self.rows], "notes": list(self.notes)}  # fmt: skip


def group_rows(rows: Iterable[Row], *keys: str) -> dict[tuple[str, ...], list[Row]]:
    """Rows by the values of some keys, in the order of their first appearance."""
    grouped: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[tuple(str(row[key]) for key in keys)].append(row)
    return dict(grouped)


def collect_successes(rows: Iterable[Row]) -> dict[str, list[float]]:
    """Task -> 1 or 0 a run; a run that never took place for the world's fault counts as a failure, and is told so."""
    successes_by_task: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        successes_by_task[row["task"]].append(float(row["ok"]))
    return dict(successes_by_task)


def order_tasks(tasks: Iterable[str]) -> list[str]:
    """Tasks in the order of the benchmark, unknown ones behind."""
    positions = {task.id: position for position, task in enumerate(load_tasks())}
    return sorted(set(tasks), key=lambda name: (positions.get(name, len(positions)), name))


def format_ratio(rows: Sequence[Row]) -> str:
    """`4/5`, or nothing where there is no run."""
    return f"{sum(bool(row['ok']) for row in rows)}/{len(rows)}" if rows else ""


def format_ratio_with_interval(rows: Sequence[Row]) -> str:
    """`4/5 (38-96 %)`: the Wilson interval in whole per cent."""
    if not rows:
        return ""
    share = wilson_interval(sum(bool(row["ok"]) for row in rows), len(rows))
    assert share.low is not None
    assert share.high is not None
    return f"{format_ratio(rows)} ({100 * share.low:.0f}-{100 * share.high:.0f} %)"


def average_success(rows: Sequence[Row]) -> Estimate:
    """The share of successes, its interval by task."""
    return bootstrap_by_task(collect_successes(rows))


def format_pass_k(counts: Sequence[tuple[int, int]]) -> tuple[str, str, int]:
    """pass@k and pass^k over tasks given as (runs, successes), for the largest k that every task has runs for."""
    k = min(n for n, _ in counts)
    any_success = sum(pass_at_k(n, c, k) for n, c in counts) / len(counts)
    all_success = sum(pass_all_k(n, c, k) for n, c in counts) / len(counts)
    return f"{100 * any_success:.1f} %", f"{100 * all_success:.1f} %", k


def count_successes(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """(runs, successes) a task."""
    return [(len(runs), round(sum(runs))) for runs in collect_successes(rows).values()]


def mean_of_successes(rows: Sequence[Row], get_value: Callable[[Row], float | None]) -> float | None:
    """The mean over successful runs of what `get_value` finds."""
    values = [value for row in rows if row["ok"] and (value := get_value(row)) is not None]
    return sum(values) / len(values) if values else None


def format_mean_usage(rows: Sequence[Row], key: str, digits: int = 1) -> str:
    """The mean of one figure of `usage` over successful runs."""
    value = mean_of_successes(rows, lambda row: row["usage"].get(key))
    return "" if value is None else f"{value:.{digits}f}"


def format_mean_tokens(rows: Sequence[Row]) -> str:
    """Mean input and output tokens of successful runs."""
    value = mean_of_successes(
        rows, lambda row: row["usage"].get("input_tokens", 0) + row["usage"].get("output_tokens", 0)
    )
    return "" if value is None else f"{value:,.0f}"
