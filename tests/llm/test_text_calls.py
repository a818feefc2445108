"""Calls that stand in a model's text: what counts as one, and what does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.errors import UsageError
from m3b.llm import CallableLLM, LLMRequest, ModelFacts, connect
from m3b.llm.text_calls import ANNOUNCED_CALL_REMINDER, RepairingLLM, find_announced_tool, find_calls
from m3b.messages import Message, Reply, ToolSpec, Usage
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import call, combine_calls, malformed_call, say

TOOLS = [
    ToolSpec("list_files", "", {"properties": {"path": {}, "depth": {}}}),
    ToolSpec("run_script", "", {"properties": {"command": {}, "wait_s": {}}}),
    ToolSpec("write_files", "", {"properties": {"files": {}}}),
]
LIST = ("list_files", {"path": "data"})
START = [Message("system", "You are a tester."), Message("user", "Go.")]
TEXT_CALL = '<function=list_files>\n{"path": "data"}\n</function>'


def calls(text: str) -> list[tuple[str, dict[str, object]]]:
    return [(call.name, call.arguments) for call in find_calls(text, TOOLS)[1]]


@pytest.mark.parametrize(
    "text",
    [
        'I look first.\n<function="list_files">\n{"path": "data"}',  # never closed, yet complete
        "<function=list_files>{'path': 'data'}</function>",
        '<function=list_files>```json\n{"path": "data"}\n```</function>',
        '<tool_call>\n{"name": "list_files", "arguments": {"path": "data"}}\n</tool_call>',
        '<tool_call>{"name": "list_files", "arguments": "{\\"path\\": \\"data\\"}"}</tool_call>',
        '<function=list_files>{"path": "data"}</function>',
        '[TOOL_CALLS] [{"name": "list_files", "arguments": {"path": "data"}}]',
        'Sure:\n```json\n{"name": "list_files", "arguments": {"path": "data"}}\n```\nThat will do.',
        '```tool\n{"tool": "list_files", "args": {"path": "data"}}\n```',
        '```\n{"tool": "list_files", "path": "data"}\n```',
        '```python\nlist_files(path="data")\n```',
        'list_files("data")',
        'I do this now:\nresult = list_files(\n    path="data",\n)\n',
        '{"name": "list_files", "parameters": {"path": "data"}}',
        'Here is the call:\n{"function": {"name": "list_files", "arguments": {"path": "data"}}}',
        "{'action': 'list_files', 'action_input': {'path': 'data'}}",
    ],
)
def test_one_call_in_many_forms(text: str) -> None:
    assert calls(text) == [LIST]


@pytest.mark.parametrize(
    "text",
    [
        "I ran run_script and it went well.",
        'The call run_script("python train.py") took two minutes.',
        '{"data_card": "chest", "plan": "use list_files", "classes": []}',
        '```json\n{"name": "chest", "arguments": {}}\n```',
        '```json\n{"name": "list_files"}\n```\nis what the config says'.replace("list_files", "config"),
        "```python\nprint(open('x').read())\n```",
        'list_files(path=os.environ["X"])',
        'list_files("a", 1, "too many")',
        '{"unusable": "no image opens"}',
        "",
    ],
)
def test_what_is_no_call(text: str) -> None:
    assert find_calls(text, TOOLS) == (text, [])


def test_several_calls_and_the_words_around_them() -> None:
    text = (
        'First.\n\n<function=list_files>\n{"path": "data"}\n</function>\n\n'
        '<function=run_script>\n{"command": "ls"}\n</function>\n\nThen we see.'
    )
    remaining_text, calls = find_calls(text, TOOLS)
    assert remaining_text == "First.\n\nThen we see."
    assert [(call.name, call.arguments) for call in calls] == [LIST, ("run_script", {"command": "ls"})]


@pytest.mark.parametrize(
    "text",
    [
        '<function=write_files>\n{"files": [{"path": "a.py", "content": "import to',
        '<tool_call>{"name": "write_files", "arguments": {"files": [{"path": "a.py", "content": "impo',
        '```tool_call\n{"name": "write_files", "arguments": {"files": [{"pa\n```',
    ],
)
def test_what_is_cut_is_never_completed(text: str) -> None:
    (call,) = find_calls(text, TOOLS)[1]
    assert call.name == "write_files"
    assert call.arguments == {}
    assert call.error


def test_an_unknown_name_in_plain_markup_is_answered() -> None:
    assert calls('<function=launch_rocket>{"to": "moon"}</function>') == [("launch_rocket", {"to": "moon"})]


def test_what_follows_an_invented_result_is_dropped() -> None:
    text = (
        '<function=list_files>\n{"path": "data"}\n</function>\n<tool_response>\na.png\n</tool_response>\n'
        '<function=run_script>\n{"command": "rm a.png"}\n</function>'
    )
    assert calls(text) == [LIST]
    assert "a.png" not in find_calls(text, TOOLS)[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=4), st.sampled_from([tool.name for tool in TOOLS]))
def test_what_is_written_is_read_back(arguments: dict[str, object], name: str) -> None:
    arguments = json.loads(json.dumps(arguments).encode("utf-8", "replace"))
    text = json.dumps(arguments, ensure_ascii=False)
    if "</tool_call" in text or "<tool_call>" in text:
        return
    if any("\ud800" <= letter <= "\udfff" for letter in str(arguments)):
        return
    call = f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>'
    assert calls(f"Well.\n{call}") == [(name, arguments)]


@given(st.text(max_size=200))
def test_any_text_can_be_looked_through(text: str) -> None:
    remaining_text, calls = find_calls(text, TOOLS)
    assert calls or remaining_text == text
    find_calls(f"<function={text}", TOOLS)
    find_calls(f"<tool_call>{text}", TOOLS)
    find_calls(f"```json\n{text}\n```", TOOLS)


# --- a model whose text is looked through ------------------------------------------------------------------------


def test_a_call_in_text_is_a_call() -> None:
    reply = RepairingLLM(ScriptedModel([f"I look.\n\n{TEXT_CALL}"])).ask(LLMRequest(START, TOOLS))
    assert (reply.text, reply.stop) == ("I look.", "tools")
    assert [(call.name, call.arguments) for call in reply.calls] == [LIST]


def test_ids_are_never_used_twice() -> None:
    llm = RepairingLLM(ScriptedModel([f"{TEXT_CALL}\n{TEXT_CALL}"], repeat=True))
    talk, ids = [*START], set()
    for _ in range(4):
        reply = llm.ask(LLMRequest(talk, TOOLS))
        assert len(reply.calls) == 2
        ids |= {tool_call.id for tool_call in reply.calls}
        talk += [reply.to_message(), *(Message("tool", "x", call_id=tool_call.id) for tool_call in reply.calls)]
    assert len(ids) == 8


def test_an_announced_call_is_asked_for_once_and_leaves_no_trace() -> None:
    usage = Usage(10, 0, 5, 1)
    model = ScriptedModel([Reply("I will now call list_files on data.", usage=usage), Reply(TEXT_CALL, usage=usage)])
    llm = RepairingLLM(model)
    reply = llm.ask(LLMRequest(START, TOOLS))
    assert [tool_call.name for tool_call in reply.calls] == ["list_files"]
    assert reply.usage == Usage(20, 0, 10, 2)
    messages = model.requests[1][0]
    assert messages[-1].text.startswith(ANNOUNCED_CALL_REMINDER[:40])
    assert "list_files" in messages[-1].text
    assert reply.text == ""


def test_what_is_announced_twice_is_a_closing_reply() -> None:
    model = ScriptedModel(["I will call list_files.", "I will call list_files again."])
    assert RepairingLLM(model).ask(LLMRequest(START, TOOLS)).text == "I will call list_files."
    model = ScriptedModel(["I will call list_files.", "The index is written."])
    assert RepairingLLM(model).ask(LLMRequest(START, TOOLS)).text == "The index is written."


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
    reply = RepairingLLM(ScriptedModel([scripted_reply])).ask(LLMRequest(START, TOOLS))
    assert [tool_call.arguments for tool_call in reply.calls] == [{"path": "a"}]
    broken = RepairingLLM(ScriptedModel([malformed_call("run_script")])).ask(LLMRequest(START, TOOLS))
    assert broken.calls[0].parse_error


def test_a_cut_reply_stays_cut() -> None:
    reply = RepairingLLM(ScriptedModel([Reply(f"{TEXT_CALL}\nAnd", stop="length")])).ask(LLMRequest(START, TOOLS))
    assert reply.stop == "length"
    assert reply.calls


def test_connect_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert not isinstance(connect("openai:gpt-4o"), RepairingLLM)
    assert isinstance(connect("openai:m@http://127.0.0.1:9/v1"), RepairingLLM)
    assert isinstance(connect("ollama:m"), RepairingLLM)
    assert not isinstance(connect("openai:m@http://127.0.0.1:9/v1", tools="native"), RepairingLLM)
    assert type(connect("rules")).__name__ == "RulesLLM"
    scripted = ScriptedModel()
    assert connect(scripted) is scripted


def test_a_model_without_tools_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models.json").write_text('{"ollama:m": {"window": 8000, "tools": false}}')
    monkeypatch.setenv("M3B_MODELS", str(tmp_path / "models.json"))
    without_tools = CallableLLM(lambda messages, tools: "x", name="mine", facts=ModelFacts(tools=False))
    for spec in ("ollama:m", without_tools):
        with pytest.raises(UsageError, match="takes no tool definitions"):
            connect(spec)
