"""The shapes in which a function may give its answer, read into a `Reply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from m3b.errors import UsageError
from m3b.messages import Message, Reply, StopReason, ToolCall

from .calls import parse_arguments

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
    arguments, error = parse_arguments(function.get("arguments", {}))
    return ToolCall(str(raw_call.get("id") or ""), name, arguments, error)
