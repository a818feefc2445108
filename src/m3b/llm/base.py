"""The one thing that a language model is to the rest of m3b: something that answers a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from m3b.errors import UsageError
from m3b.messages import Message, Reply, ToolSpec, Usage

OnWait = Callable[[str, float], None]
OnText = Callable[[str], None]
IsCancelled = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """One request to a language model. Wrappers pass it on, changed by `dataclasses.replace`.

    Args:
        messages: the conversation.
        tools: those that the model may call.
        on_wait: called with `(reason, seconds)` before each wait.
        is_cancelled: polled at least twice a second during a wait; true ends the wait with `m3b.errors.RunCancelled`.
        on_text: called with each piece of the reply's text as it comes, a few times a second, by models that stream.
            An empty piece voids those before it: the stream broke off, and the request is made again.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    on_wait: OnWait | None = None
    is_cancelled: IsCancelled | None = None
    on_text: OnText | None = None

    @property
    def used_call_ids(self) -> set[str]:
        """The ids of all calls of the conversation."""
        return {call.id for message in self.messages for call in message.calls}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model.

    Args:
        window: tokens of input and output together.
        max_output: tokens that one reply may hold, as m3b asks for it.
        price_in: US dollars for a million input tokens that no cache served; None if nobody knows.
        price_cached: the same for input that a cache served; None means the full price.
        price_out: the same for output.
        price_cache_write: the same for input that was written to a cache; None means the full price.
        tools: whether the model takes tool definitions.
        vision: whether it takes images; without, it is told that there is one.
        wire: `responses` if OpenAI serves it on that protocol only; empty for its provider's usual one.
        known: False if the numbers are guesses.
    """

    window: int = 128_000
    max_output: int = 8_192
    price_in: float | None = None
    price_cached: float | None = None
    price_out: float | None = None
    price_cache_write: float | None = None
    tools: bool = True
    vision: bool = False
    wire: str = ""
    known: bool = True

    def compute_usage(
        self, uncached: int, cached: int, output: int, cache_written: int = 0, reasoning: int = 0
    ) -> Usage:
        """Return the usage of one request, priced. `uncached`, `cached` and `cache_written` are disjoint parts of its
        input, `reasoning` is a part of its output. The cost of a model without prices is 0, which means unknown.
        """
        cost = 0.0
        if self.price_in is not None:
            cost += uncached * self.price_in
            cost += cached * (self.price_in if self.price_cached is None else self.price_cached)
            cost += cache_written * (self.price_in if self.price_cache_write is None else self.price_cache_write)
        cost += output * (self.price_out or 0.0)
        input_tokens = uncached + cached + cache_written
        return Usage(input_tokens, cached, output, 1, cost / 1e6, min(reasoning, output), cache_written)


@runtime_checkable
class LLM(Protocol):
    """A language model. Anything with these three names is one; no base class is needed."""

    @property
    def name(self) -> str:
        """The provider and the model, as reports show them."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """Its window, prices and so on."""
        ...

    def ask(self, request: LLMRequest) -> Reply:
        """Answer the conversation. Rate limits, overload and lost connections are waited out inside.

        Raises:
            m3b.errors.Authentication: no key, or a refused one.
            m3b.errors.Transient: the trouble outlasted the patience of the retry.
            m3b.errors.ContextOverflow: the conversation is longer than the window.
            m3b.errors.BadRequest: the provider will never accept this.
            m3b.errors.RunCancelled: `request.is_cancelled` said so.
        """
        ...


class LLMWrapper:
    """What the wrappers of m3b share: the name and the facts of the model within."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    @property
    def name(self) -> str:
        return self.llm.name

    @property
    def facts(self) -> ModelFacts:
        return self.llm.facts


def ask_llm(llm: LLM, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), **options: Any) -> Reply:
    """Ask a model; `options` are the other fields of `LLMRequest`."""
    return llm.ask(LLMRequest(messages, tools, **options))


def require_vision(llm: LLM, purpose: str) -> LLM:
    """Return the model if it takes images; a model that m3b does not know is assumed to.

    Args:
        purpose: what needs a model that sees, for the error.

    Raises:
        UsageError: it is known not to take images.
    """
    if llm.facts.vision:
        return llm
    if llm.facts.known:
        raise UsageError(f"{llm.name} takes no images, and {purpose} needs a model that sees. Name another with --llm.")
    inner: Any = llm
    while inner is not None:  # wrappers return the facts of the innermost model
        if "facts" in getattr(inner, "__dict__", {}):
            inner.facts = replace(inner.facts, vision=True)
        inner = getattr(inner, "llm", None)
    return llm


def spec_of(llm: LLM) -> str:
    """Return what `connect` makes the same model again from, as far as a text can say it."""
    while not hasattr(llm, "spec") and isinstance(inner := getattr(llm, "llm", None), LLM):
        llm = inner  # a wrapper
    return str(getattr(llm, "spec", llm.name))
