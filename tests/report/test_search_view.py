"""The search over plans in the report: candidates, what became of them, and the optimism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from m3b.facts import PlanCandidate, SearchSummary
from m3b.report.page import render_report
from m3b.report.run_files import RunFiles
from m3b.report.search_view import make_search_view

SUMMARY = SearchSummary(
    metric="auroc",
    candidates=(
        PlanCandidate(number=1, source="default", minutes=3.0, value=0.82, figures=(0.8, 0.82)),
        PlanCandidate(
            number=2, source="table", settings={"lr": 0.003}, minutes=3.0, value=0.9, figures=(0.85, 0.9), steps=(100, 300),
            interval=(0.82, 0.95), gain=(0.08, 0.01, 0.15),
        ),
        PlanCandidate(number=3, source="agent", settings={"augment.rotate": 5}, minutes=1.0, value=0.7, figures=(0.7,)),
        PlanCandidate(number=4, source="sampler", settings={"lr": 9}, minutes=1.0, problem="<b>the loss is no number"),
    ),
    selected=2,
    value=0.9,
    corrected=0.87,
    low=0.8,
    high=0.93,
    optimism=0.03,
    gain=(0.08, 0.01, 0.15),
    folds=3,
    cases=100,
    patients=90,
    minutes=9.5,
    stopped="done",
    max_minutes=10.0,
    rung_minutes=(1.0, 3.0),
    final_minutes=9.0,
    training_cases=100,
    min_steps=250,
)  # fmt: skip


def make_files(*events: dict[str, Any]) -> RunFiles:
    return RunFiles(Path("r"), {"id": "r"}, list(events))


def make_artifact(value: Any) -> dict[str, Any]:
    return {"kind": "artifact", "role": "plan_search", "data": {"artifact": "search_summary", "value": value}}


def make_start(number: int, minutes: float, **settings: Any) -> dict[str, Any]:
    data = {"number": number, "rung": 0, "minutes": minutes, "source": "table", "settings": settings}
    return {"kind": "candidate_started", "role": "plan_search", "data": data}


def make_end(number: int, value: float | None, problem: str = "") -> dict[str, Any]:
    data = {"number": number, "rung": 0, "seconds": 60.0, "value": value, "problem": problem, "steps": 120}
    return {"kind": "candidate_measured", "role": "plan_search", "data": data}


def test_each_candidate_has_a_row_with_its_outcome(check: Callable[[str], Any]) -> None:
    view = make_search_view(make_files(make_artifact(SUMMARY.to_json())))
    assert view is not None
    assert [row[0] for row in view.rows] == ["1", "2", "3", "4"]
    assert [row[1] for row in view.rows] == ["the plan unchanged", "lr=0.003", "augment.rotate=5", "lr=9"]
    assert [row[3] for row in view.rows] == ["1, 3", "1, 3", "1", "1"]
    assert {len(row) for row in view.rows} == {len(view.head)}
    assert [row[4] for row in view.rows] == ["-", "100 (too few), 300", "-", "-"]
    assert [row[5] for row in view.rows] == ["0.800, 0.820", "0.850, 0.900 (0.820 to 0.950)", "0.700", "–"]
    assert [row[6] for row in view.rows] == ["-", "+0.080 (+0.010 to +0.150)", "-", "-"]
    assert view.rows[1][-1] == "<strong>selected</strong>"
    assert view.rows[3][-1].startswith("failed in rung 1")
    assert any("an optimism of 0.030" in sentence for sentence in view.sentences)
    page = check(render_report(make_files(make_artifact(SUMMARY.to_json()))))
    assert "Search over plans" in page.text
    assert "<b>the loss is no number" in page.text


def test_a_search_at_work_shows_what_it_has() -> None:
    events = (make_start(1, 1.0), make_end(1, 0.8), make_start(2, 1.0, lr=1), make_end(2, None, "no memory"))
    view = make_search_view(make_files(*events, make_start(1, 3.0)))
    assert view is not None
    assert view.sentences == []
    assert [row[3:] for row in view.rows] == [
        ["1, 3", "120", "0.800", "-", "in training"],
        ["1", "-", "–", "-", "failed: no memory"],
    ]


def test_the_last_result_counts() -> None:
    """The Model Trainer proposed candidates after the first result."""
    first = SUMMARY.model_copy(update={"candidates": SUMMARY.candidates[:2]})
    view = make_search_view(make_files(make_artifact(first.to_json()), make_artifact(SUMMARY.to_json())))
    assert view is not None
    assert len(view.rows) == 4


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {**SUMMARY.to_json(), "selected": 9},
        {**SUMMARY.to_json(), "stopped": "tired"},
        {**SUMMARY.to_json(), "value": None},
    ],
)
def test_a_damaged_result_leaves_the_section_out(value: Any, check: Callable[[str], Any]) -> None:
    files = make_files(make_artifact(value), {"kind": "candidate_started", "data": {"number": None}})
    assert make_search_view(files) is None
    assert "Search over plans" not in check(render_report(files)).text
