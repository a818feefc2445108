"""A second model that takes over, and the kinds of trouble that are waited for differently."""

from __future__ import annotations

from typing import Any

import pytest

from m3b.errors import (
    Authentication,
    BadRequest,
    ContextOverflow,
    LLMError,
    Refused,
    RunCancelled,
    Transient,
    UsageError,
)
from m3b.llm import FallbackLLM, LLMRequest, Retry, connect
from m3b.llm.base import ModelFacts, spec_of
from m3b.llm.error_mapping import find_error_in_body, map_error
from m3b.llm.retry import RETRY_LIMITS
from m3b.messages import Message
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import llm_error, refusal_reply, transient_error

START = [Message("user", "Go.")]


@pytest.mark.parametrize(
    "trouble",
    [llm_error(Authentication), llm_error(BadRequest), llm_error(Refused), transient_error(9999.0), refusal_reply()],
)
def test_the_next_model_takes_over(trouble: Any) -> None:
    first, second = ScriptedModel([trouble], name="a"), ScriptedModel(["from b"], name="b")
    reasons: list[str] = []
    llm = FallbackLLM([first, second])
    assert llm.ask(LLMRequest(START, on_wait=lambda reason, seconds: reasons.append(reason))).text == "from b"
    assert "b takes over" in reasons[-1]
    assert llm.name == "a|b"


def test_a_dead_model_is_not_asked_again_but_one_that_declined_is() -> None:
    first = ScriptedModel([refusal_reply(), llm_error(Authentication)], name="a")
    llm = FallbackLLM([first, ScriptedModel(["1", "2", "3"], name="b")])
    assert [llm.ask(LLMRequest(START)).text for _ in range(3)] == ["1", "2", "3"]
    assert len(first.requests) == 2


def test_what_is_no_failure_goes_through() -> None:
    for trouble in (llm_error(ContextOverflow), RunCancelled("stop")):
        second = ScriptedModel(["x"])
        with pytest.raises(type(trouble)):
            FallbackLLM([ScriptedModel([trouble]), second]).ask(LLMRequest(START))
        assert second.requests == []


def test_the_last_error_and_the_last_refusal_stand() -> None:
    with pytest.raises(BadRequest, match="second"):
        FallbackLLM(
            [ScriptedModel([llm_error(BadRequest, "first")]), ScriptedModel([llm_error(BadRequest, "second")])]
        ).ask(LLMRequest(START))
    assert (
        FallbackLLM([ScriptedModel([refusal_reply()]), ScriptedModel([refusal_reply("no")])])
        .ask(LLMRequest(START))
        .stop
        == "refusal"
    )


def test_facts_are_those_at_work_within_the_smallest_window() -> None:
    big, small = (
        ModelFacts(window=1000, max_output=100, price_in=1.0),
        ModelFacts(window=500, max_output=200, price_in=2.0),
    )
    llm = FallbackLLM([ScriptedModel([llm_error()], facts=big), ScriptedModel(["x"], facts=small)])
    assert (llm.facts.window, llm.facts.max_output, llm.facts.price_in) == (500, 100, 1.0)
    llm.ask(LLMRequest(START))
    assert (llm.facts.window, llm.facts.max_output, llm.facts.price_in) == (500, 200, 2.0)


def test_specs() -> None:
    openai_spec, anthropic_spec = "openai:m@http://127.0.0.1:1/v1", "anthropic:n@http://localhost:2"
    llm = connect(f"{openai_spec}|{anthropic_spec}")
    assert isinstance(llm, FallbackLLM)
    assert spec_of(llm) == f"{openai_spec}|{anthropic_spec}"
    assert spec_of(connect(openai_spec, fallback=anthropic_spec)) == f"{openai_spec}|{anthropic_spec}"
    assert spec_of(connect(ScriptedModel(name="s"), fallback=lambda messages, tools: "x")).startswith("s|callable:")
    with pytest.raises(UsageError):
        FallbackLLM([ScriptedModel([])])
    with pytest.raises(UsageError):
        connect("openai:m@http://127.0.0.1:1/v1|")


def test_a_spec_can_be_connected_to_again_and_holds_no_password() -> None:
    llm = connect("openai:m@http://user:hidden@127.0.0.1:1/v1?key=hidden")
    assert spec_of(llm) == "openai:m@http://127.0.0.1:1/v1"
    assert spec_of(connect(spec_of(llm))) == spec_of(llm)


# --- kinds of trouble --------------------------------------------------------------------------------------------------


class SDKError(Exception):
    """An SDK's exception as far as it matters."""

    def __init__(self, status: int | None, body: Any = None, message: str = "x") -> None:
        super().__init__(message)
        self.status_code, self.body = status, body


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SDKError(429), "rate limit"),
        (SDKError(529), "overload"),
        (SDKError(503), "overload"),
        (SDKError(500), "server error"),
        (SDKError(504), "time-out"),
        (TimeoutError("x"), "time-out"),
        (ConnectionResetError("x"), "lost connection"),
        (SDKError(None, {"type": "overloaded_error", "message": "busy"}), "overload"),
        (SDKError(200, {"error": {"type": "rate_limit_error", "message": "busy"}}), "rate limit"),
        (SDKError(400, {"message": "Failed to call a function", "code": "tool_use_failed"}), "garbled answer"),
    ],
)
def test_kinds(error: Exception, kind: str) -> None:
    mapped_error = map_error(error, "m", "K")
    assert isinstance(mapped_error, Transient)
    assert mapped_error.kind == kind
    assert kind in RETRY_LIMITS


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"code": 429, "message": "busy"}}, Transient),
        ({"error": {"code": 401, "message": "no"}}, Authentication),
        ({"error": {"code": 403, "message": "requires moderation and your input was flagged"}}, Refused),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}},
            ContextOverflow,
        ),
    ],
)
def test_errors_under_a_good_status(body: Any, kind: type[LLMError]) -> None:
    assert isinstance(find_error_in_body(body, "m"), kind)
    assert find_error_in_body({"choices": []}, "m") is None
    assert find_error_in_body("text", "m") is None


def test_each_kind_has_its_own_patience() -> None:
    """Time-outs, which cost minutes each, end sooner than rate limits; mixed trouble is counted apart."""

    def tries(kinds: list[str]) -> int:
        n_requests = 0

        def request() -> None:
            nonlocal n_requests
            n_requests += 1
            raise Transient("x", 0.0, kinds[(n_requests - 1) % len(kinds)])

        with pytest.raises(Transient):
            Retry(sleep=lambda s: None, clock=lambda: 0.0, random=lambda: 0.0, total_s=1e9).run(request)
        return n_requests

    assert tries(["time-out"]) == RETRY_LIMITS["time-out"][1]
    assert tries(["rate limit"]) == RETRY_LIMITS["rate limit"][1]
    assert tries(["time-out", "overload"]) == 2 * RETRY_LIMITS["time-out"][1] - 1
