"""What is particular to each wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llm_server import Answer as answer
from llm_wires import START, TOOLS, AnthropicWire, OpenAIWire

from m3b.errors import BadRequest
from m3b.llm import LLMRequest
from m3b.messages import Message, ToolCall


def test_openai_broken_arguments_become_a_parse_error(provider: Any, clock: Any) -> None:
    body = OpenAIWire.calls(("a", "list_files", '{"path": "da'), ("b", "read_files", '```json\n{"x": 1}\n```'))
    provider.will(answer(body))
    first, second = OpenAIWire.llm(provider.url, clock.retry()).ask(LLMRequest(START, TOOLS)).calls
    assert first.arguments == {}
    assert "ends too early" in first.parse_error
    assert (second.arguments, second.parse_error) == ({"x": 1}, "")


def test_openai_ids_are_made_unique(provider: Any, clock: Any) -> None:
    provider.will(answer(OpenAIWire.calls(("", "list_files", "{}"), ("same", "list_files", "{}"))))
    talk = [*START, Message("assistant", "", (ToolCall("same", "x"),)), Message("tool", "y", call_id="same")]
    ids = [call.id for call in OpenAIWire.llm(provider.url, clock.retry()).ask(LLMRequest(talk, TOOLS)).calls]
    assert len({*ids, "same", ""}) == 4


@pytest.mark.parametrize(("finish", "stop"), [("length", "length"), ("content_filter", "refusal"), ("stop", "end")])
def test_openai_stops(provider: Any, clock: Any, finish: str, stop: str) -> None:
    body = OpenAIWire.text("so")
    body["choices"][0]["finish_reason"] = finish
    provider.will(answer(body))
    assert OpenAIWire.llm(provider.url, clock.retry()).ask(LLMRequest(START)).stop == stop


def test_openai_without_usage_is_estimated(provider: Any, clock: Any) -> None:
    body = OpenAIWire.text("so")
    del body["usage"]
    provider.will(answer(body))
    usage = OpenAIWire.llm(provider.url, clock.retry()).ask(LLMRequest(START, TOOLS)).usage
    assert usage.input_tokens > 20
    assert usage.output_tokens > 0


def test_openai_html_in_place_of_json(provider: Any, clock: Any) -> None:
    provider.will(answer(b"<html>welcome</html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(BadRequest, match="/v1"):
        OpenAIWire.llm(provider.url, clock.retry()).ask(LLMRequest(START))


def test_openai_adapts_to_what_a_model_refuses(provider: Any, clock: Any) -> None:
    no_limit = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    no_tools = "Function tools with reasoning_effort are not supported. Use /v1/responses or set it to 'none'."
    provider.will(
        answer(OpenAIWire.error(no_limit), status=400),
        answer(OpenAIWire.error(no_tools), status=400),
        answer(OpenAIWire.text("a")),
        answer(OpenAIWire.text("b")),
    )
    llm = OpenAIWire.llm(provider.url, clock.retry())
    assert llm.ask(LLMRequest(START, TOOLS)).text == "a"
    assert llm.ask(LLMRequest(START, TOOLS)).text == "b"
    last = provider.requests[3]
    assert (last["max_completion_tokens"], last["reasoning_effort"], last.get("max_tokens")) == (100, "none", None)


def test_openai_extras_go_back(provider: Any, clock: Any) -> None:
    body = OpenAIWire.calls(("a", "list_files", "{}"), reasoning_content="hm")
    body["choices"][0]["message"]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "s"}}
    provider.will(answer(body), answer(OpenAIWire.text("ok")))
    llm = OpenAIWire.llm(provider.url, clock.retry())
    reply = llm.ask(LLMRequest(START, TOOLS))
    llm.ask(LLMRequest([*START, reply.to_message(), Message("tool", "x", call_id="a")], TOOLS))
    turn = provider.requests[1]["messages"][2]
    assert turn["reasoning_content"] == "hm"
    assert turn["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}


def test_anthropic_marks_four_places_for_the_cache(provider: Any, clock: Any) -> None:
    provider.will(answer(AnthropicWire.text("ok")))
    talk = [*START]
    for turn in range(3):
        talk += [Message("assistant", "", (ToolCall(f"c{turn}", "x"),)), Message("tool", "r", call_id=f"c{turn}")]
    AnthropicWire.llm(provider.url, clock.retry()).ask(LLMRequest(talk, TOOLS))
    request = provider.requests[0]
    assert json.dumps(request).count("cache_control") == 4
    assert "cache_control" in request["tools"][-1]
    assert "cache_control" in request["system"][-1]
    assert ["cache_control" in turn["content"][-1] for turn in request["messages"]][-3:] == [True, False, True]


def test_anthropic_cache_writes_are_priced(provider: Any, clock: Any) -> None:
    body = AnthropicWire.text("ok")
    body["usage"] = {"input_tokens": 10, "cache_creation_input_tokens": 80, "output_tokens": 0}
    provider.will(answer(body))
    usage = AnthropicWire.llm(provider.url, clock.retry()).ask(LLMRequest(START)).usage
    assert (usage.input_tokens, usage.cached_tokens) == (90, 0)
    assert usage.cost_usd == pytest.approx((10 + 80 * 1.25) / 1e6)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "end"),
    ],
)
def test_anthropic_stops(provider: Any, clock: Any, reason: str, stop: str) -> None:
    body = AnthropicWire.text("so")
    body["stop_reason"] = reason
    provider.will(answer(body))
    assert AnthropicWire.llm(provider.url, clock.retry()).ask(LLMRequest(START)).stop == stop


def test_anthropic_a_cut_call_is_not_run(provider: Any, clock: Any) -> None:
    provider.will(answer(AnthropicWire.calls(("a", "x", "{}"), ("b", "x", '{"path": "t"}'), finish="max_tokens")))
    first, second = AnthropicWire.llm(provider.url, clock.retry()).ask(LLMRequest(START, TOOLS)).calls
    assert first.parse_error == ""
    assert second.arguments == {}
    assert "output limit" in second.parse_error


THINKING_BLOCK = {"type": "thinking", "thinking": "hm", "signature": "s1"}


def test_anthropic_thoughts_go_back_until_something_is_edited(provider: Any, clock: Any) -> None:
    provider.will(
        answer(AnthropicWire.calls(("a", "list_files", "{}"), before=[THINKING_BLOCK])),
        answer(AnthropicWire.text("ok")),
        answer(AnthropicWire.text("ok")),
    )
    llm = AnthropicWire.llm(provider.url, clock.retry())
    reply = llm.ask(LLMRequest(START, TOOLS))
    later_turns = [reply.to_message(), Message("tool", "x", call_id="a")]
    llm.ask(LLMRequest([*START, *later_turns], TOOLS))
    llm.ask(LLMRequest([START[0], Message("user", "Go, shortened."), *later_turns], TOOLS))
    kinds = [[block["type"] for block in request["messages"][1]["content"]] for request in provider.requests[1:]]
    assert kinds == [["thinking", "tool_use"], ["tool_use"]]
    assert provider.requests[1]["messages"][1]["content"][0] == THINKING_BLOCK


def test_anthropic_refused_thoughts_are_forgotten(provider: Any, clock: Any) -> None:
    provider.will(
        answer(AnthropicWire.calls(("a", "list_files", "{}"), before=[THINKING_BLOCK])),
        answer(AnthropicWire.error("thinking blocks cannot be replayed here"), status=400),
        answer(AnthropicWire.text("ok")),
    )
    llm = AnthropicWire.llm(provider.url, clock.retry())
    reply = llm.ask(LLMRequest(START, TOOLS))
    assert llm.ask(LLMRequest([*START, reply.to_message(), Message("tool", "x", call_id="a")], TOOLS)).text == "ok"


def test_no_money_is_not_a_rate_limit(provider: Any, clock: Any) -> None:
    provider.will(answer(OpenAIWire.error("You exceeded your current quota", "insufficient_quota"), status=429))
    with pytest.raises(BadRequest, match="billing"):
        OpenAIWire.llm(provider.url, clock.retry()).ask(LLMRequest(START))
