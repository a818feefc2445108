"""The history of one agent: what a provider is sent, what is dropped, what a journal gives back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from m3b.agents.conversation import DROPPED_RESULT_NOTE, MAX_WINDOW_SHARE, MIN_KEPT_RESULTS, Conversation
from m3b.events import Event, MessageSent, PromptSent, ReplyReceived, ToolCalled, ToolReturned
from m3b.journal import make_event
from m3b.llm import tokens
from m3b.llm.conversation import validate_conversation
from m3b.messages import Message, ToolCall, ToolSpec

TOOLS = (ToolSpec("list_files", "Lists files.", {"type": "object", "properties": {"path": {"type": "string"}}}),)


def long_talk(turns: int, chars: int) -> Conversation:
    talk = Conversation([Message("system", "You are an agent."), Message("user", "Stage: test")])
    for number in range(turns):
        call = ToolCall(f"c{number}", "list_files", {"path": f"folder{number}"})
        talk.add_message(Message("assistant", f"look {number}", (call,)))
        talk.add_tool_result(call, f"{number}: " + "x" * chars, False)
    return talk


# --- saying ------------------------------------------------------------------------------------------------------


def test_two_user_turns_become_one() -> None:
    talk = Conversation()
    talk.add_user_text("one")
    talk.add_user_text("two")
    assert talk.messages == [Message("user", "one\n\ntwo")]


def test_unanswered_are_the_last_turns_calls_without_a_result() -> None:
    talk = long_talk(2, 10)
    first_call, second_call = ToolCall("c8", "list_files"), ToolCall("c9", "list_files")
    talk.add_message(Message("assistant", "", (first_call, second_call)))
    talk.add_tool_result(first_call, "here", False)
    assert talk.find_unanswered_calls() == [second_call]


def test_an_id_that_a_provider_uses_again_counts_by_turn() -> None:
    talk = Conversation([Message("user", "go")])
    call = ToolCall("call_1", "list_files")
    talk.add_message(Message("assistant", "", (call,)))
    talk.add_tool_result(call, "here", False)
    talk.add_message(Message("assistant", "", (call,)))
    assert talk.find_unanswered_calls() == [call]


# --- size --------------------------------------------------------------------------------------------------------

texts = st.text(max_size=80)
message = st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), texts, call_id=st.just("c"))


@given(st.lists(st.one_of(message, texts, st.integers(10, 400)), max_size=25), st.booleans())
def test_size_is_that_of_the_request_at_every_moment(steps: list[Any], check_each_step: bool) -> None:
    """Whether it is asked for after each step or in the end only; an integer trims to such a window."""
    talk = Conversation()
    for step in steps:
        if isinstance(step, str):
            talk.add_user_text(step)
        elif isinstance(step, int):
            talk.drop_old_results(TOOLS, step, 0)
        else:
            talk.add_message(step)
        if check_each_step:
            assert talk.estimate_tokens(TOOLS) == tokens.estimate_request_tokens(talk.messages, TOOLS)
    assert talk.estimate_tokens(TOOLS) == tokens.estimate_request_tokens(talk.messages, TOOLS)
    assert talk.estimate_tokens(()) == tokens.estimate_request_tokens(talk.messages)


# --- trimming ----------------------------------------------------------------------------------------------------


def test_nothing_is_dropped_while_it_fits() -> None:
    talk = long_talk(5, 100)
    before = list(talk.messages)
    assert talk.drop_old_results(TOOLS, 100_000, 1000) == 0
    assert talk.messages == before


@given(st.integers(1, 30), st.integers(0, 3000), st.integers(500, 20_000), st.integers(0, 2000))
def test_trimming(turns: int, chars: int, window: int, output: int) -> None:
    talk = long_talk(turns, chars)
    before = list(talk.messages)
    room = int(window * MAX_WINDOW_SHARE) - output
    fitted = talk.estimate_tokens(TOOLS) <= room
    dropped = talk.drop_old_results(TOOLS, window, output)
    after = talk.messages
    assert talk.estimate_tokens(TOOLS) == tokens.estimate_request_tokens(after, TOOLS)
    assert [turn.role for turn in after] == [turn.role for turn in before]
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert dropped == len(changed) == talk.dropped_results
    assert all(before[at].role == "tool" and after[at].text == DROPPED_RESULT_NOTE for at in changed)
    assert all(after[at].call_id == before[at].call_id for at in changed), "each call keeps its answer"
    results = [at for at, turn in enumerate(before) if turn.role == "tool"]
    assert changed == results[: len(changed)], "the oldest go first"
    assert not set(changed) & set(results[-MIN_KEPT_RESULTS:]), "the last stay"
    assert not (fitted and dropped)
    if not fitted and dropped < max(0, turns - MIN_KEPT_RESULTS):
        assert talk.estimate_tokens(TOOLS) <= room * 3 // 4
    validate_conversation(after)


def test_a_trim_lasts_for_several_turns() -> None:
    """A prefix that changed at each turn could never be cached."""
    talk = long_talk(20, 1000)
    window, output = talk.estimate_tokens(TOOLS), 0
    assert talk.drop_old_results(TOOLS, window, output) > 0
    prefix = list(talk.messages)
    for number in range(3):
        call = ToolCall(f"d{number}", "list_files")
        talk.add_message(Message("assistant", "", (call,)))
        talk.add_tool_result(call, "x" * 200, False)
        assert talk.drop_old_results(TOOLS, window, output) == 0
    assert talk.messages[: len(prefix)] == prefix


# --- restoring ---------------------------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("turn"), texts, st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("say"), texts, st.just(0), st.just(0)),
    st.tuples(st.just("stop"), st.just(""), st.just(0), st.just(0)),
)


def play(steps: list[tuple[str, str, int, int]]) -> tuple[Conversation, list[Event]]:
    """A conversation as it goes live, and its events as a journal gives them back. `stop` is a crash and a resume."""
    live = Conversation([Message("system", "sys"), Message("user", "task")])
    events: list[Event] = [PromptSent("sys", "task", role="r")]

    def write(event: Event) -> None:
        events.append(make_event(event.kind, json.loads(json.dumps(event.data)), role="r"))

    for kind, text, calls, answered in steps:
        if kind == "stop":
            live = Conversation.from_events(events)
        elif kind == "say":
            live.add_user_text(text)
            write(MessageSent(text))
        else:
            tool_calls = tuple(ToolCall(f"call_{at}", "list_files", {"n": at}) for at in range(calls))
            live.add_reply(text, tool_calls)
            write(ReplyReceived(text, tool_calls))
            done = tool_calls if answered >= calls else tool_calls[:answered]
            for call in done:
                write(ToolCalled(call.id, call.name, call.arguments))
                live.add_tool_result(call, text * 2, at_fault(call))
                write(ToolReturned(call.id, call.name, text * 2, at_fault(call)))
            if len(done) < len(tool_calls):  # killed between two calls: only a resume goes on from here
                live = Conversation.from_events(events)
    return live, events


def at_fault(call: ToolCall) -> bool:
    return call.id.endswith("1")


@given(st.lists(STEP, max_size=14))
def test_a_restored_conversation_is_the_live_one(steps: list[tuple[str, str, int, int]]) -> None:
    live, events = play(steps)
    restored = Conversation.from_events(events)
    assert restored.messages == live.messages
    assert restored.find_unanswered_calls() == []
    validate_conversation(restored.messages)


def test_a_call_without_a_result_is_told_of_the_interruption() -> None:
    calls = (ToolCall("a", "run_script", {"command": "sleep 9"}),)
    events = [PromptSent("s", "t", role="r"), ReplyReceived("", calls, role="r")]
    restored = Conversation.from_events(events)
    assert restored.messages[-1].role == "tool"
    assert restored.messages[-1].is_error
    assert "interrupted" in restored.messages[-1].text


def test_a_run_that_is_interrupted_twice_stays_sound() -> None:
    """The note of the first resume is in no journal: the second has to put it into the same place."""
    calls = (ToolCall("a", "list_files"), ToolCall("b", "list_files"))
    events: list[Event] = [PromptSent("s", "t"), ReplyReceived("", calls), ToolReturned("a", "list_files", "x")]
    once = Conversation.from_events(events).messages
    events.append(ReplyReceived("going on"))
    twice = Conversation.from_events(events).messages
    assert twice == [*once, Message("assistant", "going on")]
    validate_conversation(twice)
