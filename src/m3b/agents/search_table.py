"""A search over plans as a short text: a table of its candidates, and what selecting the best of them means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from m3b.facts import PlanCandidate, SearchSummary
from m3b.markup.formatting import shorten

MAX_SHOWN_CANDIDATES = 20
STOP_REASONS = {
    "time": "its time was over",
    "min_gain": "the expected gain of going on was below the minimum",
    "done": "all rungs were done",
}


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as `key=value` in one line; for none, that the plan is unchanged."""
    texts = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return shorten(", ".join(texts), 160) if texts else "the plan unchanged"


def describe_search(summary: SearchSummary) -> str:
    """Return what a search found, in sentences, then a line for each candidate, those with the longest training first."""
    measured = [candidate for candidate in summary.candidates if candidate.value is not None]
    sources = f"{summary.folds} patient folds" if summary.folds > 1 else "a held-out part of the patients"
    lines = [
        f"Search: {len(measured)} of {len(summary.candidates)} candidate plans were measured on {sources} ({summary.cases} cases, "
        f"{summary.patients} patients) in {summary.minutes:.3g} min; it ended because {STOP_REASONS[summary.stopped]}.",
        describe_selection(summary),
        *(format_candidate(item, summary) for item in _sort_candidates(summary)[:MAX_SHOWN_CANDIDATES]),
    ]
    return "\n".join(lines)


def describe_selection(summary: SearchSummary) -> str:
    """Return the figure of the selected candidate, by how much it is too good, and its gain over the plan as it was."""
    selected = next(item for item in summary.candidates if item.number == summary.selected)
    text = (
        f"Candidate {summary.selected} of {len(summary.candidates)} was selected ({format_settings(selected.settings)}): validation "
        f"{summary.metric} {summary.value:.3f}"
    )
    if summary.corrected is None or summary.optimism is None:
        text += ", too good by an unknown amount, since it was selected by this figure"
    else:
        text += (
            f"; corrected for the selection {summary.corrected:.3f} (95 % {summary.low:.3f} to {summary.high:.3f}), an optimism of "
            f"{summary.optimism:.3f}"
        )
    if summary.gain:
        gain, low, high = summary.gain
        text += f". Gain over the plan unchanged, on the same cases: {gain:+.3f} ({low:+.3f} to {high:+.3f}), optimism included"
    return f"{text}."


def format_candidate(candidate: PlanCandidate, summary: SearchSummary) -> str:
    """Return one line of the table."""
    figure = f"{summary.metric} {candidate.value:.3f}" if candidate.value is not None else "no figure"
    problem = f"; {shorten(candidate.problem, 120)}" if candidate.problem else ""
    mark = " <- selected" if candidate.number == summary.selected else ""
    return (
        f"{candidate.number} | {candidate.source} | {candidate.minutes:.3g} min | {figure}{problem} | "
        f"{format_settings(candidate.settings)}{mark}"
    )


def _sort_candidates(summary: SearchSummary) -> list[PlanCandidate]:
    return sorted(summary.candidates, key=lambda item: (item.number != summary.selected, -item.minutes, item.number))
