"""Calls that stand in a model's text: what counts as one, and what does not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.llm.text_calls import find_calls
from m3b.llm.text_tools import format_call
from m3b.messages import ToolCall, ToolSpec

TOOLS = [
    ToolSpec("list_files", "", {"properties": {"path": {}, "depth": {}}}),
    ToolSpec("run_script", "", {"properties": {"command": {}, "wait_s": {}}}),
    ToolSpec("write_files", "", {"properties": {"files": {}}}),
]
LIST = ("list_files", {"path": "data"})


def calls(text: str) -> list[tuple[str, dict[str, object]]]:
    return [(call.name, call.arguments) for call in find_calls(text, TOOLS)[1]]


@pytest.mark.parametrize(
    "text",
    [
        '<call tool="list_files">\n{"path": "data"}\n</call>',
        "<call tool='list_files'>{'path': 'data'}</call>",
        '<call name=list_files>```json\n{"path": "data"}\n```</call>',
        'I look first.\n<call tool="list_files">\n{"path": "data"}',  # never closed, yet complete
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
        'First.\n\n<call tool="list_files">\n{"path": "data"}\n</call>\n\n'
        '<call tool="run_script">\n{"command": "ls"}\n</call>\n\nThen we see.'
    )
    remaining_text, calls = find_calls(text, TOOLS)
    assert remaining_text == "First.\n\nThen we see."
    assert [(call.name, call.arguments) for call in calls] == [LIST, ("run_script", {"command": "ls"})]


def test_a_long_text_stands_outside_the_json() -> None:
    code = 'x = "<call tool=\\"zap\\">"\n<result tool="no">\nprint(\'{"}\')\n</call>'
    text = (
        '<call tool="write_files">\n{"files": [{"path": "a.py", "content": "@1"}, {"path": "b", "content": "@2"}]}\n'
        f'<text id="1">\n{code}\n</text>\n<text id="2">\n@1\n</text>\n</call>'
    )
    assert calls(text) == [
        ("write_files", {"files": [{"path": "a.py", "content": code + "\n"}, {"path": "b", "content": "@1\n"}]})
    ]


def test_a_text_that_is_used_nowhere_is_told() -> None:
    (call,) = find_calls('<call tool="write_files">\n{"files": []}\n<text id="1">\nx\n</text>\n</call>', TOOLS)[1]
    assert call.arguments == {}
    assert '"@1"' in call.error


@pytest.mark.parametrize(
    "text",
    [
        '<call tool="write_files">\n{"files": [{"path": "a.py", "content": "import to',
        '<tool_call>{"name": "write_files", "arguments": {"files": [{"path": "a.py", "content": "impo',
        '```tool_call\n{"name": "write_files", "arguments": {"files": [{"pa\n```',
        '<call tool="write_files">\n{"files": [{"path": "a.py", "content": "@1"}]}\n<text id="1">\nimport to',
    ],
)
def test_what_is_cut_is_never_completed(text: str) -> None:
    (call,) = find_calls(text, TOOLS)[1]
    assert call.name == "write_files"
    assert call.arguments == {}
    assert call.error


def test_an_unknown_name_in_plain_markup_is_answered() -> None:
    assert calls('<call tool="launch_rocket">{"to": "moon"}</call>') == [("launch_rocket", {"to": "moon"})]


def test_what_follows_an_invented_result_is_dropped() -> None:
    text = (
        '<call tool="list_files">\n{"path": "data"}\n</call>\n<result tool="list_files">\na.png\n</result>\n'
        '<call tool="run_script">\n{"command": "rm a.png"}\n</call>'
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
    if "</call" in text or "<call " in text or "<text " in text:
        return
    if any("\ud800" <= letter <= "\udfff" for letter in str(arguments)):
        return
    assert calls("Well.\n" + format_call(ToolCall("1", name, arguments))) == [(name, arguments)]


@given(st.text(max_size=200))
def test_any_text_can_be_looked_through(text: str) -> None:
    remaining_text, calls = find_calls(text, TOOLS)
    assert calls or remaining_text == text
    find_calls(f"<call tool={text}", TOOLS)
    find_calls(f"```json\n{text}\n```", TOOLS)
