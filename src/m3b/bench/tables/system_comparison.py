"""Table of systems under one judge: what they deliver, what they promise, what they spend."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from m3b.bench.cell_verdict import measure_optimism
from m3b.bench.statistics import bootstrap_by_task
from m3b.bench.systems import get_system
from m3b.bench.tables.base import ResultTable, Row, format_ratio, group_rows
from m3b.errors import UsageError

COMPARISON_NOTES = (
    "Hidden figure: mean over delivered models, by metric. Claimed minus hidden: mean difference between the figure that a "
    "system gives for its model and the hidden one (m3b: its test split; others: CLAIM.json), with an interval over tasks; "
    "above 0 is optimism. Requests and tokens: means over all runs.",
    "Resumable: whether a run that was killed goes on without sending an answered request again; measured with the real "
    "program, ? if nobody tried.",
)
COMPARISON_HEADER = (
    "system / model",
    "completed",
    "hidden figure",
    "claimed - hidden",
    "labels",
    "requests",
    "tokens",
    "resumable",
)


def make_comparison_table(rows: Sequence[Row]) -> ResultTable:
    """Return the table of systems under one judge, with one row for each system and model."""
    table_rows = [
        (
            f"{system} / {model}",
            format_ratio(group),
            format_hidden_figures(group),
            format_optimism(group),
            format_labels(group),
            format_mean_requests(group),
            format_mean_token_count(group),
            format_resumable(system),
        )
        for (system, model), group in group_rows(rows, "system", "model").items()
    ]
    return ResultTable("comparison", "Systems under one judge", COMPARISON_HEADER, tuple(table_rows), COMPARISON_NOTES)


def format_hidden_figures(rows: Sequence[Row]) -> str:
    """Return the mean figure of each metric with the number of models: `auroc 0.912 (3)`."""
    values_by_metric: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        metric = (row.get("score") or {}).get("primary") or {}
        if metric.get("value") is not None:
            values_by_metric[str(metric["name"])].append(float(metric["value"]))
    return "; ".join(
        f"{name} {sum(values) / len(values):.3f} ({len(values)})" for name, values in sorted(values_by_metric.items())
    )


def format_optimism(rows: Sequence[Row]) -> str:
    """Return the mean claimed minus hidden figure, its interval over tasks, and how many models have both figures."""
    differences: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        optimism = measure_optimism(row.get("claimed"), (row.get("score") or {}).get("primary"))
        if optimism is not None:
            differences[str(row["task"])].append(optimism)
    if not differences:
        return ""
    estimate = bootstrap_by_task(differences)
    interval = "" if estimate.low is None else f", {estimate.low:+.3f} to {estimate.high:+.3f}"
    return f"{estimate.value:+.3f} ({estimate.n}{interval})"


def format_labels(rows: Sequence[Row]) -> str:
    """Return the labels for signs of cheating with their counts; `0` without labels."""
    labels = Counter(label for row in rows for label in row["labels"])
    return "; ".join(f"{label} ({count})" for label, count in labels.most_common()) or "0"


def format_mean_requests(rows: Sequence[Row]) -> str:
    """Return the mean number of requests to the language model over all runs that recorded it."""
    counts = [float(row["usage"]["requests"]) for row in rows if "requests" in row["usage"]]
    return f"{sum(counts) / len(counts):.1f}" if counts else ""


def format_mean_token_count(rows: Sequence[Row]) -> str:
    """Return the mean number of input and output tokens over all runs that recorded it."""
    counts = [
        int(row["usage"]["input_tokens"]) + int(row["usage"].get("output_tokens", 0))
        for row in rows
        if "input_tokens" in row["usage"]
    ]
    return f"{sum(counts) / len(counts):,.0f}" if counts else ""


def format_resumable(system: str) -> str:
    """Return whether a killed run of a system goes on; `?` if it is not known."""
    try:
        is_resumable = get_system(system).is_resumable
    except UsageError:
        is_resumable = None
    return "?" if is_resumable is None else "yes" if is_resumable else "no"
