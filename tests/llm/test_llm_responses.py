"""OpenAI's responses protocol: when it is spoken, and what goes out on it."""

from __future__ import annotations

from typing import Any

import pytest

from m3b.errors import Transient
from m3b.llm import LLM, LLMRequest, ModelFacts, registry
from m3b.llm.keys import Key
from m3b.llm.retry import Retry
from m3b.llm.wire_responses import ResponsesWire
from m3b.messages import Message, ToolCall, ToolSpec
from m3b.testing.conformance import DIALECTS, Clock, Server, ServerAnswer

CHAT, RESPONSES = DIALECTS["openai"], DIALECTS["openai-responses"]
TOOLS = [ToolSpec("list_files", "Lists.", {"type": "object", "properties": {}})]
START = [Message("system", "s"), Message("user", "Go.")]
FACTS = ModelFacts(window=1000, max_output=100, price_in=1.0, price_cached=0.1, price_out=10.0)


def model(server: Server, wire: str = "") -> LLM:
    clock = Clock()
    facts = ModelFacts(window=1000, max_output=100, wire=wire)
    retry = Retry(sleep=clock.sleep, clock=clock)
    return registry.open_provider("openai", "m", server.url + "/v1", retry, key=Key("sk-x12345", "K"), facts=facts)


def test_the_facts_decide() -> None:
    with Server() as server:
        server.queue_answers(ServerAnswer(RESPONSES.text("ok")))
        assert model(server, "responses").ask(LLMRequest(START, TOOLS)).text == "ok"
        (request,) = server.requests
    body = request.body
    assert request.path == "/v1/responses"
    assert (body["instructions"], body["max_output_tokens"], body["store"]) == ("s", 100, False)
    assert body["tools"][0]["name"] == "list_files"
    assert body["tools"][0]["strict"] is False


@pytest.mark.parametrize(
    "message",
    [
        "This model is only supported in v1/responses and not in v1/chat/completions.",
        "This is not a chat model. Use v1/responses instead",
    ],
)
@pytest.mark.parametrize("status", [400, 404])
def test_a_model_that_is_served_nowhere_else_is_found_out(message: str, status: int) -> None:
    with Server() as server:
        server.queue_answers(
            ServerAnswer(CHAT.error(message), status=status),
            ServerAnswer(RESPONSES.text("a")),
            ServerAnswer(RESPONSES.text("b")),
        )
        llm = model(server)
        assert [llm.ask(LLMRequest(START, TOOLS)).text for _ in range(2)] == ["a", "b"]
        paths = [request.path for request in server.requests]
    assert paths == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]


def test_encrypted_reasoning_goes_back_with_its_calls_and_only_with_them() -> None:
    body = RESPONSES.calls(("a1", "list_files", "{}"))
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    body["output"] = [reasoning, {"type": "reasoning", "id": "rs_2", "summary": []}, *body["output"]]
    with Server() as server:
        server.queue_answers(ServerAnswer(body), ServerAnswer(RESPONSES.text("done")))
        llm = model(server, "responses")
        reply = llm.ask(LLMRequest(START, TOOLS))
        llm.ask(LLMRequest([*START, reply.to_message(), Message("tool", "x", call_id="a1")], TOOLS))
        items = server.requests[1].body["input"]
    assert items[1] == reasoning
    assert [item.get("type") for item in items] == [None, "reasoning", "function_call", "function_call_output"]


def test_turns() -> None:
    talk = [
        *START,
        Message("assistant", "I look.", (ToolCall("a", "list_files", {"path": "ä"}), ToolCall("b", "x", {}, "bad"))),
        Message("tool", "", call_id="a"),
        Message("tool", "gone", call_id="b", is_error=True),
        Message("assistant", ""),
    ]
    body = ResponsesWire("m").to_body(LLMRequest(talk), FACTS)
    items = body["input"]
    assert items[1] == {"role": "assistant", "content": "I look."}
    assert items[2]["arguments"] == '{"path": "ä"}'
    assert items[3]["arguments"] == "{}"
    assert [item["output"] for item in items[4:6]] == ["(empty)", "Error: gone"]
    assert items[6]["content"]
    assert "tools" not in body


def test_failures_within_a_response() -> None:
    failed: Any = {**RESPONSES.empty(), "status": "failed", "error": {"code": "server_error", "message": "oops"}}
    with pytest.raises(Transient, match="oops") as caught:
        ResponsesWire("m").to_reply(failed, LLMRequest(START), FACTS)
    assert caught.value.kind == "server error"
    with pytest.raises(Transient, match="no output"):
        ResponsesWire("m").to_reply(RESPONSES.empty(), LLMRequest(START), FACTS)


def test_a_reply_of_nothing_but_reasoning_that_was_cut() -> None:
    body = {**RESPONSES.text("", stop="length"), "output": []}
    reply = ResponsesWire("m").to_reply(body, LLMRequest(START), FACTS)
    assert (reply.stop, reply.text) == ("length", "")
    assert reply.usage.cost_usd == pytest.approx((40 + 60 * 0.1 + 70) / 1e6)


def test_ids_that_repeat_are_made_unique() -> None:
    body = RESPONSES.calls(("a", "list_files", "{}"), ("a", "list_files", '{"path": "da'))
    earlier_turns = [Message("assistant", "", (ToolCall("a", "list_files"),)), Message("tool", "x", call_id="a")]
    reply = ResponsesWire("m").to_reply(body, LLMRequest([*START, *earlier_turns]), FACTS)
    assert len({"a", *(call.id for call in reply.calls)}) == 3
    assert "ends too early" in reply.calls[1].parse_error
