"""What the report shows of a search over plans: how candidates were compared, and a table of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from m3b.agents.artifacts import kind_of
from m3b.agents.search_table import (
    SOURCE_TITLES,
    STOP_REASONS,
    describe_comparison,
    describe_outcome,
    describe_selection,
    format_gain,
    format_settings,
    format_steps,
    is_selected,
)
from m3b.facts import PlanCandidate, SearchSummary
from m3b.markup.formatting import format_figure, format_interval, shorten
from m3b.markup.html import tag
from m3b.markup.json_values import as_dict, to_finite_number
from m3b.metrics.metric_tables import metric_title
from m3b.report.run_files import RunFiles

MAX_SHOWN_CANDIDATES = 60


@dataclass(frozen=True)
class SearchView:
    """The section of a search.

    Args:
        sentences: how candidates were compared, what was selected, and by how much its figure is too good.
        head, rows: a row for each candidate; figures are those of each rung.
    """

    sentences: list[str]
    head: list[str]
    rows: list[list[Any]]


def make_search_view(files: RunFiles) -> SearchView | None:
    """Return the search of a run, as far as it is; None if there was none."""
    summary = _find_summary(files.events)
    if summary is not None:
        sentences = [*describe_comparison(summary), describe_selection(summary)]
        candidates = [(item, _list_minutes(item, summary)) for item in summary.candidates]
        outcomes = [describe_outcome(item, summary) for item, _ in candidates]
        title = f"{metric_title(summary.metric)}, held-out cases (95 %)"
    else:
        sentences, title = [], "Figure, held-out cases"
        candidates = _list_started_candidates(files.events)
        outcomes = [
            f"failed: {shorten(item.problem, 120)}"
            if item.problem
            else "measured"
            if len(item.figures) >= len(minutes)
            else "in training"
            for item, minutes in candidates
        ]
    if not candidates:
        return None
    rows = [
        [
            str(item.number),
            format_settings(item.settings),
            SOURCE_TITLES.get(item.source, shorten(item.source, 40)),
            ", ".join(f"{value:.3g}" for value in minutes) or "–",
            format_steps(item.steps, summary),
            _format_figures(item),
            format_gain(item),
            tag("strong", outcome) if summary is not None and is_selected(item, summary) else outcome,
        ]
        for (item, minutes), outcome in list(zip(candidates, outcomes, strict=True))[:MAX_SHOWN_CANDIDATES]
    ]
    gain_title = "Gain over the plan unchanged (95 %)"
    head = ["Candidate", "Settings that differ", "Proposed by", "Training, min", "Steps", title, gain_title, "Outcome"]
    return SearchView(sentences, head, rows)


def _find_summary(events: Sequence[dict[str, Any]]) -> SearchSummary | None:
    """Return the last result of a search that can be shown."""
    for event in reversed(events):
        data = as_dict(event.get("data"))
        if event.get("kind") != "artifact" or data.get("artifact") != kind_of(SearchSummary):
            continue
        try:
            summary = SearchSummary.model_validate(data.get("value"))
        except ValidationError:
            continue
        numbers = {item.number for item in summary.candidates}
        if summary.value is not None and summary.selected in numbers and summary.stopped in STOP_REASONS:
            return summary
    return None


def _format_figures(candidate: PlanCandidate) -> str:
    """Return the figures of each rung, and the interval of the last one."""
    text = ", ".join(map(format_figure, candidate.figures)) or format_figure(candidate.value)
    return f"{text} ({format_interval(*candidate.interval)})" if candidate.interval else text


def _list_minutes(candidate: PlanCandidate, summary: SearchSummary) -> list[float]:
    """Return the minutes of each training of a candidate."""
    count = len(candidate.figures) + bool(candidate.problem)
    return list(summary.rung_minutes[:count]) or [candidate.minutes]


def _list_started_candidates(events: Sequence[dict[str, Any]]) -> list[tuple[PlanCandidate, list[float]]]:
    """Return the candidates of a search that has not ended, each with the minutes of its trainings."""
    candidates: dict[int, tuple[PlanCandidate, list[float]]] = {}
    for event in events:
        data = as_dict(event.get("data"))
        number = data.get("number")
        if not isinstance(number, int):
            continue
        if event.get("kind") == "candidate_started":
            item, minutes = candidates.get(number) or (
                PlanCandidate(number=number, source=str(data.get("source")), settings=as_dict(data.get("settings"))),
                [],
            )
            candidates[number] = (item, [*minutes, to_finite_number(data.get("minutes")) or math.nan])
        elif event.get("kind") == "candidate_measured" and number in candidates:
            item, minutes = candidates[number]
            value = to_finite_number(data.get("value"))
            steps = data.get("steps")
            changes = {
                "figures": item.figures if value is None else (*item.figures, value),
                "steps": item.steps if value is None else (*item.steps, steps if isinstance(steps, int) else 0),
                "problem": str(data.get("problem") or ""),
            }
            candidates[number] = (item.model_copy(update=changes), minutes)
    return list(candidates.values())
