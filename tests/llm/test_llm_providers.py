"""The real SDKs against a server that misbehaves; both wires."""

from __future__ import annotations

import json
import traceback
from itertools import pairwise
from typing import Any

import pytest
from llm_server import Answer as answer
from llm_wires import CANARY, START, TOOLS, OpenAIWire, both

from m3b.errors import Authentication, BadRequest, ContextOverflow, LLMError, RunCancelled, Transient
from m3b.llm import LLMRequest
from m3b.llm.base import LLM
from m3b.messages import Message, ToolCall


@both
def test_an_answer_is_read_and_priced(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(answer(wire.text("hello")))
    llm = wire.llm(provider.url, clock.retry())
    assert isinstance(llm, LLM)
    reply = llm.ask(LLMRequest(START, TOOLS))
    assert (reply.text, reply.calls, reply.stop, reply.model) == ("hello", (), "end", "m-1")
    usage = reply.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.requests) == (100, 60, 7, 1)
    assert usage.cost_usd == pytest.approx((40 * 1.0 + 60 * 0.1 + 7 * 10.0) / 1e6)
    request = provider.requests[0]
    assert request["model"] == "m"
    assert request["max_tokens"] == 100
    assert not request.get("stream")


@both
def test_parallel_calls_there_and_back(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(
        answer(wire.calls(("a1", "list_files", '{"path": "data"}'), ("a2", "read_files", "{}"))),
        answer(wire.text("done")),
    )
    llm = wire.llm(provider.url, clock.retry())
    reply = llm.ask(LLMRequest(START, TOOLS))
    assert reply.stop == "tools"
    assert reply.calls == (ToolCall("a1", "list_files", {"path": "data"}), ToolCall("a2", "read_files", {}))
    talk = [
        *START,
        reply.to_message(),
        Message("tool", "x.png", call_id="a1"),
        Message("tool", "no such file", call_id="a2", is_error=True),
        Message("user", "Go on."),
    ]
    assert llm.ask(LLMRequest(talk, TOOLS)).text == "done"
    sent = provider.requests[1]["messages"]
    if wire is OpenAIWire:
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool", "user"]
        assert json.loads(sent[2]["tool_calls"][0]["function"]["arguments"]) == {"path": "data"}
        assert sent[4] == {"role": "tool", "tool_call_id": "a2", "content": "Error: no such file"}
    else:
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
        assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "tool_result", "text"]
        assert sent[2]["content"][1]["is_error"] is True


@both
def test_transient_trouble_is_waited_out(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(
        answer(wire.error("slow down"), status=429, headers={"Retry-After": "20"}),
        answer(wire.error("slow down"), status=429),
        answer(wire.error("overloaded"), status=529),
        answer(wire.error("oops"), status=500),
        answer(b"<html>bad gateway</html>", status=502, headers={"Content-Type": "text/html"}),
        answer(drop=True),
        answer(b'{"id": "1", "choi'),
        answer({"id": "1", "object": "x", "choices": [], "content": None}),
        answer(wire.text("at last")),
    )
    waits: list[tuple[str, float]] = []
    reply = wire.llm(provider.url, clock.retry()).ask(
        LLMRequest(START, TOOLS, on_wait=lambda *wait: waits.append(wait))
    )
    assert reply.text == "at last"
    assert len(waits) == 8
    assert 20 <= waits[0][1] <= 21
    assert "slow down" in waits[0][0]
    assert waits[3][1] < waits[4][1]  # the second server error in a row
    assert sum(clock.slept) == pytest.approx(sum(seconds for _, seconds in waits))


@both
def test_patience_ends(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(answer(wire.error("slow"), status=429, headers={"Retry-After": "7200"}))
    with pytest.raises(Transient, match="resume the run later") as caught:
        wire.llm(provider.url, clock.retry()).ask(LLMRequest(START))
    assert caught.value.retry_after == 7200
    assert clock.slept == []


@both
@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "bad key", Authentication),
        (403, "no access", Authentication),
        (404, "no such model", BadRequest),
        (400, "This model's maximum context length is 8192 tokens, however you requested 9000", ContextOverflow),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", ContextOverflow),
        (400, "input length and `max_tokens` exceed context limit: 1 + 2 > 2", ContextOverflow),
        (400, "the request exceeds the available context size (4096 tokens)", ContextOverflow),
        (413, "Request exceeds the maximum size", ContextOverflow),
        (429, "Request too large for m on tokens per min (TPM): Limit 30000, Requested 40000", ContextOverflow),
        (400, "Your credit balance is too low to access the API", BadRequest),
        (400, "tools.0.name: invalid", BadRequest),
    ],
)
def test_final_trouble_is_not_retried(
    wire: Any, provider: Any, clock: Any, status: int, message: str, kind: type[LLMError]
) -> None:
    provider.will(answer(wire.error(message), status=status))
    with pytest.raises(kind, match="HTTP"):
        wire.llm(provider.url, clock.retry()).ask(LLMRequest(START, TOOLS))
    assert len(provider.requests) == 1


@both
@pytest.mark.parametrize("status", [400, 401, 429])
def test_the_key_is_nowhere(wire: Any, provider: Any, clock: Any, status: int) -> None:
    error_body = wire.error(f"Incorrect API key provided: {CANARY}; header Bearer {CANARY}")
    provider.will(answer(error_body, status=status))
    llm = wire.llm(provider.url, clock.retry(total_s=0.0))
    with pytest.raises(LLMError) as caught:
        llm.ask(LLMRequest(START, TOOLS))
    assert any(CANARY in value for value in provider.headers[0].values())
    error: BaseException | None = caught.value
    exposed_text = "".join(traceback.format_exception(caught.value)) + repr(llm) + str(vars(llm)) + repr(caught.value)
    exposed_text += str(vars(llm._wire))
    while error is not None:
        exposed_text += repr(error) + str(vars(error))
        error = error.__cause__ or error.__context__
    assert CANARY not in exposed_text
    assert "SOME_KEY" in exposed_text


@both
def test_a_slow_provider_can_be_left(wire: Any, provider: Any, clock: Any) -> None:
    """The provider answers after ten minutes: nobody waits for it who has asked to stop."""
    provider.will(answer(wire.text("late"), delay=600.0))
    polls: list[bool] = []

    def cancelled() -> bool:
        polls.append(len(polls) > 2)
        return polls[-1]

    with pytest.raises(RunCancelled):
        wire.llm(provider.url, clock.retry()).ask(LLMRequest(START, is_cancelled=cancelled))
    assert len(polls) > 2, "it is asked again and again while the provider is slow"


@both
def test_a_timeout_is_transient(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(answer(wire.text("late"), delay=600.0), answer(wire.text("in time")))
    llm = wire.llm(provider.url, clock.retry(), timeout_s=1.0)
    assert llm.ask(LLMRequest(START)).text == "in time"
    assert len(clock.slept) > 0


@both
def test_the_prefix_is_stable(wire: Any, provider: Any, clock: Any) -> None:
    """What was sent once is sent again byte for byte, but for the moving cache marks."""

    def strip_cache_marks(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip_cache_marks(item) for key, item in value.items() if key != "cache_control"}
        return [strip_cache_marks(item) for item in value] if isinstance(value, list) else value

    talk = list(START)
    llm = wire.llm(provider.url, clock.retry())
    for turn in range(4):
        provider.will(answer(wire.calls((f"c{turn}", "list_files", '{"path": "ä", "n": [1, 2.5, null]}'))))
        reply = llm.ask(LLMRequest(talk, TOOLS))
        talk += [reply.to_message(), Message("tool", f"result {turn}", call_id=f"c{turn}")]
    sent = [
        json.dumps(strip_cache_marks(request["messages"]), ensure_ascii=False)[:-1] for request in provider.requests
    ]
    for shorter, longer in pairwise(sent):
        assert longer.startswith(shorter)
    assert len({json.dumps(request["tools"]) for request in provider.requests}) == 1


@both
def test_broken_turns_are_replayed_validly(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(answer(wire.text("ok")))
    bad = ToolCall("id with spaces/1", "functions.list files", {"x": "\ud800"}, "no JSON")
    also = ToolCall("c2", "read_files", {"x": "\ud800"})
    talk = [
        *START,
        Message("assistant", "", (bad, also)),
        Message("tool", "", call_id=bad.id, is_error=True),
        Message("tool", "lone \udfff", call_id="c2"),
        Message("assistant", "  \n"),
        Message("user", ""),
    ]
    wire.llm(provider.url, clock.retry()).ask(LLMRequest(talk, TOOLS))
    sent = provider.requests[0]["messages"]
    if wire is OpenAIWire:
        call = sent[2]["tool_calls"][0]
        assert call["function"] == {"name": "functions_list_files", "arguments": "{}"}
        assert call["id"] == sent[3]["tool_call_id"] == "id_with_spaces_1"
        assert all(message["content"] for message in sent[3:])
    else:
        call = sent[1]["content"][0]
        assert (call["name"], call["input"]) == ("functions_list_files", {})
        assert call["id"] == sent[2]["content"][0]["tool_use_id"] == "id_with_spaces_1"
        assert all(block.get("text", "x").strip() for turn in sent for block in turn["content"])


@both
def test_an_impossible_conversation_is_refused_before_it_is_sent(wire: Any, provider: Any, clock: Any) -> None:
    talk = [*START, Message("assistant", "", (ToolCall("a", "x"),)), Message("user", "well?")]
    with pytest.raises(BadRequest, match="before the calls"):
        wire.llm(provider.url, clock.retry()).ask(LLMRequest(talk, TOOLS))
    assert provider.requests == []
