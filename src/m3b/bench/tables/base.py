"""The result table, and the counts and means that all tables use."""

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
    """A table that is ready to be rendered.

    Args:
        name: name for files: `table1` and so on.
        rows: texts; the first text of each row is its name.
        bars: label, proportion, low, high of each bar of the chart.
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
    """Return the rows grouped by the values of keys, in the order of their first appearance."""
    grouped: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[tuple(str(row[key]) for key in keys)].append(row)
    return dict(grouped)


def collect_successes(rows: Iterable[Row]) -> dict[str, list[float]]:
    """Return task -> 1 or 0 for each run. Runs that failed for external reasons count as failures; a note says so."""
    successes_by_task: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        successes_by_task[row["task"]].append(float(row["ok"]))
    return dict(successes_by_task)


def order_tasks(tasks: Iterable[str]) -> list[str]:
    """Return tasks in the order of the benchmark, unknown tasks last."""
    positions = {task.id: position for position, task in enumerate(load_tasks())}
    return sorted(set(tasks), key=lambda name: (positions.get(name, len(positions)), name))


def format_ratio(rows: Sequence[Row]) -> str:
    """Return successes and runs as `4/5`; empty without runs."""
    return f"{sum(bool(row['ok']) for row in rows)}/{len(rows)}" if rows else ""


def format_ratio_with_interval(rows: Sequence[Row]) -> str:
    """Return successes and runs with the Wilson interval in whole percent: `4/5 (38-96 %)`."""
    if not rows:
        return ""
    share = wilson_interval(sum(bool(row["ok"]) for row in rows), len(rows))
    assert share.low is not None
    assert share.high is not None
    return f"{format_ratio(rows)} ({100 * share.low:.0f}-{100 * share.high:.0f} %)"


def average_success(rows: Sequence[Row]) -> Estimate:
    """Return the success rate with an interval from resampling tasks."""
    return bootstrap_by_task(collect_successes(rows))


def format_pass_k(counts: Sequence[tuple[int, int]]) -> tuple[str, str, int]:
    """Return pass@k, pass^k and k over tasks given as (runs, successes), for the largest k possible for all tasks."""
    k = min(n for n, _ in counts)
    any_success = sum(pass_at_k(n, c, k) for n, c in counts) / len(counts)
    all_success = sum(pass_all_k(n, c, k) for n, c in counts) / len(counts)
    return f"{100 * any_success:.1f} %", f"{100 * all_success:.1f} %", k


def count_successes(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return (runs, successes) for each task."""
    return [(len(runs), round(sum(runs))) for runs in collect_successes(rows).values()]


def mean_of_successes(rows: Sequence[Row], get_value: Callable[[Row], float | None]) -> float | None:
    """Return the mean of `get_value` over successful runs, or None without values."""
    values = [value for row in rows if row["ok"] and (value := get_value(row)) is not None]
    return sum(values) / len(values) if values else None


def format_mean_usage(rows: Sequence[Row], key: str, digits: int = 1) -> str:
    """Return the mean of one value of `usage` over successful runs as text."""
    value = mean_of_successes(rows, lambda row: row["usage"].get(key))
    return "" if value is None else f"{value:.{digits}f}"


def format_mean_tokens(rows: Sequence[Row]) -> str:
    """Return the mean number of input and output tokens of successful runs as text."""
    value = mean_of_successes(
        rows, lambda row: row["usage"].get("input_tokens", 0) + row["usage"].get("output_tokens", 0)
    )
    return "" if value is None else f"{value:,.0f}"
