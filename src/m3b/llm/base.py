"""The one thing that a language model is to the rest of m3b: something that can be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from m3b.messages import Message, Reply, ToolSpec, Usage

OnWait = Callable[[str, float], None]
"""Told `(reason, seconds)` before each wait."""

OnText = Callable[[str], None]
"""Told each piece of the reply's text as it comes, a few times a second; an empty piece voids those before it, because
the stream broke off and the request is made again."""

IsCancelled = Callable[[], bool]
"""Polled at least twice a second during a wait; true ends the wait with `m3b.errors.RunCancelled`."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model.

    Args:
        window: tokens of input and output together.
        max_output: tokens that one reply may hold, as m3b asks for it.
        price_in: US dollars for a million input tokens that no cache served; None where nobody knows.
        price_cached: the same for input that a cache served; None means the full price.
        price_out: the same for output.
        price_cache_write: the same for input that was written to a cache; None means the full price.
        tools: whether the model takes tool definitions.
        vision: whether it takes images; without, it is told that there is one.
        wire: `responses` where OpenAI serves it on that protocol only; empty for its provider's usual one.
        known: False where the numbers are guesses.
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
        """The usage of one request, priced; `uncached`, `cached` and `cache_written` are disjoint parts of its input, and
        `reasoning` is a part of its output.

        The cost of a model without prices is 0, which means unknown.
        """
        cost = 0.0
        if self.price_in is not None:
            cost += uncached * self.price_in
            cost += cached * (self.price_in if self.price_cached is None else self.price_cached)
            cost += cache_written * (self.price_in if self.price_cache_write is None else self.price_cache_write)
        if self.price_out is not None:
            cost += output * self.price_out
        return Usage(
            uncached + cached + cache_written, cached, output, 1, cost / 1e6, min(reasoning, output), cache_written
        )


@runtime_checkable
class LLM(Protocol):
    """A language model. Anything with these three names is one; no base class is needed.

    One that can also tell its words as they come has `streams = True`, and its `ask` takes `on_text: OnText | None`
    (see `m3b.llm.streaming`).
    """

    @property
    def name(self) -> str:
        """What the model is called in reports, e.g. `openai:gpt-4o`."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """Its window, prices and so on."""
        ...

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_wait: OnWait | None = None,
        cancelled: IsCancelled | None = None,
    ) -> Reply:
        """Answer the conversation.

        Rate limits, overload and lost connections are waited out inside, and reported to `on_wait`.

        Raises:
            m3b.errors.Authentication: no key, or a refused one.
            m3b.errors.Transient: the trouble outlasted the patience of the retry.
            m3b.errors.ContextOverflow: the conversation is longer than the window.
            m3b.errors.BadRequest: the provider will never accept this.
            m3b.errors.RunCancelled: `cancelled` said so.
        """
        ...


def spec_of(llm: LLM) -> str:
    """What `connect` makes the same model again from, as far as a text can say it."""
    while not hasattr(llm, "spec") and isinstance(inner := getattr(llm, "llm", None), LLM):
        llm = inner  # a wrapper
    return str(getattr(llm, "spec", llm.name))
