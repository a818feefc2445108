"""The state of an agent after an interruption: the same as that of an agent that was never stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from m3b.agents.agent_state import AgentState
from m3b.agents.check_result import accept
from m3b.agents.conversation import Conversation
from m3b.events import Event, MessageSent, PromptSent, ReplyReceived, ToolCalled, ToolReturned
from m3b.messages import ToolCall
from m3b.run.folder import RunFolder
from m3b.run.orchestrator import answer_interrupted_call

FIRST, SECOND = ToolCall("a", "read_files", {"paths": ["notes.txt"]}), ToolCall("b", "list_files", {})


def test_a_reflection_is_asked_for_once() -> None:
    """It used to be asked for again after a resume."""
    events: list[Event] = [PromptSent("s", "t"), ReplyReceived("done"), MessageSent("Look again.", "reflection")]
    assert AgentState.from_events(events).has_reflected
    assert not AgentState.from_events([*events, PromptSent("", "the next stage of a single agent")]).has_reflected


def test_a_circle_is_known_after_a_resume() -> None:
    """The detector used to begin anew, so that an agent could go round for ever across resumes."""
    turn = [ReplyReceived("", (SECOND,)), ToolCalled("b", "list_files", {}), ToolReturned("b", "list_files", "empty")]
    standing = AgentState.from_events([PromptSent("s", "t"), *turn * 3])
    assert not standing.repetitions.has_warned
    assert standing.repetitions.observe(SECOND, "empty", is_malformed=False), "the fourth time"
    assert AgentState.from_events([MessageSent("You are going round in circles", "circle")]).repetitions.has_warned


def test_scripts_that_failed_and_ran_on_are_known() -> None:
    call = ToolCall("a", "run_script", {"command": "python train.py"})
    failed = ToolReturned("a", "run_script", "Exit code 3", True, {"job": 1, "running": False, "exit_code": 3})
    ran_on = ToolReturned("a", "run_script", "still running", False, {"job": 2, "running": True})
    turn = [ReplyReceived("", (call,)), ToolCalled("a", "run_script", call.arguments, 1, 2)]
    assert AgentState.from_events([*turn, failed]).script_failed
    assert AgentState.from_events([*turn, failed]).iterations == 2
    assert AgentState.from_events([*turn, ran_on]).lost_jobs == {2: "python train.py"}


def test_calls_that_were_never_begun_run_now_and_others_are_told(make_stage: Any) -> None:
    """Both used to be told that they were interrupted, though one had never run."""
    events: list[Event] = [
        PromptSent("s", "Stage: test"),
        ReplyReceived("", (FIRST, SECOND)),
        ToolCalled("a", FIRST.name, FIRST.arguments),
    ]
    stage = make_stage("done", conversation=Conversation.from_events(events, keep_open_calls=True))
    stage.agent.resume(AgentState.from_events(events), lambda call: f"{call.name} was interrupted")
    stage.agent.run(lambda text: accept(None))
    assert stage.results() == ["read_files was interrupted", stage.results()[1]]
    assert "notes.txt" in stage.results()[1]
    assert [data["name"] for data in stage.of("call")] == ["list_files"]
    assert len(stage.llm.requests) == 1, "the model is not asked again for what it had said"


def test_a_call_that_does_the_same_again_is_finished(make_stage: Any) -> None:
    """What follows it in the reply rests on it: a script, for instance, on the file that was being written."""
    events: list[Event] = [
        PromptSent("s", "Stage: test"),
        ReplyReceived("", (FIRST, SECOND)),
        ToolCalled("a", FIRST.name, FIRST.arguments),
    ]
    stage = make_stage("done", conversation=Conversation.from_events(events, keep_open_calls=True))
    stage.agent.resume(AgentState.from_events(events), lambda call: "")
    stage.agent.run(lambda text: accept(None))
    assert "interrupted" not in "".join(stage.results())
    assert [data["name"] for data in stage.of("result")] == ["read_files", "list_files"]
    assert [data["name"] for data in stage.of("call")] == ["list_files"], "it costs no second action"


def test_which_calls_do_the_same_again(tmp_path: Path) -> None:
    run = cast(RunFolder, SimpleNamespace(work=tmp_path))
    assert answer_interrupted_call(run, ToolCall("a", "write_files", {"files": []})) == ""
    for name in ("run_script", "edit_files", "a_tool_of_the_users"):
        assert "m3b was interrupted" in answer_interrupted_call(run, ToolCall("a", name, {}))
