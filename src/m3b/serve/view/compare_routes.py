"""Runs side by side: metrics with intervals, learning curves, and plans with their differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from m3b.isolation import untrusted
from m3b.markup.charts import MAX_SERIES, draw_line_chart
from m3b.markup.formatting import format_figure, format_interval, shorten
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.report.measured_view import format_metric_name
from m3b.report.page_template import embed_json
from m3b.report.run_files import RunFiles, read_run_files
from m3b.report.training_view import Curves, Line, list_curves, list_plan_rows
from m3b.run.folder import RunFolder, data_folders
from m3b.run.reporting import collect_notes
from m3b.run.summary import summarize_run
from m3b.serve.view.context import ViewContext
from m3b.serve.view.run_index import make_key
from m3b.serve.view.run_routes import make_row

MAX_COMPARED = 6
LETTERS = "ABCDEF"
MAX_HASHES_BYTES = 1 << 20


@dataclass(frozen=True)
class ComparedRun:
    """One column of the comparison."""

    letter: str
    run: RunFolder
    files: RunFiles

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Name -> measure on the test cases."""
        metrics = as_dict(self.files.scores.get("metrics")) or as_dict(self.files.result.get("metrics"))
        return {name: as_dict(measure) for name, measure in metrics.items()}


def make_routes(context: ViewContext) -> list[Route]:
    """Return the route of the comparison."""

    def compare(request: Request) -> Response:
        keys = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(keys) <= MAX_COMPARED:
            raise HTTPException(400, f"Choose 2 to {MAX_COMPARED} runs in the list; these are {len(keys)}.")
        runs = [context.runs.find(key) for key in keys]
        compared = [
            ComparedRun(letter, run, read_run_files(run.path, collect_notes(run), max_journal_bytes=0))
            for letter, run in zip(LETTERS, runs, strict=False)
            if run is not None
        ]
        if len(compared) < len(keys):
            raise HTTPException(404, "One of these runs does not exist; it may have been removed.")
        curves = merge_curves(compared)
        return context.render(
            request,
            "compare.html",
            rows=[(item.letter, make_row({**summarize_run(item.run), "key": make_key(item.run)})) for item in compared],
            test_set=compare_test_sets(compared),
            metrics=list_metric_rows(compared),
            settings=list_setting_rows(compared),
            curves=curves,
            curves_json=embed_json([chart.to_json() for chart in curves]),
            is_wide=True,
        )

    return [Route("/compare", compare, name="compare")]


def compare_test_sets(compared: Sequence[ComparedRun]) -> dict[str, str]:
    """Return whether all runs were measured on the same locked test cases: `code`, `tone` and a sentence."""
    digests = {item.letter: _read_test_digest(item.run) for item in compared}
    missing = [letter for letter, digest in digests.items() if not digest]
    if missing:
        text = (
            f"Run {', '.join(missing)} has no locked test cases, so nothing tells whether its figures are comparable."
        )
        return {"code": "unknown", "tone": "warn", "text": text}
    if len(set(digests.values())) > 1:
        text = "The runs have different locked test cases. Do not compare their figures: a difference may come from the cases."
        return {"code": "different", "tone": "bad", "text": text}
    if len({tuple(data_folders(item.files.record)) for item in compared}) > 1:
        text = "The lists of locked test cases are the same, but of different data folders. Compare only if these are copies."
        return {"code": "other_folder", "tone": "warn", "text": text}
    return {"code": "same", "tone": "good", "text": "All runs were measured on the same locked test cases."}


def _read_test_digest(run: RunFolder) -> str:
    """Return the digest of the locked test index; empty if there is none."""
    try:
        content = as_dict(json.loads(untrusted.read_text(run.path, "locked/hashes.json", MAX_HASHES_BYTES)))
    except (OSError, ValueError, RecursionError):
        return ""
    return str(as_dict(content.get("index")).get("Datapath/test.json") or "")


def list_metric_rows(compared: Sequence[ComparedRun]) -> list[tuple[str, bool, list[tuple[str, str]]]]:
    """Return title, whether it is a primary metric, and value and interval in each run, for each metric; primary ones first."""
    primary = {str(as_dict(item.files.result.get("primary")).get("name")) for item in compared}
    names = list(dict.fromkeys(name for item in compared for name in item.metrics))
    rows = []
    for name in sorted(names, key=lambda name: name not in primary):
        measures = [item.metrics.get(name, {}) for item in compared]
        if all(to_finite_number(measure.get("value")) is None for measure in measures):
            continue
        cells = [
            (format_figure(measure["value"]), format_interval(measure.get("low"), measure.get("high")))
            if to_finite_number(measure.get("value")) is not None
            else ("–", "")
            for measure in measures
        ]
        rows.append((format_metric_name(name), name in primary, cells))
    return rows


def list_setting_rows(compared: Sequence[ComparedRun]) -> list[tuple[str, bool, list[str]]]:
    """Return name, whether the runs differ, and its text in each run, for each setting of plans and runs; differing ones first."""
    tables = [dict([*_list_options(item.files), *list_plan_rows(item.files)]) for item in compared]
    names = list(dict.fromkeys(name for table in tables for name in table))
    rows = [(name, [table.get(name, "–") for table in tables]) for name in names]
    return sorted(((name, len(set(cells)) > 1, cells) for name, cells in rows), key=lambda row: not row[1])


def _list_options(files: RunFiles) -> list[tuple[str, str]]:
    record = files.record
    data = ", ".join(str(as_dict(card).get("name", "")) for card in as_list(record.get("data")))
    models = as_dict(record.get("llm"))
    return [
        ("Request", shorten(record.get("request") or "–", 300)),
        ("Data", shorten(data or "–", 120)),
        ("Language model", shorten(", ".join(map(str, models.values())) or record.get("llm") or "–", 120)),
        ("m3b", shorten(as_dict(record.get("versions")).get("m3b") or "–", 40)),
    ]


def merge_curves(compared: Sequence[ComparedRun]) -> list[Curves]:
    """Return one chart for each logged column, with the lines of all runs."""
    lines_by_column: dict[str, list[tuple[ComparedRun, Curves, Line]]] = {}
    for item in compared:
        for chart in list_curves(item.files.training_log):
            for line in chart.lines:
                lines_by_column.setdefault(line.column, []).append((item, chart, line))
    charts = []
    for column, entries in lines_by_column.items():
        axes = [axis for axis in entries[0][1].axes if all(axis in chart.axes for _, chart, _ in entries)]
        if not axes or len({item.letter for item, _, _ in entries}) < 2:
            continue
        lines = [
            replace(line, name=f"{item.letter}{line.name.removeprefix(column)}")
            for item, _, line in entries[:MAX_LINES]
        ]
        points_by_run: dict[str, list[list[tuple[float, float]]]] = {}
        for (item, _, _), line in zip(entries, lines, strict=False):
            points_by_run.setdefault(item.letter, []).append(list(zip(line.x[axes[0][0]], line.y, strict=True)))
        charts.append(Curves(column, axes, lines, draw_line_chart(column, axes[0][1].lower(), points_by_run)))
    return charts


MAX_LINES = 3 * MAX_SERIES
"""Maximum lines of a chart, of all runs and folds together."""
