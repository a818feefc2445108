"""The list of runs, and the report of each as a page of `m3b view`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from m3b.report import collect_report_values, read_run_files
from m3b.run.reporting import collect_notes
from m3b.run.summary import summarize_run
from m3b.serve.view.context import ViewContext


def make_routes(context: ViewContext) -> list[Route]:
    """Return the routes of the list and of the overview of a run."""

    def list_runs(request: Request) -> Response:
        rows = [(key, summarize_run(run)) for key, run in context.runs.list_all().items()]
        return context.render(request, "runs.html", rows=rows)

    def show_overview(request: Request) -> Response:
        run = context.find_run(request)
        values = collect_report_values(read_run_files(run.path, collect_notes(run)))
        return context.render(request, "report.html", **values, run=run)

    return [
        Route("/", list_runs, name="runs"),
        Route("/runs/{key}", show_overview, name="run_overview"),
    ]
