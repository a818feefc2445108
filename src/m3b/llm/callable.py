"""Any Python function as a language model, and the forms in which it may give its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from m3b.errors import LLMError, UsageError
from m3b.messages import Message, Reply, StopReason, ToolCall, Usage

from . import tokens
from .base import LLMRequest, ModelFacts
from .calls import assign_call_ids, make_call
from .error_mapping import map_error
from .retry import Retry


class CallableLLM:
    """Asks `function(messages, tools)`, which gives a str, a dict or a `Reply` (see `as_reply`).

    The function raises `m3b.errors.Transient`, `TimeoutError` or `ConnectionError`, or lets an SDK's exception through,
    to be asked again after a while. Its other exceptions go through unchanged: they are faults of the function.

    Args:
        function: called with a list of `Message` and a list of `ToolSpec`.
        name: what reports call it; the function's own name if not given.
        facts: window, prices and so on; a window of 128k and no price if not given.
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

    def ask(self, request: LLMRequest) -> Reply:
        """Return the function's answer, with ids for calls that have none, and estimated usage if it gives none.

        Raises:
            UsageError: the function gave something that is no answer.
        """
        answer = self._retry.run(lambda: self._call(request), request.on_wait, request.is_cancelled)
        reply = as_reply(answer, self.name)
        calls = assign_call_ids(reply.calls, request.used_call_ids)
        usage = tokens.estimate_usage(request, reply, self.facts) if reply.usage == Usage() else reply.usage
        stop = "tools" if calls and reply.stop == "end" else reply.stop
        return replace(reply, calls=calls, usage=usage, stop=stop, model=reply.model or self.name)

    def _call(self, request: LLMRequest) -> Any:
        try:
            return self._function(list(request.messages), list(request.tools))
        except Exception as error:  # a function of the user's raises what it likes
            mapped_error = map_error(error, self.name, "the function's own settings")
            if isinstance(mapped_error, LLMError) and mapped_error is not error:
                raise mapped_error from error
            raise


STOP_REASONS: dict[str, StopReason] = {"end": "end", "tools": "tools", "length": "length", "refusal": "refusal"}


def as_reply(answer: Any, source: str) -> Reply:
    """Read an answer.

    Args:
        answer: a `Reply`; a `Message` of the assistant; a text; or a dict with `text` (or `content`), `calls` (or
            `tool_calls`) and `stop`. A call is a `ToolCall`, `{"name", "arguments", "id"}` or the same under
            `function`; arguments may be an object or JSON text.
        source: who gave it, for the error.

    Raises:
        UsageError: any other shape.
    """
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, Message):
        return Reply(answer.text, answer.calls, stop="tools" if answer.calls else "end")
    if isinstance(answer, str):
        return Reply(answer)
    if not isinstance(answer, Mapping):
        raise UsageError(f"{source} gave {type(answer).__name__}; give a str, a dict with text and calls, or a Reply.")
    unknown_keys = sorted(str(key) for key in set(answer) - {"text", "content", "calls", "tool_calls", "stop", "role"})
    if unknown_keys:
        raise UsageError(
            f"{source} gave a dict with {unknown_keys}; its keys are text (or content), calls (or tool_calls), stop."
        )
    text = answer.get("text") or answer.get("content") or ""
    calls = answer.get("calls") or answer.get("tool_calls") or ()
    if not isinstance(text, str) or isinstance(calls, str | Mapping) or not isinstance(calls, Sequence):
        raise UsageError(
            f"{source} gave text of {type(text).__name__} and calls of {type(calls).__name__}; str and list."
        )
    parsed_calls = tuple(_to_tool_call(raw_call, position, source) for position, raw_call in enumerate(calls, 1))
    return Reply(text, parsed_calls, stop=STOP_REASONS.get(str(answer.get("stop")), "tools" if parsed_calls else "end"))


def _to_tool_call(raw_call: Any, position: int, source: str) -> ToolCall:
    if isinstance(raw_call, ToolCall):
        return raw_call
    if not isinstance(raw_call, Mapping):
        raise UsageError(
            f"{source}: call {position} is {type(raw_call).__name__}; give {{'name': ..., 'arguments': {{...}}}}."
        )
    function = raw_call.get("function", raw_call)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise UsageError(f"{source}: call {position} has no name; give {{'name': ..., 'arguments': {{...}}}}.")
    return make_call(raw_call.get("id"), name, function.get("arguments"))
