"""One promise at work: a server, a model that talks to it, and what can be asked of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from m3b.errors import LLMError
from m3b.llm import registry
from m3b.llm.base import LLM, LLMRequest
from m3b.llm.keys import Key
from m3b.llm.presets import PROVIDERS
from m3b.llm.retry import Retry
from m3b.llm.text_calls import RepairingLLM
from m3b.messages import Message, Reply, ToolSpec
from m3b.testing.conformance.dialects import DIALECTS, Dialect
from m3b.testing.conformance.server import Clock, Server, ServerAnswer

CANARY = "sk-canary-Zq7x0123456789abcdef"
"""The key with which a subject's model is to be made; it must turn up in its requests and nowhere else."""


@dataclass(frozen=True)
class Subject:
    """One provider.

    Args:
        name: what the table calls it.
        make: from the server's address (without a path), the patience and the time-out in seconds, a model that keeps
            to them and whose key is `CANARY`.
        dialect: how the server is to answer.
    """

    name: str
    make: Callable[[str, Retry, float], LLM]
    dialect: Dialect


def builtin_subjects() -> list[Subject]:
    """Every provider that m3b knows by name and reaches over a network, and OpenAI's second protocol."""
    subjects = [_make_subject(name, "m" if name != "openai" else "gpt-4o") for name in PROVIDERS]
    second = _make_subject("openai", "gpt-5-pro", DIALECTS["openai-responses"])
    subjects.insert(2, replace(second, name="openai (responses)"))
    return subjects


def _make_subject(name: str, model: str, dialect: Dialect | None = None) -> Subject:
    provider = PROVIDERS[name]

    def make(url: str, retry: Retry, timeout_s: float) -> LLM:
        path = "" if provider.wire == "anthropic" else "/v1"
        local_provider = replace(provider, base_url=url + path)
        key = Key(CANARY, (*provider.variables, "M3B_API_KEY")[0])
        llm = registry.open_provider(name, model, retry=retry, timeout_s=timeout_s, provider=local_provider, key=key)
        return llm if name in registry.NATIVE_TOOL_PROVIDERS else RepairingLLM(llm)

    return Subject(name, make, dialect or DIALECTS[provider.wire])


START_MESSAGES = (Message("system", "You are a tester."), Message("user", "Go."))
_PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL_SPECS = (ToolSpec("list_files", "Lists.", _PATH), ToolSpec("read_files", "Reads.", _PATH))
TIMEOUT_S = 0.25


@dataclass
class Exercise:
    """One behaviour at work: a server, a clock on which waiting takes no time, and the model."""

    subject: Subject
    server: Server
    clock: Clock = field(default_factory=Clock)
    waits: list[tuple[str, float]] = field(default_factory=list)

    def make_llm(self, timeout_s: float = 30.0, **patience: Any) -> LLM:
        """The model, with the test's patience."""
        retry = Retry(sleep=self.clock.sleep, clock=self.clock, random=lambda: 0.5, **patience)
        return self.subject.make(self.server.url, retry, timeout_s)

    def ask(self, llm: LLM | None = None, **options: Any) -> Reply:
        """Ask the standard question; what is waited for goes to `waits`."""
        messages = options.pop("messages", START_MESSAGES)
        request = LLMRequest(messages, TOOL_SPECS, on_wait=lambda *wait: self.waits.append(wait), **options)
        return (llm or self.make_llm()).ask(request)

    def text_answer(self, text: str = "hello", **options: Any) -> ServerAnswer:
        """A good answer of text."""
        body = self.subject.dialect.text(text)
        return ServerAnswer(body, events=self.subject.dialect.events(body), **options)

    def error_answer(self, status: int, message: str, kind: str = "some_error", **headers: str) -> ServerAnswer:
        """A refusal in the provider's dialect."""
        return ServerAnswer(self.subject.dialect.error(message, kind), status=status, headers=headers)

    def list_turns(self) -> list[list[Any]]:
        """The turns of each request so far."""
        return [self.subject.dialect.turns(request.body) for request in self.server.requests]

    def recovers_from(self, *trouble: ServerAnswer) -> Reply:
        """The answer after trouble that passes; nothing may be lost or doubled on the way."""
        self.server.queue_answers(*trouble, self.text_answer("at last"))
        reply = self.ask(self.make_llm(timeout_s=TIMEOUT_S if any(answer.silence_s for answer in trouble) else 30.0))
        assert reply.text == "at last", f"the reply is {reply.text!r}"
        assert len(self.waits) == len(trouble), f"{len(self.waits)} waits were told of, not {len(trouble)}"
        assert len(self.server.requests) == len(trouble) + 1, f"{len(self.server.requests)} requests came"
        assert all(turns == self.list_turns()[0] for turns in self.list_turns()), "the repeated request differs"
        assert reply.usage.requests == 1, "a failed attempt was counted"
        return reply

    def fails_at_once(self, kind: type[LLMError], answer: ServerAnswer, requests: int = 1) -> LLMError:
        """The error of trouble that does not pass, which must be told at once."""
        self.server.queue_answers(answer)
        error = self.expect_error(kind)
        assert len(self.server.requests) == requests, f"{len(self.server.requests)} requests came, not {requests}"
        assert not self.clock.slept, f"{sum(self.clock.slept)} s were waited"
        return error

    def expect_error(self, kind: type[LLMError], llm: LLM | None = None) -> LLMError:
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
    test: Callable[[Exercise], str | None]

    def check(self, subject: Subject) -> str:
        """Hold a provider to it, over HTTP.

        Returns:
            An empty string; or why it does not apply to this provider.

        Raises:
            AssertionError: the promise is broken. Other exceptions of the provider come through as they are.
        """
        with Server() as server:
            return self.test(Exercise(subject, server)) or ""

    def __str__(self) -> str:
        return self.test.__name__


BEHAVIOURS: list[Behaviour] = []
"""Every promise, in the order of the table; filled by the modules that hold them."""


def register_behaviour(
    group: str, promise: str
) -> Callable[[Callable[[Exercise], str | None]], Callable[[Exercise], str | None]]:
    def register(test: Callable[[Exercise], str | None]) -> Callable[[Exercise], str | None]:
        BEHAVIOURS.append(Behaviour(group, promise, test))
        return test

    return register
