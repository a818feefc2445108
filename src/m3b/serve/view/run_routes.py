"""The list of runs, and the report of each as a page of `m3b view`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from m3b.markup.formatting import format_count, format_duration, format_figure, format_interval, shorten
from m3b.markup.json_values import as_dict, to_finite_number
from m3b.report import collect_report_values, read_run_files
from m3b.report.measured_view import format_metric_name
from m3b.report.summary_view import NO_VERDICT_LABEL, describe_status
from m3b.run.reporting import collect_notes
from m3b.serve.view.context import ViewContext

MAX_JOURNAL_BYTES = 8 << 20
"""Of a longer journal, only parts are read."""


def make_routes(context: ViewContext) -> list[Route]:
    """Return the routes of the list and of the overview of a run."""

    def list_runs(request: Request) -> Response:
        rows = [make_row(summary) for summary in context.runs.list_summaries()]
        counts = Counter(row["label"] for row in rows)
        chosen = request.query_params.get("status", "")
        shown = [row for row in rows if chosen in ("", row["label"])]
        return context.render(
            request,
            "runs.html",
            rows=shown,
            n_runs=len(rows),
            counts=counts.most_common(),
            chosen=chosen,
            has_folders=bool(context.settings.folders),
            is_wide=True,
        )

    def show_overview(request: Request) -> Response:
        run = context.find_run(request)
        values = collect_report_values(
            read_run_files(run.path, collect_notes(run, is_file=False), max_journal_bytes=MAX_JOURNAL_BYTES)
        )
        return context.render(request, "report.html", **values, run=run)

    return [
        Route("/", list_runs, name="runs"),
        Route("/runs/{key}", show_overview, name="run_overview"),
    ]


def make_row(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a run as the list and the comparison show it: texts, and numbers to sort by."""
    label, tone = describe_status(summary["status"])
    if not summary["has_verdict"]:
        label, tone = NO_VERDICT_LABEL
    measure, usage = as_dict(summary["primary"]), as_dict(summary["usage"])
    tokens = sum(to_finite_number(usage.get(name)) or 0 for name in ("input_tokens", "output_tokens"))
    value = to_finite_number(measure.get("value"))
    return {
        "key": summary["key"],
        "id": shorten(summary["id"], 80),
        "request": shorten(summary["request"], 300),
        "started": summary["started"],
        "is_working": summary["status"] == "working",
        "label": label,
        "tone": tone,
        "task": summary["task"],
        "metric": format_metric_name(measure.get("name", "")) if value is not None else "",
        "value": format_figure(value) if value is not None else "",
        "interval": format_interval(measure.get("low"), measure.get("high")) if value is not None else "",
        "n": format_count(measure.get("n")) if value is not None else "",
        "actions": format_count(usage.get("actions")) if usage else "",
        "tokens": format_count(tokens) if usage else "",
        "time": format_duration(usage.get("wall_s")) if usage else "",
        "seconds": to_finite_number(usage.get("wall_s")) or 0,
    }
