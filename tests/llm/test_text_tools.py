"""Models without a protocol for tools, or with one that they keep badly."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from m3b.llm import ModelFacts, connect
from m3b.llm.text_tools import (
    ANNOUNCED_CALL_REMINDER,
    RepairingLLM,
    TextToolsLLM,
    adapt_tools,
    find_announced_tool,
    to_text_messages,
)
from m3b.messages import Message, Reply, ToolCall, ToolSpec, Usage
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import call, combine_calls, malformed_call, say

TOOLS = (
    ToolSpec("list_files", "Lists.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("run_script", "Runs.", {"type": "object", "properties": {"command": {"type": "string"}}}),
)
START = [Message("system", "You are a tester."), Message("user", "Go.")]
TEXT_CALL = '<call tool="list_files">\n{"path": "data"}\n</call>'


def test_a_conversation_in_text() -> None:
    model = ScriptedModel([f"I look.\n\n{TEXT_CALL}", "Done."])
    llm = TextToolsLLM(model)
    reply = llm.ask(START, TOOLS)
    assert (reply.text, reply.stop) == ("I look.", "tools")
    (tool_call,) = reply.calls
    assert (tool_call.name, tool_call.arguments) == ("list_files", {"path": "data"})
    talk = [*START, reply.to_message(), Message("tool", "x.png", call_id=tool_call.id), Message("user", "Go on.")]
    assert llm.ask(talk, TOOLS).text == "Done."
    (first, offered), (second, _) = model.requests
    assert offered == ()
    assert [message.role for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first
    assert all(json.dumps(tool.parameters, separators=(",", ":")) in first[0].text for tool in TOOLS)
    assert second[2].text == f"I look.\n\n{TEXT_CALL}"
    assert second[3].text == '<result tool="list_files">\nx.png\n</result>\n\nGo on.'


def test_the_prefix_stays_the_same_to_the_byte() -> None:
    talk = [*START]
    transcripts: list[list[Message]] = []
    for number in range(4):
        transcripts.append(to_text_messages(talk, TOOLS))
        talk += [Message("assistant", "", (ToolCall(f"c{number}", "list_files", {"path": str(number)}),))]
        talk += [Message("tool", f"result {number}", call_id=f"c{number}")]
    for before, after in pairwise(transcripts):
        assert after[: len(before)] == before


def test_several_results_are_one_turn_and_errors_are_marked() -> None:
    turn = combine_calls(call("list_files", path="a"), call("run_script", command="b"))
    calls = tuple(ToolCall(f"c{n}", tool_call.name, tool_call.arguments) for n, tool_call in enumerate(turn.calls))
    talk = [*START, Message("assistant", "", calls), Message("tool", "1", call_id="c0")]
    talk += [Message("tool", "no", call_id="c1", is_error=True)]
    last = to_text_messages(talk, TOOLS)[-1]
    assert last.role == "user"
    assert last.text == (
        '<result tool="list_files">\n1\n</result>\n\n<result tool="run_script" error="true">\nno\n</result>'
    )


def test_a_malformed_call_does_not_poison_what_follows() -> None:
    model = ScriptedModel(['<call tool="run_script">\n{"command": "pyth', "Done."])
    llm = TextToolsLLM(model)
    reply = llm.ask(START, TOOLS)
    assert reply.calls[0].parse_error
    llm.ask([*START, reply.to_message(), Message("tool", reply.calls[0].parse_error, call_id=reply.calls[0].id)], TOOLS)
    replayed_text = model.requests[1][0][2].text
    assert replayed_text == '<call tool="run_script">\n{}\n</call>'


def test_ids_are_never_used_twice() -> None:
    llm = TextToolsLLM(ScriptedModel([f"{TEXT_CALL}\n{TEXT_CALL}"], repeat=True))
    talk, ids = [*START], set()
    for _ in range(4):
        reply = llm.ask(talk, TOOLS)
        assert len(reply.calls) == 2
        ids |= {tool_call.id for tool_call in reply.calls}
        talk += [reply.to_message(), *(Message("tool", "x", call_id=tool_call.id) for tool_call in reply.calls)]
    assert len(ids) == 8


@pytest.mark.parametrize("wrapper", [RepairingLLM, TextToolsLLM])
def test_an_announced_call_is_asked_for_once_and_leaves_no_trace(wrapper: Any) -> None:
    usage = Usage(10, 0, 5, 1)
    model = ScriptedModel([Reply("I will now call list_files on data.", usage=usage), Reply(TEXT_CALL, usage=usage)])
    llm = wrapper(model)
    reply = llm.ask(START, TOOLS)
    assert [tool_call.name for tool_call in reply.calls] == ["list_files"]
    assert reply.usage == Usage(20, 0, 10, 2)
    messages = model.requests[1][0]
    assert messages[-1].text.startswith(ANNOUNCED_CALL_REMINDER[:40])
    assert "list_files" in messages[-1].text
    assert reply.text == ""


def test_what_is_announced_twice_is_a_closing_reply() -> None:
    model = ScriptedModel(["I will call list_files.", "I will call list_files again."])
    assert RepairingLLM(model).ask(START, TOOLS).text == "I will call list_files."
    model = ScriptedModel(["I will call list_files.", "The index is written."])
    assert RepairingLLM(model).ask(START, TOOLS).text == "The index is written."


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("Next, I'll use run_script to train.", "run_script"),
        ("Let me look around with list_files first.", "list_files"),
        ("I used run_script to train; the model is exported.", ""),
        ("The index holds 306 cases.", ""),
        ('{"plan": "I will call run_script"}', ""),
        ("I will now train the model.", ""),
    ],
)
def test_what_announces_a_call(text: str, tool: str) -> None:
    assert find_announced_tool(say(text), TOOLS) == tool


def test_calls_by_the_protocol_go_through_as_they_are() -> None:
    scripted_reply = combine_calls(call("list_files", path="a"), text="list_files(path='b')")
    reply = RepairingLLM(ScriptedModel([scripted_reply])).ask(START, TOOLS)
    assert [tool_call.arguments for tool_call in reply.calls] == [{"path": "a"}]
    broken = RepairingLLM(ScriptedModel([malformed_call("run_script")])).ask(START, TOOLS)
    assert broken.calls[0].parse_error


def test_a_cut_reply_stays_cut() -> None:
    reply = TextToolsLLM(ScriptedModel([Reply(f"{TEXT_CALL}\nAnd", stop="length")])).ask(START, TOOLS)
    assert reply.stop == "length"
    assert reply.calls


def test_the_way_is_chosen_by_facts_and_wish() -> None:
    native, text_only = ScriptedModel(), ScriptedModel(facts=ModelFacts(tools=False))
    assert adapt_tools(native, "auto") is native
    assert isinstance(adapt_tools(native, "auto", repairs=True), RepairingLLM)
    assert isinstance(adapt_tools(text_only, "auto"), TextToolsLLM)
    assert adapt_tools(text_only, "native") is text_only
    assert isinstance(adapt_tools(native, "text"), TextToolsLLM)
    assert adapt_tools(wrapped := adapt_tools(native, "text"), "text") is wrapped
    assert adapt_tools(native, "text").name == native.name


def test_connect_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert not isinstance(connect("openai:gpt-4o"), RepairingLLM | TextToolsLLM)
    assert isinstance(connect("openai:m@http://127.0.0.1:9/v1"), RepairingLLM)
    assert isinstance(connect("openai:m@http://127.0.0.1:9/v1", tools="text"), TextToolsLLM)
    assert not isinstance(connect("openai:m@http://127.0.0.1:9/v1", tools="native"), RepairingLLM | TextToolsLLM)
    assert isinstance(connect(lambda messages, tools: "x", tools="text"), TextToolsLLM)
    assert type(connect("rules", tools="text")).__name__ == "RulesLLM"
