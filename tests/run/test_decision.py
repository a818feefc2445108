"""The decision on a folder as a run has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from m3b.data.cards import card_for_folder
from m3b.errors import DataError, UsageError
from m3b.run.decision import (
    SURVEY_FAILED,
    check_task,
    decide,
    list_unserved_tasks,
    make_decision_job,
    parse_decision,
    summarize_overview,
    task_for_card,
)

PROPOSAL = {
    "manifest": {"task": "diagnosis", "images": {"files": "*.png"}, "labels": {"value": "{parent}"}},
    "title": "classes by {parent}",
    "score": 0.876,
    "evidence": [{"code": "target", "message": "classes by {parent}"}],
}
COUNTS = {"lines": ["diagnosis: 20 cases", "training: 16 cases", "testing: 4 cases, drawn by m3b", "3 files are used"]}


def test_a_proposal_is_sufficient_and_counted() -> None:
    outcome = {"kind": "proposed", "task": "diagnosis", "proposals": [PROPOSAL, PROPOSAL]}
    decision = parse_decision(outcome, [COUNTS], ["line"])
    assert [proposal.sufficient for proposal in decision.proposals] == [True, False]
    assert decision.proposals[0].expected == "training: 16 cases; testing: 4 cases, drawn by m3b"
    assert (decision.summary.decision, decision.summary.target, decision.text) == ("proposed", "labels", "")


def test_a_question_is_open_and_a_refusal_says_what_is_missing() -> None:
    question = {"code": "rival", "text": "Which one?", "options": ["a", "b"], "remedy": "Name the column."}
    decision = parse_decision({"kind": "ask", "task": "diagnosis", "proposals": [PROPOSAL], "question": question}, [])
    assert (decision.code, decision.text, decision.refusal) == ("rival", "Which one? Name the column.", "")
    assert not decision.proposals[0].sufficient
    refusal = {"code": "no_targets", "message": "There are no masks.", "remedy": "Add them."}
    refused = parse_decision({"kind": "refuse", "task": "segmentation", "refusal": refusal}, [])
    assert (refused.code, refused.refusal) == ("no_targets", "There are no masks. Add them.")
    assert refused.summary.title == ""


def test_assumptions_stand_with_what_is_not_served() -> None:
    assumption = {"kind": "target", "claim": "polyps", "message": "nothing says polyps"}
    outcome = {"kind": "proposed", "task": "segmentation", "proposals": [PROPOSAL], "assumptions": [assumption]}
    request = "Segment the polyps and then write a report"
    assert parse_decision(outcome, [], (), request).assumptions[-1] == "Nothing says polyps."
    assert len(list_unserved_tasks(request, "segmentation")) == 1
    assert list_unserved_tasks("Segment the polyps", "segmentation") == []


def test_a_survey_that_fails_is_a_refusal() -> None:
    def fail(job: dict[str, Any]) -> dict[str, Any]:
        raise DataError("the disk is away")

    decision = decide(fail, {"tasks": ["diagnosis"], "request": "x"})
    assert (decision.kind, decision.code, decision.task) == ("refuse", SURVEY_FAILED, "diagnosis")
    assert "the disk is away" in decision.text


def test_tasks_that_are_not_there_are_named() -> None:
    with pytest.raises(UsageError, match=r"'foo'.*segmentation"):
        check_task("foo")


@pytest.mark.parametrize(
    ("request_text", "card_task", "task"),
    [
        ("Grade the knees from 0 to 4", "diagnosis", "grading"),
        ("Write a report", "diagnosis", "diagnosis"),
        ("", "detection", "detection"),
        ("Segment it", "", ""),
        ("Find and outline the infection", "detection", "segmentation"),
    ],
)
def test_the_task_of_a_card_gives_way_where_its_data_serves_the_request(
    request_text: str, card_task: str, task: str
) -> None:
    assert task_for_card(request_text, card_task) == task


def test_an_overview_has_no_reading_that_is_refused_for_lack_of_targets() -> None:
    proposal = {"title": "classes by {t.grade}", "score": 0.1, "manifest": {"task": "diagnosis"}}
    refusal = {"code": "no_targets", "message": "none", "remedy": ""}
    refused = {"kind": "refuse", "task": "diagnosis", "proposals": [proposal], "refusal": refusal}
    proposed = {"kind": "proposed", "task": "grading", "proposals": [proposal]}
    summary = summarize_overview({"outcomes": {"diagnosis": refused, "grading": proposed}, "lines": []})
    assert [reading.task for reading in summary.readings] == ["grading"]


@pytest.mark.parametrize("facts", [{}, {"task": "diagnosis", "metric": "auroc"}, {"modality": "CT"}])
def test_the_notes_of_a_folder_are_given_once(tmp_path: Path, facts: dict[str, str]) -> None:
    (tmp_path / "README.md").write_text("Values 0 and 255 compress well.")
    card = replace(card_for_folder(tmp_path), **facts)
    notes = make_decision_job("Classify adrenal masses", card, None)["notes"]
    assert notes.count("compress") == 1
    assert ("CT" in notes) == ("modality" in facts)
