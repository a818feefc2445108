"""Replies as they come: the same in the end as without, whatever happens on the way."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_server import Answer as answer
from llm_wires import CANARY, FACTS, START, TOOLS, AnthropicWire, OpenAIWire, both

from m3b.errors import Authentication, ContextOverflow, RunCancelled, Transient
from m3b.llm import LLMRequest, ask_llm, connect
from m3b.llm.streaming import NotStreamed, TextStream
from m3b.llm.wire_anthropic import AnthropicWire as AnthropicMessages
from m3b.llm.wire_chat import ChatWire
from m3b.messages import Message
from m3b.testing import ScriptedModel
from m3b.testing.conformance.dialects import DIALECTS
from m3b.testing.scripted_model import say

SSE = {"Content-Type": "text/event-stream"}


def event(body: dict[str, Any]) -> bytes:
    head = f"event: {body['type']}\n" if "type" in body else ""
    return f"{head}data: {json.dumps(body)}\n\n".encode()


def streamed(wire: Any, body: dict[str, Any], *, cut: int | None = None, **options: Any) -> answer:
    """The body as its server would stream it; `cut` keeps only so many events."""
    events = DIALECTS[wire.name].events(body)
    return answer(b"".join(events[:cut]), headers=SSE, **options)


def talk(wire: Any, provider: Any, clock: Any) -> tuple[Any, list[str], Any]:
    pieces: list[str] = []
    llm = wire.llm(provider.url, clock.retry())
    return llm, pieces, lambda: ask_llm(llm, START, TOOLS, on_text=pieces.append)


@both
@pytest.mark.parametrize("kind", ["text", "calls"])
def test_the_reply_is_the_same(wire: Any, provider: Any, clock: Any, kind: str) -> None:
    calls = (("a1", "list_files", '{"path": "dätä"}'), ("a2", "read_files", "{}"))
    body = wire.text("Grüße, many words.\nAnd more.") if kind == "text" else wire.calls(*calls)
    provider.will(answer(body), streamed(wire, body))
    llm, pieces, stream = talk(wire, provider, clock)
    complete_reply, reply = llm.ask(LLMRequest(START, TOOLS)), stream()
    assert reply == complete_reply
    assert "".join(pieces) == complete_reply.text
    assert not provider.requests[0].get("stream")
    assert provider.requests[1]["stream"] is True


@both
def test_a_broken_stream_is_asked_for_again_and_its_words_are_void(wire: Any, provider: Any, clock: Any) -> None:
    body = wire.text("one two three four")
    provider.will(streamed(wire, body, cut=3), streamed(wire, body))
    waits: list[Any] = []
    llm, pieces, _ = talk(wire, provider, clock)
    reply = ask_llm(llm, START, TOOLS, on_text=pieces.append, on_wait=lambda *wait: waits.append(wait))
    assert reply.text == "one two three four"
    assert len(waits) == 1
    assert "broke off" in waits[0][0]
    final_pieces = pieces[len(pieces) - pieces[::-1].index("") :] if "" in pieces else pieces
    assert "".join(final_pieces) == reply.text
    assert pieces.count("") <= 1


@both
def test_a_server_that_does_not_stream_is_asked_without(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(*[answer(wire.text("hello"))] * 3)
    _, pieces, stream = talk(wire, provider, clock)
    assert stream().text == "hello"
    assert stream().text == "hello"
    assert ["stream" in request for request in provider.requests] == [True, False, False]
    assert pieces == []


def test_older_servers_are_spared_the_wish_for_usage(provider: Any, clock: Any) -> None:
    refused = answer(OpenAIWire.error("Unrecognized request argument supplied: stream_options"), status=400)
    body = OpenAIWire.text("hello")
    del body["usage"]
    provider.will(refused, answer(OpenAIWire.error("stream is not supported with tools"), status=400), answer(body))
    _, _, stream = talk(OpenAIWire, provider, clock)
    reply = stream()
    assert reply.text == "hello"
    assert reply.usage.input_tokens > 0
    assert ["stream_options" in request for request in provider.requests] == [True, False, False]
    assert ["stream" in request for request in provider.requests] == [True, True, False]


@both
@pytest.mark.parametrize(
    ("kind", "message", "error"),
    [
        ("overloaded_error", "Overloaded", None),
        ("authentication_error", "bad key", Authentication),
        ("invalid_request_error", "prompt is too long: 300000 tokens > 200000 maximum", ContextOverflow),
    ],
)
def test_an_error_within_the_stream(wire: Any, provider: Any, clock: Any, kind: str, message: str, error: Any) -> None:
    body = wire.text("one two three")
    failure = {"type": "error", "error": {"type": kind, "message": message}}
    if wire is OpenAIWire:
        failure = {"error": failure["error"]}
    first_events = b"".join(DIALECTS[wire.name].events(body)[:3])
    provider.will(answer(first_events + event(failure), headers=SSE), streamed(wire, body))
    _, _, stream = talk(wire, provider, clock)
    if error is None:
        assert stream().text == "one two three"
        assert len(provider.requests) == 2
    else:
        with pytest.raises(error):
            stream()
        assert len(provider.requests) == 1


@both
def test_words_are_told_in_the_thread_that_asked(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(streamed(wire, wire.text("some words")))
    llm = wire.llm(provider.url, clock.retry())
    threads: set[int] = set()
    ask_llm(llm, START, TOOLS, on_text=lambda piece: threads.add(threading.get_ident()), is_cancelled=lambda: False)
    assert threads == {threading.get_ident()}


def test_a_cancelled_request_is_not_heard_any_more(provider: Any, clock: Any) -> None:
    provider.will(streamed(OpenAIWire, OpenAIWire.text("too late"), delay=0.6))
    llm, pieces, _ = talk(OpenAIWire, provider, clock)
    polls: list[int] = []

    def cancelled() -> bool:
        polls.append(1)
        return len(polls) > 1

    with pytest.raises(RunCancelled):
        ask_llm(llm, START, TOOLS, on_text=pieces.append, is_cancelled=cancelled)
    threading.Event().wait(0.8)
    assert pieces == []


def test_models_without_streams_are_asked_without() -> None:
    model = ScriptedModel([say("hello")])
    assert ask_llm(model, START, TOOLS, on_text=lambda piece: None).text == "hello"


def test_wrappers_stream_what_is_within(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.will(streamed(OpenAIWire, OpenAIWire.text("Some words.")))
    pieces: list[str] = []
    llm = connect(f"openai:m@{provider.url}/v1")
    assert ask_llm(llm, START, TOOLS, on_text=pieces.append).text == "Some words."
    assert "".join(pieces) == "Some words."


# --- putting together, without a server --------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "1", "model": "m", "object": "chat.completion.chunk", "choices": choices, **fields}


def piece(index: int | None, arguments: str, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}]}


@pytest.mark.parametrize(
    "deltas",
    [
        [piece(0, '{"path"', "a", "list_files"), piece(0, ': "x"}'), piece(1, "{}", "b", "read_files")],
        [piece(0, '{"path": "x"}', "a", "list_files"), piece(0, "{}", "b", "read_files")],  # all numbered 0
        [piece(None, '{"path": "x"}', "a", "list_files"), piece(None, "{}", "b", "read_files")],  # not numbered
        [piece(0, '{"pa', "a", "list_files"), piece(1, "{", "b", "read_files"), piece(0, 'th": "x"}'), piece(1, "}")],
        [piece(0, '{"path":', "a", "list_files"), piece(0, '"x"}', "a", "list_files"), piece(1, "", "b", "read_files")],
    ],
)
def test_servers_number_the_pieces_of_calls_in_their_own_ways(deltas: list[Any]) -> None:
    body = ChatWire("m").assemble([*map(chunk, deltas), chunk({}, "tool_calls")], TextStream(None, None))
    reply = ChatWire("m").to_reply(body, LLMRequest(START), FACTS)
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("a", "list_files", {"path": "x"}),
        ("b", "read_files", {}),
    ]


def test_thoughts_and_what_goes_with_calls_come_through() -> None:
    deltas = [{"reasoning_content": "hm"}, {"reasoning_content": "m."}, piece(0, "{}", "a", "list_files")]
    deltas[2]["tool_calls"][0]["extra_content"] = {"signature": "s"}  # type: ignore[index]
    body = ChatWire("m").assemble([*map(chunk, deltas), chunk({}, "tool_calls")], TextStream(None, None))
    wire = ChatWire("m")
    wire.to_reply(body, LLMRequest(START), FACTS)
    assert wire.extras[("a",)] == {
        "turn": {"reasoning_content": "hmm."}, "calls": {"a": {"extra_content": {"signature": "s"}}},
    }  # fmt: skip


def test_thinking_blocks_come_through() -> None:
    start = {**AnthropicWire.text(""), "content": [], "stop_reason": None}
    events = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s1"}},
        {"type": "content_block_start", "index": 1,
         "content_block": {"type": "tool_use", "id": "a", "name": "list_files", "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"pa'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'th": 1}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]  # fmt: skip
    body = AnthropicMessages("m").assemble(events, TextStream(None, None))
    assert body["content"] == [
        {"type": "thinking", "thinking": "hmm", "signature": "s1"},
        {"type": "tool_use", "id": "a", "name": "list_files", "input": {"path": 1}},
    ]
    assert body["usage"] == {**start["usage"], "output_tokens": 9}
    for cut in range(1, 9):
        with pytest.raises(Transient):
            AnthropicMessages("m").assemble(events[:cut], TextStream(None, None))
    with pytest.raises(NotStreamed):
        AnthropicMessages("m").assemble([], TextStream(None, None))


@given(st.lists(st.text(max_size=5), max_size=12), st.data())
def test_the_relay_loses_and_doubles_nothing(pieces: list[str], data: Any) -> None:
    delivered: list[str] = []
    relay = TextStream(delivered.append, None)
    text = ""
    for piece in pieces:
        if data.draw(st.booleans()):
            relay.add_piece(piece)
            text += piece
        else:
            relay.restart()
            text = ""
        if data.draw(st.booleans()):
            assert relay.poll is not None
            relay.poll()
    relay.drain()
    final_pieces = delivered[len(delivered) - delivered[::-1].index("") :] if "" in delivered else delivered
    assert "".join(final_pieces) == text


def test_a_message_without_words_tells_nothing() -> None:
    delivered: list[str] = []
    ChatWire("m").assemble([chunk({"content": ""}), chunk({}, "stop")], TextStream(delivered.append, None))
    assert delivered == []
    assert Message("user").images == ()


@both
def test_a_key_in_a_good_answer_is_cut(wire: Any, provider: Any, clock: Any) -> None:
    text = f"Your key is {CANARY}, {CANARY[:9]} is its beginning; sk-"
    body = wire.text(text)
    call = wire.calls(("a1", "list_files", json.dumps({"path": CANARY, CANARY: [CANARY]})))
    provider.will(answer(body), streamed(wire, body), answer(call))
    llm, pieces, stream = talk(wire, provider, clock)
    expected = text.replace(CANARY, "[key]")
    assert llm.ask(LLMRequest(START, TOOLS)).text == stream().text == "".join(pieces) == expected
    assert llm.ask(LLMRequest(START, TOOLS)).calls[0].arguments == {"path": "[key]", "[key]": ["[key]"]}


@given(st.lists(st.text("sk-ab", max_size=4)))
def test_a_key_is_cut_from_a_stream_however_it_is_divided(pieces: list[str]) -> None:
    chunks: list[str] = []
    stream = TextStream(chunks.append, None, "sk-sk-ab")
    for piece in pieces:
        stream.add_piece(piece)
        stream.drain()
    stream.end()
    assert "".join(chunks) == "".join(pieces).replace("sk-sk-ab", "[key]")
