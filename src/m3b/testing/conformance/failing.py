"""Conformance tests of errors of the server, and of cancellation by the caller."""

from __future__ import annotations

import json
import time
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from m3b.errors import Authentication, BadRequest, ContextOverflow, LLMError, Refused, RunCancelled, Transient
from m3b.messages import Message, ToolCall
from m3b.testing.conformance.exercise import CANARY, START_MESSAGES, Exercise, register_behaviour

from .dialects import Body
from .server import Server, ServerAnswer

SILENCE_S = 0.8

# --- temporary errors -------------------------------------------------------------------------------------------


@register_behaviour("temporary errors", "429 with Retry-After: the wait is at least that long")
def rate_limit_with_seconds(case: Exercise) -> None:
    case.recovers_from(case.error_answer(429, "slow down", "rate_limit_error", **{"Retry-After": "20"}))
    assert 20 <= case.waits[0][1] <= 30, f"the wait was {case.waits[0][1]} s, requested were 20"
    assert sum(case.clock.slept) >= 20


@register_behaviour("temporary errors", "429 with Retry-After as a date")
def rate_limit_with_date(case: Exercise) -> None:
    retry_date = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    case.recovers_from(case.error_answer(429, "slow down", "rate_limit_error", **{"Retry-After": retry_date}))
    assert 30 <= case.waits[0][1] <= 60, f"the wait was {case.waits[0][1]} s, requested were 40"


@register_behaviour("temporary errors", "429 without Retry-After: each wait is longer")
def rate_limit(case: Exercise) -> None:
    case.recovers_from(*[case.error_answer(429, "slow down", "rate_limit_error")] * 4)
    waits = [seconds for _, seconds in case.waits]
    assert waits == sorted(waits), f"waits of {waits} s"
    assert waits[-1] > waits[0]


@register_behaviour("temporary errors", "529 and 503, overload")
def overload(case: Exercise) -> None:
    case.recovers_from(case.error_answer(529, "overloaded", "overloaded_error"), case.error_answer(503, "overloaded"))


@register_behaviour("temporary errors", "500, a server error")
def server_error(case: Exercise) -> None:
    case.recovers_from(case.error_answer(500, "oops", "api_error"))


@register_behaviour("temporary errors", "502 with a web page")
def bad_gateway(case: Exercise) -> None:
    case.recovers_from(ServerAnswer(b"<html>bad gateway</html>", status=502, headers={"Content-Type": "text/html"}))


@register_behaviour("temporary errors", "a connection dropped before the answer")
def dropped_connection(case: Exercise) -> None:
    case.recovers_from(ServerAnswer(drop=True))


@register_behaviour("temporary errors", "an incomplete answer")
def half_an_answer(case: Exercise) -> None:
    case.recovers_from(case.text_answer("never whole", cut=60))


@register_behaviour("temporary errors", "malformed JSON")
def malformed_json(case: Exercise) -> None:
    case.recovers_from(ServerAnswer(b'{"id": "1", "choi'))


@register_behaviour("temporary errors", "an empty answer")
def empty_answer(case: Exercise) -> None:
    case.recovers_from(ServerAnswer(case.subject.dialect.empty()))


@register_behaviour("temporary errors", "no data within the time-out")
def silence(case: Exercise) -> None:
    case.recovers_from(case.text_answer("too late", silence_s=SILENCE_S))


# --- permanent errors --------------------------------------------------------------------------------------------


@register_behaviour("permanent errors", "a wait beyond the limit ends in Transient, which names the wait")
def patience_ends(case: Exercise) -> None:
    case.server.queue_answers(case.error_answer(429, "slow down", "rate_limit_error", **{"Retry-After": "7200"}))
    error = case.expect_error(Transient)
    assert getattr(error, "retry_after", None) == 7200
    assert sum(case.clock.slept) == 0, "it started a wait that is longer than its limit"


@register_behaviour("permanent errors", "401 fails at once, and names the variable to set")
def bad_key(case: Exercise) -> None:
    error = case.fails_at_once(Authentication, case.error_answer(401, "bad key", "authentication_error"))
    assert "_API_KEY" in str(error), f"{error} does not name the variable"


@register_behaviour("permanent errors", "402, no credit on the account")
def no_money(case: Exercise) -> None:
    case.fails_at_once(BadRequest, case.error_answer(402, "Your credit balance is too low"))


@register_behaviour("permanent errors", "404, unknown model")
def unknown_model(case: Exercise) -> None:
    case.fails_at_once(BadRequest, case.error_answer(404, "no such model", "not_found_error"))


@register_behaviour("permanent errors", "a conversation that is too long raises ContextOverflow")
def overflow(case: Exercise) -> None:
    message = "This model's maximum context length is 8192 tokens, however you requested 9000"
    case.fails_at_once(ContextOverflow, case.error_answer(400, message, "invalid_request_error"))


@register_behaviour("permanent errors", "a refusal of a content filter raises Refused")
def content_filter(case: Exercise) -> None:
    case.fails_at_once(
        Refused, case.error_answer(400, "The request was blocked: content_policy_violation", "invalid_request_error")
    )


@register_behaviour("permanent errors", "an invalid conversation is refused before anything is sent")
def impossible(case: Exercise) -> None:
    messages = [*START_MESSAGES, Message("assistant", "", (ToolCall("a", "list_files"),)), Message("user", "well?")]
    try:
        case.ask(messages=messages)
    except BadRequest:
        assert not case.server.requests, "it was sent nevertheless"
        return
    raise AssertionError("a call without an answer was accepted")


# --- the caller ----------------------------------------------------------------------------------------------------


@register_behaviour("the caller", "a cancellation ends a wait")
def cancel_waiting(case: Exercise) -> None:
    case.server.queue_answers(case.error_answer(429, "slow down", "rate_limit_error", **{"Retry-After": "300"}))
    try:
        case.ask(is_cancelled=lambda: case.clock.now > 5)
    except RunCancelled:
        assert case.clock.now < 7, f"it waited {case.clock.now} s"
        return
    raise AssertionError("the cancellation was not heard")


@register_behaviour("the caller", "a cancellation ends a request without an answer")
def cancel_silence(case: Exercise) -> None:
    case.server.queue_answers(case.text_answer("late", silence_s=30.0))
    begin = time.monotonic()
    try:
        case.ask(is_cancelled=lambda: time.monotonic() - begin > 0.1)
    except RunCancelled:
        assert time.monotonic() - begin < 5, "it took more than five seconds"
        return
    raise AssertionError("the cancellation was not heard")


@register_behaviour("the caller", "earlier messages are sent again byte for byte, so that prompt caches work")
def stable_prefix(case: Exercise) -> None:
    messages = list(START_MESSAGES)
    llm = case.make_llm()
    body: Body
    for turn in range(3):
        body = case.subject.dialect.calls((f"c{turn}", "list_files", '{"path": "ä", "n": [1, 2.5, null]}'))
        case.server.queue_answers(ServerAnswer(body))
        reply = case.ask(llm, messages=messages)
        messages += [reply.to_message(), Message("tool", f"result {turn}", call_id=f"c{turn}")]
    first, second, third = (json.dumps(turns)[:-1] for turns in case.list_turns())
    assert second.startswith(first), "the second request changes what the first one said"
    assert third.startswith(second), "the third request changes what the second one said"
    assert len({json.dumps(request.body.get("tools"))[:40] for request in case.server.requests}) == 1


@register_behaviour("the caller", "the key is in the request, and in no error or representation")
def key_is_nowhere(case: Exercise) -> None:
    case.server.queue_answers(case.error_answer(401, f"Incorrect API key provided: {CANARY}; header Bearer {CANARY}"))
    llm = case.make_llm()
    error: BaseException | None = case.expect_error(LLMError, llm)
    assert any(CANARY in value for value in case.server.requests[0].headers.values()), "the key was not sent"
    exposed_text = "".join(traceback.format_exception(error)) + repr(llm) + str(getattr(llm, "__dict__", ""))
    while error is not None:
        exposed_text += repr(error) + str(vars(error))
        error = error.__cause__ or error.__context__
    assert CANARY not in exposed_text, "the key is in an error"


@register_behaviour("the caller", "a redirect does not take the key to another host")
def redirect(case: Exercise) -> None:
    with Server() as other_server:
        other_server.queue_answers(case.text_answer("from elsewhere"))
        case.server.queue_answers(
            ServerAnswer({}, status=307, headers={"Location": f"{other_server.url}/v1/elsewhere"})
        )
        case.expect_error(LLMError, case.make_llm(attempts=1))
        assert not other_server.requests, "a request was sent to another host"
