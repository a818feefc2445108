"""What the Model Trainer, the result and the report say of a search over plans."""

from __future__ import annotations

import re
from typing import Any

import pytest

from m3b.agents.artifacts import DataIndex, Selection, TrainingModule
from m3b.agents.briefing import build_model_briefing
from m3b.agents.search_table import (
    STOP_REASONS,
    TABLE_HEAD,
    UNKNOWN,
    describe_next_step,
    describe_outcome,
    describe_search,
    describe_selection,
    describe_training_time,
    format_settings,
    list_short_trainings,
    list_uncertain_gains,
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


def split_rows(text: str) -> list[list[str]]:
    """The cells of each candidate's line of the table."""
    lines = text.splitlines()
    return [line.split(" | ") for line in lines[lines.index(TABLE_HEAD) + 1 :]]


def list_outcomes(summary: SearchSummary) -> list[str]:
    return [describe_outcome(candidate, summary) for candidate in summary.candidates]


def test_settings_that_do_not_fit_are_counted() -> None:
    settings = {f"augment.setting_{number}": 0.25 for number in range(20)}
    *shown, rest = format_settings(settings).split(", ")
    assert shown == [f"{key}=0.25" for key in list(settings)[: len(shown)]]
    assert rest == f"and {20 - len(shown)} more"
    assert 0 < len(", ".join(shown)) <= 160
    assert format_settings({"lr": 0.1, "size": [8, 8]}) == "lr=0.1, size=[8, 8]"
    assert format_settings({}) == "the plan unchanged"


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


def test_the_table_has_steps_intervals_and_gains() -> None:
    unknown = make_candidate(1, 0.8)
    short = make_candidate(2, 0.7, 0.9, lr=0.1).model_copy(
        update={"steps": (90, 240), "interval": (0.85, 0.94), "gain": (0.1, -0.02, 0.2)}
    )
    failed = make_candidate(3, problem="no memory", lr=0.3)
    text = describe_search(make_summary(unknown, short, failed, selected=2, rung_minutes=(1.0, 3.0), min_steps=250))
    selected, first, third = split_rows(text)
    assert len(TABLE_HEAD.split(" | ")) == len(selected) == len(first) == len(third)
    assert selected[3:6] == ["240 (too few)", "auroc 0.900 (0.850 to 0.940)", "+0.100 (-0.020 to +0.200)"]
    assert first[3:6] == [UNKNOWN, "auroc 0.800", UNKNOWN]
    assert third[3:6] == [UNKNOWN, "no figure", UNKNOWN]


@pytest.mark.parametrize(
    ("steps", "short"), [((250, 250), []), ((249, 250), [1]), ((10, 20), [1, 2]), ((0, 249), [2])], ids=str
)
def test_a_training_is_short_below_the_steps_of_the_plan_table(steps: tuple[int, int], short: list[int]) -> None:
    """A candidate that does not say its steps is not called short."""
    candidates = [
        make_candidate(number, 0.8, lr=number).model_copy(update={"steps": (count,)})
        for number, count in enumerate(steps, 1)
    ]
    summary = make_summary(*candidates, min_steps=250)
    assert list_short_trainings(summary) == short
    assert ("250 steps" in describe_search(summary)) is bool(short)
    assert list_short_trainings(summary.model_copy(update={"min_steps": 0})) == []


@pytest.mark.parametrize(
    ("gains", "uncertain"),
    [((), []), ([(0.1, 0.02, 0.2)], []), ([(0.1, -0.02, 0.2)], [2]), ([(-0.1, -0.2, -0.01), (0.0, 0.0, 0.0)], [3])],
    ids=str,
)
def test_gains_within_their_uncertainty_are_named(gains: Any, uncertain: list[int]) -> None:
    candidates = [
        make_candidate(number, 0.8, lr=number).model_copy(update={"gain": gain}) for number, gain in enumerate(gains, 2)
    ]
    summary = make_summary(make_candidate(1, 0.8), *candidates)
    assert list_uncertain_gains(summary) == uncertain
    assert ("includes 0" in describe_search(summary)) is bool(uncertain)


@pytest.mark.parametrize(
    ("metric", "value", "corrected", "printed"),
    [
        ("qwk", 0.3294, 0.3276, ["0.329", "0.328", "0.001"]),
        ("mae", 0.3276, 0.3294, ["0.328", "0.329", "0.001"]),
        ("auroc", 0.9, 0.9004, ["0.900", "0.900", "0.000"]),
    ],
)
def test_the_printed_optimism_is_the_difference_of_the_printed_figures(
    metric: str, value: float, corrected: float, printed: list[str]
) -> None:
    """It was rounded on its own: 0.329 - 0.328 was 0.002."""
    changes = {"corrected": corrected, "low": 0.1, "high": 0.4, "optimism": abs(value - corrected)}
    text = describe_selection(make_summary(make_candidate(1, value), metric=metric, value=value, **changes))
    figures = re.findall(r"-?\d\.\d{3}", text)
    assert [figures[0], figures[1], figures[-1]] == printed


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


def test_a_lucky_candidate_leaves_the_plan_unchanged() -> None:
    candidates = (make_candidate(1, 0.80), make_candidate(2, 0.81, lr=0.1), make_candidate(3, 0.79, lr=0.2))
    summary = make_summary(*candidates, best=2, lead=(0.01, -0.002, 0.006))
    text = describe_selection(summary)
    assert "Candidate 2 has the best figure" in text
    assert [figure for figure in ("+0.010", "-0.002", "0.006") if figure not in text] == []
    outcomes = list_outcomes(summary)
    assert outcomes[0] == "selected"
    assert "may be luck" in outcomes[1]
    assert "better figure" in outcomes[2]
    few = describe_selection(make_summary(*candidates, best=2, patients=9))
    assert "the 9 patients held out" in few
    for selected in (make_summary(*candidates, best=1), make_summary(*candidates, selected=2, best=2)):
        assert "has the best figure" not in describe_selection(selected)


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
