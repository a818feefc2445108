"""What the first role hands over: a JSON object, somewhere in its last words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.agents.artifacts import Selection, find_json_object
from m3b.agents.checks.selection import SelectionCheck, check_selection
from m3b.data.cards import Card
from m3b.errors import NoDatasetFound

PLAN = "labels.csv names an image and a patient a row; split by patient."


@pytest.fixture
def cards(tmp_path: Path) -> dict[str, Card]:
    chest_folder = tmp_path / "chest"
    chest_folder.mkdir()
    cards = [
        Card("Chest X-Ray", "Radiographs.", chest_folder),
        Card("KneeMRI", "Volumes."),
        Card("Gone", "x", tmp_path / "no"),
    ]
    return {card.name: card for card in cards}


def answer(**changes: Any) -> str:
    raw = {"data_card": "Chest X-Ray", "task": "diagnosis", "metric": "auroc", "classes": [], "plan": PLAN}
    return json.dumps({**raw, **changes})


# --- finding the object ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"data_card": "a"}',
        'Here is my choice: {"data_card": "a"} and that is all.',
        '```json\n{"data_card": "a"}\n```',
        'The set {train, test} is split. {"other": 1} {"data_card": "a"} {"data_card": "b"}',
        '{"unfinished": {"data_card": "a"}',
    ],
)
def test_the_object_is_found(text: str) -> None:
    assert find_json_object(text) == {"data_card": "a"}


@pytest.mark.parametrize(
    "text", ["", "done", "{", "{}", '{"data_card": "a"', "['data_card']", "{" * 3000, '{"a":' * 5000, "[" * 100_000]
)
def test_no_object(text: str) -> None:
    assert find_json_object(text) is None


@given(st.text(alphabet='{}[]":,a\\ \n1', max_size=60), st.text(alphabet="}] \n`x", max_size=20))
def test_any_text_around_it(before: str, after: str) -> None:
    expected = {"data_card": "a", "plan": 'with "quotes" and {braces}'}
    assert find_json_object(f"{before}{after}") is None
    parsed = find_json_object(f"prose {after}\n{json.dumps(expected)}{after}")
    assert parsed == expected


# --- accepted ----------------------------------------------------------------------------------------------------


def test_a_good_selection(cards: dict[str, Card]) -> None:
    text = f"I choose:\n```json\n{answer(classes=['normal', 'pneumonia'], reason=' fits ')}\n```"
    verdict = check_selection(text, cards)
    assert verdict.is_accepted
    expected = Selection("Chest X-Ray", "diagnosis", "auroc", PLAN, ("normal", "pneumonia"), "fits")
    assert verdict.artifact == expected


@pytest.mark.parametrize("name", ["Chest X-Ray", "chest x-ray", "chest-x-ray", "data/chest-x-ray/", " Chest X-Ray "])
def test_spellings_of_a_card(cards: dict[str, Card], name: str) -> None:
    assert check_selection(answer(data_card=name), cards).artifact.card == "Chest X-Ray"


# --- rejected ----------------------------------------------------------------------------------------------------


def test_no_json_names_the_shape(cards: dict[str, Card]) -> None:
    verdict = check_selection("I am done.", cards)
    assert verdict.end_error is None
    assert verdict.issues[0].code == "no_json"
    assert '"data_card": "<name>"' in verdict.agent_messages[0]


def test_an_unknown_card_names_those_with_data(cards: dict[str, Card]) -> None:
    verdict = check_selection(answer(data_card="BrainTumour"), cards)
    assert verdict.issues[0].code == "unknown_card"
    assert "Chest X-Ray" in verdict.agent_messages[0]
    assert "KneeMRI" not in verdict.agent_messages[0]
    assert (verdict.end_error, verdict.is_fatal) == (NoDatasetFound, False)


@pytest.mark.parametrize("name", ["KneeMRI", "Gone"])
def test_a_card_without_its_data(cards: dict[str, Card], name: str) -> None:
    verdict = check_selection(answer(data_card=name), cards)
    assert verdict.issues[0].code == "card_without_data"
    assert verdict.end_error is NoDatasetFound


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_folder_that_may_not_be_read(cards: dict[str, Card]) -> None:
    folder = cards["Chest X-Ray"].path
    assert folder is not None
    folder.chmod(0)
    assert check_selection(answer(), cards).issues[0].code == "card_without_data"
    folder.chmod(0o700)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"task": "surgery"}, "unknown_task"),
        ({"task": "segmentation"}, "unknown_metric"),
        ({"task": "detection", "metric": "bleu"}, "unknown_metric"),
        ({"task": None}, "unknown_task"),
        ({"task": ["diagnosis"]}, "unknown_task"),
        ({"metric": "loss"}, "unknown_metric"),
        ({"metric": {}}, "unknown_metric"),
        ({"plan": "short"}, "no_plan"),
        ({"plan": [PLAN]}, "no_plan"),
        ({"classes": ["only"]}, "invalid_classes"),
        ({"classes": ["a", "a"]}, "invalid_classes"),
        ({"classes": "pneumonia"}, "invalid_classes"),
        ({"classes": {"a": 1, "b": 2}}, "invalid_classes"),
    ],
)
def test_each_fault(cards: dict[str, Card], changes: dict[str, Any], code: str) -> None:
    verdict = check_selection(answer(**changes), cards)
    assert [issue.code for issue in verdict.issues] == [code]


def test_all_faults_at_once(cards: dict[str, Card]) -> None:
    assert len(check_selection('{"data_card": "Chest X-Ray"}', cards).agent_messages) == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.fixed_dictionaries({"data_card": json_values | st.just("Here")}, optional={
    "task": json_values, "metric": json_values, "plan": json_values, "classes": json_values, "reason": json_values,
    "question": json_values,
}))  # fmt: skip
def test_whatever_is_in_the_object_gets_a_verdict(raw: dict[str, Any]) -> None:
    verdict = check_selection(json.dumps(raw), {"Here": Card("Here", "x", Path("/"))})
    assert verdict.is_accepted == isinstance(verdict.artifact, Selection)
    assert verdict.is_accepted or all(verdict.agent_messages)


# --- no data set, and questions ----------------------------------------------------------------------------------


def test_no_data_set_ends_the_run_with_the_reason(cards: dict[str, Card]) -> None:
    verdict = check_selection(answer(data_card=None, reason="There is no brain MRI."), cards)
    assert verdict.agent_messages == ("There is no brain MRI.",)
    assert (verdict.end_error, verdict.is_fatal) == (NoDatasetFound, True)


def test_the_user_may_name_another_data_set(cards: dict[str, Card]) -> None:
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return "Take the chest one."

    verdict = check_selection(answer(data_card=None, reason="No brain MRI."), cards, ask)
    assert "No brain MRI. Which data set should be used?" in questions[0]
    assert "The user answers: Take the chest one." in verdict.reply
    assert (verdict.is_accepted, verdict.agent_messages) == (False, ()), (
        "an answer is no fault, and costs no debug iteration"
    )


def test_a_user_who_does_not_answer(cards: dict[str, Card]) -> None:
    verdict = check_selection(answer(data_card=None), cards, lambda question: None)
    assert verdict.is_fatal


def test_a_question_is_put_to_the_user(cards: dict[str, Card]) -> None:
    text = answer(question="Viral only, or any pneumonia?")
    verdict = check_selection(text, cards, lambda question: f"Any. ({question})")
    assert "Any. (Viral only, or any pneumonia?)" in verdict.reply
    assert check_selection(text, cards).is_accepted, "where nobody can be asked, the choice stands"


@pytest.mark.parametrize("answer_", ["Chest X-Ray", "chest x-ray.", "'chest-x-ray'", "chest", "data/chest-x-ray"])
def test_an_answer_that_names_a_data_set(cards: dict[str, Card], answer_: str) -> None:
    """By name, by folder: the agent hears which one it is. If it declines that too, that is the end."""
    check = SelectionCheck(cards, lambda question: answer_)
    declined = answer(data_card=None, reason="No brain MRI.")
    assert check(declined).reply.startswith("The user answers: use Chest X-Ray. Decide again.")
    assert check(declined).is_fatal


def test_yes_and_no_where_there_is_but_one(tmp_path: Path) -> None:
    cards = {"only": Card("only", "x", tmp_path)}
    declined = answer(data_card=None, reason="No brain MRI.")
    assert "use only." in SelectionCheck(cards, lambda question: "yes")(declined).reply
    assert SelectionCheck(cards, lambda question: "No.")(declined).is_fatal
    assert not SelectionCheck({}, lambda question: "yes")(declined).reply, "there is nothing to be chosen"


def test_a_user_is_not_asked_for_ever(cards: dict[str, Card]) -> None:
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return "hm"

    check = SelectionCheck(cards, ask)
    text = answer(question="Which?")
    assert [bool(check(text).reply) for _ in range(5)] == [True, True, True, False, False]
    assert len(questions) == 3
