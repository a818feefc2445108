"""What the Model Trainer, the result and the report say of a search over plans."""

from __future__ import annotations

from typing import Any

import pytest

from m3b.agents.artifacts import DataIndex, Selection, TrainingModule
from m3b.agents.briefing import build_model_briefing
from m3b.agents.search_table import (
    STOP_REASONS,
    describe_next_step,
    describe_outcome,
    describe_search,
    describe_selection,
    describe_training_time,
)
from m3b.facts import PlanCandidate, SearchSummary


def make_candidate(number: int, *figures: float, problem: str = "", **settings: Any) -> PlanCandidate:
    source = "default" if number == 1 else "table"
    value = figures[-1] if figures else None
    return PlanCandidate(
        number=number, source=source, settings=settings, value=value, problem=problem, figures=figures, minutes=1.0
    )


def make_summary(*candidates: PlanCandidate, **changes: Any) -> SearchSummary:
    values: dict[str, Any] = {
        "metric": "auroc", "candidates": candidates, "selected": 1, "value": 0.8, "folds": 5, "cases": 185, "patients": 159,
        "minutes": 5.66, "stopped": "time", "max_minutes": 8.0, "rung_minutes": (1.0,), "final_minutes": 4.0,
        "training_cases": 370,
    }  # fmt: skip
    return SearchSummary(**{**values, **changes})


def list_outcomes(summary: SearchSummary) -> list[str]:
    return [describe_outcome(candidate, summary) for candidate in summary.candidates]


@pytest.mark.parametrize("stopped", list(STOP_REASONS))
@pytest.mark.parametrize("problem", ["", "the loss is no number"])
def test_each_end_of_a_search_has_one_reason(stopped: str, problem: str) -> None:
    second = make_candidate(2, problem=problem, lr=0.1) if problem else make_candidate(2, 0.7, lr=0.1)
    text = describe_search(make_summary(make_candidate(1, 0.8), second, stopped=stopped))
    assert [reason for reason in STOP_REASONS.values() if reason in text] == [STOP_REASONS[stopped]]
    assert "5.66 of its 8 min" in text
    assert ("2 candidate plans were trained and measured" in text) is (not problem)
    assert ("1 of 2 candidate plans could be measured" in text) is bool(problem)
    assert (problem or "not selected") in text


def test_cases_and_minutes_are_explained() -> None:
    text = describe_search(make_summary(make_candidate(1, 0.8), make_candidate(2, 0.7, lr=0.1)))
    assert "185 of the 370 training cases (159 patients)" in text
    assert "trained for 1 min (5 networks together)" in text
    unsampled_text = describe_search(make_summary(make_candidate(1, 0.8), cases=370))
    assert "370 cases of 159 patients" in unsampled_text
    assert "spread evenly" not in unsampled_text


@pytest.mark.parametrize(("n_rungs", "rung_names"), [(1, []), (2, ["rung 1", "rung 2 with 3 min"])])
def test_only_rungs_that_were_reached_are_named(n_rungs: int, rung_names: list[str]) -> None:
    summary = make_summary(make_candidate(1, *[0.8] * n_rungs), rung_minutes=(1.0, 3.0))
    text = describe_training_time(summary)
    assert all(name in text for name in rung_names)
    assert ("rung" in text) is bool(rung_names)


def test_a_figure_comes_with_the_minutes_of_its_training() -> None:
    """The second training of the selected candidate failed: its figure is of the first."""
    selected = make_candidate(2, 0.9, problem="out of memory", lr=0.1)
    text = describe_selection(make_summary(make_candidate(1, 0.8), selected, selected=2, rung_minutes=(0.5, 1.5)))
    assert "after 0.5 of 4 min of training" in text
    assert "after" not in describe_selection(make_summary(selected, selected=2, final_minutes=0.0, rung_minutes=()))


def test_what_became_of_each_candidate() -> None:
    candidates = (
        make_candidate(1, 0.80, 0.82),
        make_candidate(2, 0.90, 0.95, lr=0.1),
        make_candidate(3, 0.70, lr=0.2),
        make_candidate(4, problem="no memory", lr=0.3),
        make_candidate(5, 0.88, lr=0.4),
    )
    outcomes = list_outcomes(make_summary(*candidates, selected=2, rung_minutes=(1.0, 3.0)))
    assert outcomes[0] == "not selected: another candidate has a better figure in rung 2, the last"
    assert outcomes[1] == "selected"
    assert outcomes[2] == "dropped after rung 1: not among the best third"
    assert outcomes[3] == "failed in rung 1: no memory"
    assert outcomes[4] == f"not trained in rung 2: {STOP_REASONS['time']}"


def test_a_lower_error_goes_on() -> None:
    candidates = (make_candidate(1, 9.0), make_candidate(2, 4.0, 3.0, lr=0.1), make_candidate(3, 8.0, lr=0.2))
    outcomes = list_outcomes(make_summary(*candidates, metric="mae", selected=2, rung_minutes=(1.0, 3.0)))
    assert outcomes[0] == f"not trained in rung 2: {STOP_REASONS['time']}"
    assert outcomes[2] == "dropped after rung 1: not among the best third"


@pytest.mark.parametrize(("proposals_left", "count"), [(0, ""), (1, "one more candidate"), (30, "8 more candidates")])
def test_the_trainer_reads_whether_it_may_propose(proposals_left: int, count: str) -> None:
    text = describe_next_step(make_summary(make_candidate(1, 0.8), proposals_left=proposals_left))
    assert ("candidates.json" in text) is bool(proposals_left)
    assert ("The search is over" in text) is (not proposals_left)
    assert count in text
    assert "for its 4 min" in text


def test_the_briefing_after_a_search_does_not_mix_the_plans() -> None:
    selection = Selection("Chest X-Ray", "diagnosis", "auroc", "Labels are in cases.csv.", ("normal", "pneumonia"))
    index = DataIndex(("normal", "pneumonia"), False, {}, {}, {"train": 370, "test": 80}, {})
    module = TrainingModule((8, 1, 64, 64), 1_234, (0.7, 0.02), plan={"lr": 0.1})
    summary = make_summary(make_candidate(1, 0.7), make_candidate(2, 0.8, lr=0.1), selected=2)
    text = build_model_briefing(selection, index, module, 4.0, {"Module Architect": "Set up."}, search=summary).text
    assert "Before the search over plans, the model had 1,234 parameters" in text
    assert "The plan that the search selected: lr 0.1" in text
    assert "The Module Architect said, before the search: Set up." in text
    assert "no second training" in text
    briefing_text = build_model_briefing(selection, index, module, 4.0, {"Module Architect": "Set up."}).text
    assert "search" not in briefing_text
