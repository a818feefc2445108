"""Waiting: jitter, limits, cancellation. No real time passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_server import Clock

from m3b.errors import Authentication, BadRequest, ContextOverflow, RunCancelled, Transient
from m3b.llm import LLMRequest, registry
from m3b.llm.error_mapping import map_error, parse_retry_after, redact
from m3b.llm.retry import Retry
from m3b.messages import Message
from m3b.testing.conformance import Server, ServerAnswer, Subject, builtin_subjects


def failing(times: int, after: float | None = None) -> Callable[[], str]:
    failures_left = [times]

    def request() -> str:
        failures_left[0] -= 1
        if failures_left[0] >= 0:
            raise Transient("busy.", after)
        return "ok"

    return request


def test_waits_double_up_to_a_limit(clock: Clock) -> None:
    waits: list[float] = []
    assert clock.retry(max_wait_s=8.0).run(failing(6), lambda reason, seconds: waits.append(seconds)) == "ok"
    assert waits == pytest.approx([0.75, 1.5, 3.0, 6.0, 6.0, 6.0])


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=5, max_size=5), st.integers(1, 5))
def test_jitter_stays_within_the_upper_half(draws: list[float], times: int) -> None:
    clock, draw = Clock(), iter(draws)
    waits: list[float] = []
    retry = Retry(sleep=clock.sleep, clock=lambda: clock.now, random=lambda: next(draw))
    retry.run(failing(times), lambda reason, seconds: waits.append(seconds))
    assert all(2**n / 2 <= wait <= 2**n for n, wait in enumerate(waits))


def test_what_the_provider_asks_is_the_least(clock: Clock) -> None:
    waits: list[float] = []
    clock.retry().run(failing(2, after=90.0), lambda reason, seconds: waits.append(seconds))
    assert all(90 <= wait <= 91 for wait in waits)


def test_requests_that_are_slow_to_fail_count_in_what_is_told(clock: Clock) -> None:
    def request() -> None:
        clock.sleep(300.0)
        raise Transient("no answer within 300 s.", kind="time-out")

    with pytest.raises(Transient, match=r"Given up after 3 requests in 90\d s\."):
        clock.retry().run(request)


def test_total_limit(clock: Clock) -> None:
    with pytest.raises(Transient, match=r"Given up after \d+ requests in \d+ s, \d+ s of them waiting \(the next"):
        clock.retry(total_s=100.0).run(failing(1000))
    assert sum(clock.slept) <= 100.0


def test_attempt_limit(clock: Clock) -> None:
    with pytest.raises(Transient, match="after 3 requests"):
        clock.retry(attempts=3).run(failing(1000))


@pytest.mark.parametrize("error", [Authentication("x"), BadRequest("x"), ContextOverflow("x"), ZeroDivisionError("x")])
def test_other_errors_go_through_at_once(clock: Clock, error: Exception) -> None:
    def request() -> None:
        raise error

    with pytest.raises(type(error)):
        clock.retry().run(request)
    with pytest.raises(type(error)):
        clock.retry().run(request, is_cancelled=lambda: False)
    assert clock.slept == []


def test_cancelled_is_asked_twice_a_second_at_least(clock: Clock) -> None:
    poll_times: list[float] = []

    def cancelled() -> bool:
        poll_times.append(clock.now)
        return clock.now > 30

    with pytest.raises(RunCancelled):
        clock.retry().run(failing(10, after=300.0), is_cancelled=cancelled)
    assert clock.now < 31
    assert all(b - a <= 0.5 for a, b in pairwise(poll_times))


def test_a_clock_that_stands_still_does_not_hang() -> None:
    slept: list[float] = []
    Retry(sleep=slept.append, clock=lambda: 0.0).pause(5.0)
    assert sum(slept) == pytest.approx(5.0)


def test_retry_after_forms() -> None:
    later = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    now = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    assert parse_retry_after({"retry-after": "7"}) == 7.0
    assert parse_retry_after({"retry-after": "1.5"}) == 1.5
    assert parse_retry_after({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    assert parse_retry_after({"retry-after": format_datetime(later, usegmt=True)}, now) == pytest.approx(60.0)
    assert parse_retry_after({"retry-after": format_datetime(later, usegmt=True)}, now + 999) == 0.0
    assert parse_retry_after({"retry-after": "soon"}) is None
    assert parse_retry_after({}) is None
    assert parse_retry_after(None) is None


@given(st.text(max_size=40))
def test_retry_after_never_breaks(value: str) -> None:
    delay = parse_retry_after({"retry-after": value})
    assert delay is None or delay >= 0


def test_redaction() -> None:
    redacted = redact(
        "key sk-proj-abcdefghijkl and Bearer abcdefgh123 and my-own-secret\nand a token count", ["my-own-secret"]
    )
    assert redacted == "key [key] and Bearer [key] and [key] and a token count"
    assert len(redact("x" * 10_000)) < 700
    assert redact("the key_value_store api-design task-specific") == "the key_value_store api-design task-specific"


def test_foreign_exceptions_are_left_alone() -> None:
    assert map_error(ZeroDivisionError("x"), "m", "K") is None
    assert isinstance(map_error(TimeoutError("x"), "m", "K"), Transient)
    assert isinstance(map_error(ConnectionResetError("x"), "m", "K"), Transient)


# --- servers that are not there ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_server_that_is_down_is_given_up_within_seconds(name: str, clock: Clock, closed_port: int) -> None:
    address = f"http://127.0.0.1:{closed_port}/v1"
    llm = registry.open_provider(name, "m", f"http://u:hidden@127.0.0.1:{closed_port}/v1", clock.retry())
    with pytest.raises(Transient, match=rf"no connection to {re.escape(address)} \(Connection refused\)") as caught:
        llm.ask(LLMRequest([Message("user", "Go.")]))
    assert caught.value.kind == "unreachable"
    assert sum(clock.slept) < 5, "seconds of waiting, by a clock that only waiting moves"
    assert "hidden" not in str(caught.value)
    assert re.search(r"Given up after 3 requests in \d s\. Nothing is lost", str(caught.value))


@pytest.mark.parametrize("subject", builtin_subjects()[:3], ids=lambda subject: subject.name)
def test_a_server_that_has_answered_is_waited_for(subject: Subject, clock: Clock) -> None:
    """It is being started anew, or the network is away for a moment. The three are all of both SDKs' protocols."""
    with Server() as server:
        server.queue_answers(ServerAnswer(subject.dialect.text("ok"), headers={"Connection": "close"}))
        llm = subject.make(server.url, clock.retry(), 60.0)
        assert llm.ask(LLMRequest([Message("user", "Go.")])).text == "ok"
    with pytest.raises(Transient, match="no connection to http://127") as caught:
        llm.ask(LLMRequest([Message("user", "Go.")]))
    assert caught.value.kind == "lost connection"
    assert sum(clock.slept) > 60
