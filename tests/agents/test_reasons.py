"""The two voices of a rejection: what the agent hears, and what the person hears if nobody fixes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from m3b.agents.artifacts import Selection, parse_give_up
from m3b.agents.budget import Budget
from m3b.agents.check_result import (
    CheckResult,
    Issue,
    describe_script_failure,
    explain_failure,
    reject,
    strip_agent_instructions,
)
from m3b.agents.checks.index import check_index
from m3b.agents.checks.module import RECIPE_FILES, REQUIRED_FILES, CommandResult, check_module
from m3b.agents.checks.selection import check_selection
from m3b.agents.roles import BUILTIN_ROLES, FailureMessage
from m3b.data.cards import Card
from m3b.errors import BudgetExceeded, RunFailed
from m3b.testing.scripted_model import call, say
from m3b.tools import ToolResult

AGENTS_ALONE = re.compile(
    r"\bWrite \w|Datapath/|resources/|Deliver/|python \w+\.py|[Yy]our reply|Reply with|\s--(?!data)\w"
)
"""Words that nobody but an agent can act on."""
CHOICE = Selection("ours", "diagnosis", "auroc", "plan")


def no_index(work: Path) -> CheckResult:
    return check_index(work, CHOICE, closing_text="I could not find the labels.")


def half_an_index(work: Path) -> CheckResult:
    (work / "Datapath").mkdir()
    (work / "Datapath" / "train.json").write_text("[]")
    return check_index(work, CHOICE)


def one_class(work: Path) -> CheckResult:
    (work / "Datapath").mkdir()
    for name, value in (("train", 6), ("test", 3)):
        records = [{"image_path": f"x/{name}{n}.png", "labels": ["a"], "patient": f"{name}{n}"} for n in range(value)]
        (work / "Datapath" / f"{name}.json").write_text(json.dumps(records))
    (work / "Datapath" / "label_dict.json").write_text('{"a": 0}')
    return check_index(work, CHOICE)


def no_project(work: Path) -> CheckResult:
    return check_module(work, ("a", "b"), lambda *probe: CommandResult(0, "exit", ""))


def project_that_fails(work: Path) -> CheckResult:
    for name in (*REQUIRED_FILES, *RECIPE_FILES):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("")
    return check_module(work, ("a", "b"), lambda *probe: CommandResult(1, "exit", "Traceback\nValueError: no batch"))


def selections(text: str) -> Any:
    cards = {card.name: card for card in (Card("ours", "d", path=Path("/")), Card("far", "d"))}
    return lambda work: check_selection(text, cards)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (no_index, "No index was written"),
        (no_index, "I could not find the labels."),
        (half_an_index, "test.json is missing"),
        (one_class, "class"),
        (no_project, "is incomplete"),
        (project_that_fails, "ValueError: no batch"),
        (selections("I do not know"), "did not answer in the form"),
        (selections('{"data_card": "theirs"}'), "no such data set"),
        (selections('{"data_card": "far"}'), "point --data"),
        (selections('{"data_card": "ours", "task": "cooking", "classes": ["a"]}'), "no kind of model"),
    ],
)
def test_a_person_hears_nothing_that_only_an_agent_can_do(tmp_path: Path, check: Any, words: str) -> None:
    verdict = check(tmp_path)
    assert not verdict.is_accepted
    assert words in " ".join(verdict.user_messages)
    for reason in verdict.user_messages:
        assert not AGENTS_ALONE.search(reason), reason
    assert len(verdict.issues) == len(verdict.user_messages)


def test_a_text_is_what_both_hear() -> None:
    verdict = reject("Only one class.", Issue("Write it.", "It is missing."))
    assert verdict.agent_messages == ("Only one class.", "Write it.")
    assert verdict.user_messages == ("Only one class.", "It is missing.")


def test_every_role_says_what_failed_and_what_to_do() -> None:
    for role in BUILTIN_ROLES:
        text = explain_failure(role.failure_message, "Found.", "", iterations=1)
        assert text.startswith(f"{role.failure_message.summary}, after 1 debug iteration. Found. ")
        assert text.endswith(".")
        assert not AGENTS_ALONE.search(text)


def output(text: str, **data: Any) -> ToolResult:
    return ToolResult(f"Exit code 1 after 0.2 s\n--- output (Logout/jobs/001.log) ---\n{text}", True, data)


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        (output("a 3\ndropped: 2\nNo case is left. Check --image and --map."), '"a 3; dropped: 2; No case is left."'),
        (output("x", error="Traceback\n  line 3\nValueError: no mask"), '"ValueError: no mask"'),
        (ToolResult("Exit code -9 after 3 s, killed: memory.", True, {"reason": "memory"}), "killed: memory"),
        (output(""), ""),
        (ToolResult("", True), ""),
    ],
)
def test_the_cause_is_what_the_script_said_last(result: ToolResult, cause: str) -> None:
    assert cause in describe_script_failure(result)
    assert bool(cause) == bool(describe_script_failure(result))


def test_the_reason_why_a_setting_was_refused_reaches_the_user() -> None:
    refusal = "--set network.pretrained=pretrained/own-weights: a mask model cannot start from the diagnosis model"
    assert strip_agent_instructions(refusal) == "a mask model cannot start from the diagnosis model"
    assert strip_agent_instructions("Run plan.py --set lr=0.1. Ask.") == "Ask."


def test_sentences_for_agents_are_left_out() -> None:
    assert (
        strip_agent_instructions("Two values. Write Datapath/train.json; see resources/x. Ask.") == "Two values. Ask."
    )


@pytest.mark.parametrize("text", ['{"given_up": ""}', '{"given_up": null}', "no", '{"given": "x"}', "{", ""])
def test_nothing_was_given_up(text: str) -> None:
    assert parse_give_up(text) == ""


def test_the_reason_has_the_cause_that_the_script_knew(make_stage: Any) -> None:
    failing = call("run_script", command="echo no mask belongs to an image; exit 1")
    stage = make_stage(failing, say("done"), say("done"), budget=Budget(max_iterations=1))
    issue = Issue("Write Datapath/train.json.", "No index was written.")
    with pytest.raises(RunFailed) as end:
        stage.agent.run(lambda text: reject(issue), FailureMessage("The data could not be read", "Look at the README."))
    assert str(end.value) == (
        "The data could not be read, after 1 debug iteration. No index was written. "
        'The last script said: "no mask belongs to an image" Look at the README.'
    )
    assert "Write Datapath/train.json." in " ".join(stage.sent_messages()), "the agent hears the other voice"
    assert stage.of("check")[0]["reasons"] == ["No index was written."]


def test_giving_up_ends_the_role_at_once(make_stage: Any) -> None:
    stage = make_stage(say('{"given_up": "The layout is unknown. Describe it."}'))
    with pytest.raises(RunFailed) as end:
        stage.agent.run(lambda text: reject("never asked"), FailureMessage("The data could not be read", "More."))
    assert str(end.value) == "The data could not be read. The layout is unknown. Describe it."
    assert not stage.of("check")


def test_giving_up_after_a_script_that_failed_tells_what_the_script_said(make_stage: Any) -> None:
    failing = call("run_script", command="echo normal cases alone teach nothing: add abnormal ones; exit 1")
    stage = make_stage(failing, say('{"given_up": "The rules change no code."}'))
    with pytest.raises(RunFailed) as end:
        stage.agent.run(lambda text: reject("never asked"), FailureMessage("No project was set up", "More."))
    assert str(end.value) == (
        'No project was set up. The rules change no code. The last script said: "normal cases alone teach nothing: add abnormal ones"'
    )


def test_giving_up_as_the_last_words(make_stage: Any) -> None:
    spent = [call("list_files"), call("list_files"), say('{"given_up": "Nothing there."}')]
    with pytest.raises(BudgetExceeded, match=r"^The only action is spent\. Raise max_actions\. Nothing there\.$"):
        make_stage(*spent, budget=Budget(max_actions=1)).run()
