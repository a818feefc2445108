"""What an agent goes on from after an interruption: the same state as that of an agent that was never stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from m3b.agents.conversation import Conversation
from m3b.agents.standing import Standing
from m3b.agents.verdict import accepted
from m3b.events import Briefed, Called, Event, Replied, Returned, Told
from m3b.messages import ToolCall
from m3b.run.folder import Run
from m3b.run.interrupted import told

FIRST, SECOND = ToolCall("a", "read_files", {"paths": ["notes.txt"]}), ToolCall("b", "list_files", {})


def test_a_reflection_is_asked_for_once() -> None:
    """It used to be asked for again after a resume."""
    events: list[Event] = [Briefed("s", "t"), Replied("done"), Told("Look again.", "reflection")]
    assert Standing.of(events).reflected
    assert not Standing.of([*events, Briefed("", "the next stage of a single agent")]).reflected


def test_a_circle_is_known_after_a_resume() -> None:
    """The detector used to begin anew, so that an agent could go round for ever across resumes."""
    turn = [Replied("", (SECOND,)), Called("b", "list_files", {}), Returned("b", "list_files", "empty")]
    standing = Standing.of([Briefed("s", "t"), *turn * 3])
    assert not standing.stuck.warned
    assert standing.stuck.note(SECOND, "empty", is_malformed=False), "the fourth time"
    assert Standing.of([Told("You are going round in circles", "circle")]).stuck.warned


def test_scripts_that_failed_and_ran_on_are_known() -> None:
    call = ToolCall("a", "run_script", {"command": "python train.py"})
    failed = Returned("a", "run_script", "Exit code 3", True, {"job": 1, "running": False, "exit_code": 3})
    ran_on = Returned("a", "run_script", "still running", False, {"job": 2, "running": True})
    turn = [Replied("", (call,)), Called("a", "run_script", call.arguments, 1, 2)]
    assert Standing.of([*turn, failed]).failed_script
    assert Standing.of([*turn, failed]).iterations == 2
    assert Standing.of([*turn, ran_on]).lost == {2: "python train.py"}


def test_calls_that_were_never_begun_run_now_and_others_are_told(make_stage: Any) -> None:
    """Both used to be told that they were interrupted, though one had never run."""
    events: list[Event] = [
        Briefed("s", "Stage: test"),
        Replied("", (FIRST, SECOND)),
        Called("a", FIRST.name, FIRST.arguments),
    ]
    stage = make_stage("done", conversation=Conversation.restore(events, keep_open_calls=True))
    stage.agent.take_up(Standing.of(events), lambda call: f"{call.name} was interrupted")
    stage.agent.run(lambda text: accepted(None))
    assert stage.results() == ["read_files was interrupted", stage.results()[1]]
    assert "notes.txt" in stage.results()[1]
    assert [data["name"] for data in stage.of("call")] == ["list_files"]
    assert len(stage.llm.seen) == 1, "the model is not asked again for what it had said"


def test_a_call_that_does_the_same_again_is_finished(make_stage: Any) -> None:
    """What follows it in the reply rests on it: a script, for instance, on the file that was being written."""
    events: list[Event] = [
        Briefed("s", "Stage: test"),
        Replied("", (FIRST, SECOND)),
        Called("a", FIRST.name, FIRST.arguments),
    ]
    stage = make_stage("done", conversation=Conversation.restore(events, keep_open_calls=True))
    stage.agent.take_up(Standing.of(events), lambda call: "")
    stage.agent.run(lambda text: accepted(None))
    assert "interrupted" not in "".join(stage.results())
    assert [data["name"] for data in stage.of("result")] == ["read_files", "list_files"]
    assert [data["name"] for data in stage.of("call")] == ["list_files"], "it costs no second action"


def test_which_calls_do_the_same_again(tmp_path: Path) -> None:
    run = cast(Run, SimpleNamespace(work=tmp_path))
    assert told(run, ToolCall("a", "write_files", {"files": []})) == ""
    for name in ("run_script", "edit_files", "a_tool_of_the_users"):
        assert "m3b was interrupted" in told(run, ToolCall("a", name, {}))
