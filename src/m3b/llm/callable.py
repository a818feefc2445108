"""Any Python function as a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from m3b.errors import LLMError
from m3b.messages import Message, Reply, ToolSpec, Usage

from . import tokens
from .base import IsCancelled, ModelFacts, OnWait
from .error_mapping import map_error
from .retry import Retry
from .shapes import as_reply


class CallableLLM:
    """Asks `function(messages, tools)`, which gives a str, a dict or a `Reply` (see `m3b.llm.shapes.as_reply`).

    The function raises `m3b.errors.Transient`, `TimeoutError` or `ConnectionError`, or lets an SDK's exception through,
    to be asked again after a while. Its other exceptions go through unchanged: they are faults of the function.

    Args:
        function: called with a list of `Message` and a list of `ToolSpec`.
        name: what reports call it; the function's own name where not given.
        facts: window, prices and so on; a window of 128k and no price where not given.
        retry: how patient to be.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        facts: ModelFacts | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.name = name or f"callable:{getattr(function, '__qualname__', type(function).__qualname__)}"
        self.facts = facts or ModelFacts(known=False)
        self._function = function
        self._retry = retry or Retry()

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_wait: OnWait | None = None,
        cancelled: IsCancelled | None = None,
    ) -> Reply:
        """The function's answer, with ids for calls that have none, and estimated usage where it gives none.

        Raises:
            UsageError: the function gave something that is no answer.
        """
        answer = self._retry.run(lambda: self._call(messages, tools), on_wait, cancelled)
        reply = as_reply(answer, self.name)
        used_ids = {call.id for message in messages for call in message.calls}
        calls = []
        for call in reply.calls:
            if not call.id or call.id in used_ids:
                call = replace(call, id=_make_unused_id(used_ids))
            used_ids.add(call.id)
            calls.append(call)
        usage = reply.usage
        if usage == Usage():
            usage = self.facts.compute_usage(
                tokens.estimate_request_tokens(messages, tools), 0, tokens.estimate_reply_tokens(reply)
            )
        stop = "tools" if calls and reply.stop == "end" else reply.stop
        return replace(reply, calls=tuple(calls), usage=usage, stop=stop, model=reply.model or self.name)

    def _call(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Any:
        try:
            return self._function(list(messages), list(tools))
        except Exception as error:  # a function of the user's raises what it likes
            mapped_error = map_error(error, self.name, "the function's own settings")
            if isinstance(mapped_error, LLMError) and mapped_error is not error:
                raise mapped_error from error
            raise


def _make_unused_id(used_ids: set[str]) -> str:
    number = len(used_ids) + 1
    while f"call_{number}" in used_ids:
        number += 1
    return f"call_{number}"
