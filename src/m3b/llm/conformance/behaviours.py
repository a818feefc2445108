"""What every provider must do, one function each; a broken promise is an AssertionError that says which.

The functions use nothing of a provider but `LLM.ask`, and nothing of its server but what went over HTTP.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from m3b.errors import Authentication, BadRequest, Cancelled, ContextOverflow, LLMError, Refused, Transient
from m3b.llm.base import LLM
from m3b.llm.retry import Retry
from m3b.llm.streaming import ask
from m3b.messages import Message, Reply, ToolCall, ToolSpec

from .dialects import Body
from .server import Answer, Clock, Server, joined
from .subject import CANARY, Subject

START = (Message("system", "You are a tester."), Message("user", "Go."))
_PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = (ToolSpec("list_files", "Lists.", _PATH), ToolSpec("read_files", "Reads.", _PATH))
SILENCE_S = 0.8
TIMEOUT_S = 0.25


@dataclass
class Case:
    """One behaviour at work: a server, a clock on which waiting takes no time, and the model."""

    subject: Subject
    server: Server
    clock: Clock = field(default_factory=Clock)
    waits: list[tuple[str, float]] = field(default_factory=list)

    def llm(self, timeout_s: float = 30.0, **patience: Any) -> LLM:
        """The model, with the test's patience."""
        retry = Retry(sleep=self.clock.sleep, clock=self.clock, random=lambda: 0.5, **patience)
        return self.subject.make(self.server.url, retry, timeout_s)

    def ask(self, llm: LLM | None = None, **more: Any) -> Reply:
        """Ask the standard question; what is waited for goes to `waits`."""
        messages = more.pop("messages", START)
        return (llm or self.llm()).ask(messages, TOOLS, on_wait=lambda *wait: self.waits.append(wait), **more)

    def text(self, text: str = "hello", **more: Any) -> Answer:
        """A good answer of text."""
        body = self.subject.dialect.text(text)
        return Answer(body, events=self.subject.dialect.events(body), **more)

    def error(self, status: int, message: str, kind: str = "some_error", **headers: str) -> Answer:
        """A refusal in the provider's dialect."""
        return Answer(self.subject.dialect.error(message, kind), status=status, headers=headers)

    def turns(self) -> list[list[Any]]:
        """The turns of each request so far."""
        return [self.subject.dialect.turns(heard.body) for heard in self.server.heard]

    def passes(self, *trouble: Answer) -> Reply:
        """The answer after trouble that passes; nothing may be lost or doubled on the way."""
        self.server.will(*trouble, self.text("at last"))
        reply = self.ask(self.llm(timeout_s=TIMEOUT_S if any(each.silence_s for each in trouble) else 30.0))
        assert reply.text == "at last", f"the reply is {reply.text!r}"
        assert len(self.waits) == len(trouble), f"{len(self.waits)} waits were told of, not {len(trouble)}"
        assert len(self.server.heard) == len(trouble) + 1, f"{len(self.server.heard)} requests came"
        assert all(turns == self.turns()[0] for turns in self.turns()), "the repeated request differs"
        assert reply.usage.requests == 1, "a failed attempt was counted"
        return reply

    def ends(self, kind: type[LLMError], answer: Answer, requests: int = 1) -> LLMError:
        """The error of trouble that does not pass, which must be told at once."""
        self.server.will(answer)
        error = self.fails(kind)
        assert len(self.server.heard) == requests, f"{len(self.server.heard)} requests came, not {requests}"
        assert not self.clock.slept, f"{sum(self.clock.slept)} s were waited"
        return error

    def fails(self, kind: type[LLMError], llm: LLM | None = None) -> LLMError:
        """The error with which asking ends."""
        try:
            reply = self.ask(llm)
        except kind as error:
            return error
        raise AssertionError(f"it answered {reply.text!r} where {kind.__name__} was due")


@dataclass(frozen=True)
class Behaviour:
    """One promise.

    Args:
        group: a heading of the table.
        promise: the promise, in words.
    """

    group: str
    promise: str
    test: Callable[[Case], str | None]

    def check(self, subject: Subject) -> str:
        """Hold a provider to it, over HTTP.

        Returns:
            An empty string; or why it does not apply to this provider.

        Raises:
            AssertionError: the promise is broken. Other exceptions of the provider come through as they are.
        """
        with Server() as server:
            return self.test(Case(subject, server)) or ""

    def __str__(self) -> str:
        return self.test.__name__


BEHAVIOURS: list[Behaviour] = []


def _promise(group: str, promise: str) -> Callable[[Callable[[Case], str | None]], Callable[[Case], str | None]]:
    def note(test: Callable[[Case], str | None]) -> Callable[[Case], str | None]:
        BEHAVIOURS.append(Behaviour(group, promise, test))
        return test

    return note


# --- answers -----------------------------------------------------------------------------------------------------


@_promise("answers", "text is read, with the model's name and why it stopped")
def text(case: Case) -> None:
    case.server.will(case.text("hello"))
    reply = case.ask()
    assert (reply.text, reply.calls, reply.stop) == ("hello", (), "end"), f"the reply is {reply}"
    assert reply.model, "the reply does not name its model"


@_promise("answers", "usage is the provider's: all input, its cached part, output, its reasoning part")
def usage(case: Case) -> None:
    case.server.will(case.text())
    used = case.ask().usage
    found = (used.input_tokens, used.cached_tokens, used.output_tokens, used.reasoning_tokens)
    assert found == (100, 60, 7, 3), f"usage is {used}"


@_promise("answers", "parallel calls go there and back")
def parallel_calls(case: Case) -> None:
    calls = (("a1", "list_files", '{"path": "data"}'), ("a2", "read_files", "{}"))
    case.server.will(Answer(case.subject.dialect.calls(*calls)), case.text("done"))
    llm = case.llm()
    reply = case.ask(llm)
    assert reply.stop == "tools", f"stop is {reply.stop!r}"
    assert reply.calls == (ToolCall("a1", "list_files", {"path": "data"}), ToolCall("a2", "read_files", {})), (
        reply.calls
    )
    answers = [Message("tool", "x.png", call_id="a1"), Message("tool", "nothing", call_id="a2", is_error=True)]
    assert case.ask(llm, messages=[*START, reply.message(), *answers]).text == "done"
    sent = json.dumps(case.turns()[1])
    assert all(word in sent for word in ("a1", "a2", "list_files", "x.png", "nothing")), sent


@_promise("answers", "a malformed call is told as such, and replayed validly")
def malformed_call(case: Case) -> None:
    bad = ToolCall("bad id/1", "list files", {}, "no JSON")
    talk = [*START, Message("assistant", "", (bad,)), Message("tool", "", call_id="bad id/1", is_error=True)]
    case.server.will(case.text("ok"))
    assert case.ask(messages=talk).text == "ok"
    sent = json.dumps(case.turns()[0])
    assert "bad id/1" not in sent, "a call id went out that providers refuse"
    assert sent.count("bad_id_1") == 2, "the call and its answer no longer belong together"


@_promise("answers", "an answer that was cut says so")
def length_stop(case: Case) -> None:
    case.server.will(Answer(case.subject.dialect.text("so far", stop="length")))
    assert case.ask().stop == "length"


@_promise("answers", "a model that declines is told apart")
def refusal(case: Case) -> None:
    case.server.will(Answer(case.subject.dialect.text("I will not.", stop="refusal")))
    assert case.ask().stop == "refusal"


@_promise("answers", "a body of five megabytes is read")
def huge_body(case: Case) -> None:
    case.server.will(case.text("x" * 5_000_000))
    assert len(case.ask().text) == 5_000_000


@_promise("answers", "slow bytes are read to the end")
def slow_bytes(case: Case) -> None:
    case.server.will(case.text("slowly", pieces=12, pause_s=0.03))
    assert case.ask(case.llm(timeout_s=2.0)).text == "slowly"
    assert not case.waits, "it asked again"


@_promise("answers", "JSON under another content type is read")
def wrong_content_type(case: Case) -> None:
    case.server.will(case.text("plain", headers={"Content-Type": "text/plain"}))
    assert case.ask(case.llm(attempts=1)).text == "plain"


@_promise("answers", "a web page in place of an answer is an error that speaks of the address")
def web_page(case: Case) -> None:
    case.server.will(Answer(b"<html>welcome</html>", headers={"Content-Type": "text/html"}))
    assert "address" in str(case.fails(LLMError, case.llm(attempts=1))).lower()


# --- streams -----------------------------------------------------------------------------------------------------


@_promise("streams", "a stream gives the same reply, and the words as they come")
def stream(case: Case) -> str | None:
    if not _streams(case):
        return "does not stream"
    calls = case.subject.dialect.calls(("a1", "list_files", '{"path": "data"}'))
    bodies = [case.subject.dialect.text("word by word"), calls]
    for body in bodies:
        case.server.will(Answer(body), Answer(body, events=case.subject.dialect.events(body)))
    llm = case.llm()
    for _ in bodies:
        pieces: list[str] = []
        plain, streamed = case.ask(llm), ask(llm, START, TOOLS, on_text=pieces.append)
        assert streamed == plain, f"{streamed} is not {plain}"
        assert joined(pieces) == plain.text, f"the pieces {pieces} are not {plain.text!r}"
    return None


@_promise("streams", "half a stream is asked for again, and nothing is heard twice")
def half_a_stream(case: Case) -> str | None:
    if not _streams(case):
        return "does not stream"
    whole = case.text("one two three four")
    size = len(b"".join(whole.events))
    case.server.will(Answer(whole.body, events=whole.events, cut=size // 2), whole)
    pieces: list[str] = []
    reply = ask(case.llm(), START, TOOLS, on_text=pieces.append)
    assert reply.text == joined(pieces) == "one two three four", f"{reply.text!r}, heard {pieces}"
    assert len(case.server.heard) == 2
    return None


def _streams(case: Case) -> bool:
    return bool(getattr(case.llm(), "streams", False) and case.text().events)


# --- trouble that passes -------------------------------------------------------------------------------------------


@_promise("trouble that passes", "429 with Retry-After: that long is waited, at least")
def rate_limit_with_seconds(case: Case) -> None:
    case.passes(case.error(429, "slow down", "rate_limit_error", **{"Retry-After": "20"}))
    assert 20 <= case.waits[0][1] <= 30, f"{case.waits[0][1]} s were waited, 20 asked"
    assert sum(case.clock.slept) >= 20


@_promise("trouble that passes", "429 with Retry-After as a date")
def rate_limit_with_date(case: Case) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    case.passes(case.error(429, "slow down", "rate_limit_error", **{"Retry-After": when}))
    assert 30 <= case.waits[0][1] <= 60, f"{case.waits[0][1]} s were waited, 40 asked"


@_promise("trouble that passes", "429 without Retry-After: each wait is longer")
def rate_limit(case: Case) -> None:
    case.passes(*[case.error(429, "slow down", "rate_limit_error")] * 4)
    waits = [seconds for _, seconds in case.waits]
    assert waits == sorted(waits), f"waits of {waits} s"
    assert waits[-1] > waits[0]


@_promise("trouble that passes", "529 and 503, overload")
def overload(case: Case) -> None:
    case.passes(case.error(529, "overloaded", "overloaded_error"), case.error(503, "overloaded"))


@_promise("trouble that passes", "500, a server error")
def server_error(case: Case) -> None:
    case.passes(case.error(500, "oops", "api_error"))


@_promise("trouble that passes", "502 with a web page")
def bad_gateway(case: Case) -> None:
    case.passes(Answer(b"<html>bad gateway</html>", status=502, headers={"Content-Type": "text/html"}))


@_promise("trouble that passes", "a connection dropped before the answer")
def dropped(case: Case) -> None:
    case.passes(Answer(drop=True))


@_promise("trouble that passes", "half an answer")
def half_an_answer(case: Case) -> None:
    case.passes(case.text("never whole", cut=60))


@_promise("trouble that passes", "malformed JSON")
def malformed_json(case: Case) -> None:
    case.passes(Answer(b'{"id": "1", "choi'))


@_promise("trouble that passes", "an answer with nothing in it")
def nothing(case: Case) -> None:
    case.passes(Answer(case.subject.dialect.empty()))


@_promise("trouble that passes", "silence beyond the time-out")
def silence(case: Case) -> None:
    case.passes(case.text("too late", silence_s=SILENCE_S))


# --- trouble that stays --------------------------------------------------------------------------------------------


@_promise("trouble that stays", "patience ends in Transient, which names the wait")
def patience_ends(case: Case) -> None:
    case.server.will(case.error(429, "slow down", "rate_limit_error", **{"Retry-After": "7200"}))
    error = case.fails(Transient)
    assert getattr(error, "retry_after", None) == 7200
    assert sum(case.clock.slept) == 0, "it began to wait for longer than it has patience"


@_promise("trouble that stays", "401 ends at once, and names the variable to set")
def bad_key(case: Case) -> None:
    error = case.ends(Authentication, case.error(401, "bad key", "authentication_error"))
    assert "_API_KEY" in str(error), f"{error} does not name the variable"


@_promise("trouble that stays", "402, an account that cannot pay")
def no_money(case: Case) -> None:
    case.ends(BadRequest, case.error(402, "Your credit balance is too low"))


@_promise("trouble that stays", "404, no such model")
def unknown_model(case: Case) -> None:
    case.ends(BadRequest, case.error(404, "no such model", "not_found_error"))


@_promise("trouble that stays", "a conversation that is too long is ContextOverflow")
def overflow(case: Case) -> None:
    said = "This model's maximum context length is 8192 tokens, however you requested 9000"
    case.ends(ContextOverflow, case.error(400, said, "invalid_request_error"))


@_promise("trouble that stays", "a content filter's refusal is Refused")
def content_filter(case: Case) -> None:
    case.ends(Refused, case.error(400, "The request was blocked: content_policy_violation", "invalid_request_error"))


@_promise("trouble that stays", "an impossible conversation is refused before anything is sent")
def impossible(case: Case) -> None:
    talk = [*START, Message("assistant", "", (ToolCall("a", "list_files"),)), Message("user", "well?")]
    try:
        case.ask(messages=talk)
    except BadRequest:
        assert not case.server.heard, "it was sent all the same"
        return
    raise AssertionError("a call without an answer was accepted")


# --- the caller ----------------------------------------------------------------------------------------------------


@_promise("the caller", "a cancellation ends a wait")
def cancel_waiting(case: Case) -> None:
    case.server.will(case.error(429, "slow down", "rate_limit_error", **{"Retry-After": "300"}))
    try:
        case.ask(cancelled=lambda: case.clock.now > 5)
    except Cancelled:
        assert case.clock.now < 7, f"it waited {case.clock.now} s"
        return
    raise AssertionError("the cancellation was not heard")


@_promise("the caller", "a cancellation ends a request on which the provider is silent")
def cancel_silence(case: Case) -> None:
    case.server.will(case.text("late", silence_s=30.0))
    begin = time.monotonic()
    try:
        case.ask(cancelled=lambda: time.monotonic() - begin > 0.1)
    except Cancelled:
        assert time.monotonic() - begin < 5, "it took more than five seconds"
        return
    raise AssertionError("the cancellation was not heard")


@_promise("the caller", "what was sent once is sent again byte for byte, so that caches serve it")
def stable_prefix(case: Case) -> None:
    talk = list(START)
    llm = case.llm()
    body: Body
    for turn in range(3):
        body = case.subject.dialect.calls((f"c{turn}", "list_files", '{"path": "ä", "n": [1, 2.5, null]}'))
        case.server.will(Answer(body))
        reply = case.ask(llm, messages=talk)
        talk += [reply.message(), Message("tool", f"result {turn}", call_id=f"c{turn}")]
    first, second, third = (json.dumps(turns)[:-1] for turns in case.turns())
    assert second.startswith(first), "the second request changes what the first one said"
    assert third.startswith(second), "the third request changes what the second one said"
    assert len({json.dumps(heard.body.get("tools"))[:40] for heard in case.server.heard}) == 1


@_promise("the caller", "the key goes into the request, and into no error or representation")
def key_is_nowhere(case: Case) -> None:
    case.server.will(case.error(401, f"Incorrect API key provided: {CANARY}; header Bearer {CANARY}"))
    llm = case.llm()
    error: BaseException | None = case.fails(LLMError, llm)
    assert any(CANARY in value for value in case.server.heard[0].headers.values()), "the key was not sent"
    shown = "".join(traceback.format_exception(error)) + repr(llm) + str(getattr(llm, "__dict__", ""))
    while error is not None:
        shown += repr(error) + str(vars(error))
        error = error.__cause__ or error.__context__
    assert CANARY not in shown, "the key is in an error"


@_promise("the caller", "a redirect does not take the key to another host")
def redirect(case: Case) -> None:
    with Server() as other:
        other.will(case.text("from elsewhere"))
        case.server.will(Answer({}, status=307, headers={"Location": f"{other.url}/v1/elsewhere"}))
        case.fails(LLMError, case.llm(attempts=1))
        assert not other.heard, "another host was asked"
