"""Tool calls as models really write them: arguments that are a JSON object, or nearly one, and ids.

Repairs are made only where one reading is possible. Truncated JSON is never completed: half a file must not be
written as if it were whole.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from m3b.messages import ToolCall

from .python_text import parse_with_retries

ParsedArguments = tuple[dict[str, Any], str]
"""The arguments, and an empty string or what is wrong with them (then the arguments are empty)."""

_FENCE = re.compile(r"\A```[A-Za-z]*[ \t]*\n(.*?)\n?[ \t]*```\Z", re.DOTALL)
_TRAILING_JUNK = re.compile(r"[\s}\]`;,]*|\s*</[A-Za-z_:]+>\s*")
"""What may follow a complete object and mean nothing: closers too many, a fence's end, one closing tag."""

EXCERPT_CHARACTERS = 30


def make_call(call_id: Any, name: Any, raw_arguments: Any) -> ToolCall:
    """Return a call as a provider sent it, its arguments parsed."""
    arguments, error = parse_arguments(raw_arguments)
    return ToolCall(str(call_id or ""), str(name or ""), arguments, error)


def assign_call_ids(calls: Sequence[ToolCall], used_ids: Iterable[str]) -> tuple[ToolCall, ...]:
    """Return the calls, with a new id for each that has none, or one that is used already."""
    used_ids = set(used_ids)
    unique_calls = []
    for call in calls:
        if not call.id or call.id in used_ids:
            new_ids = (f"call_{number}" for number in itertools.count(len(used_ids) + 1))
            call = replace(call, id=next(new_id for new_id in new_ids if new_id not in used_ids))
        used_ids.add(call.id)
        unique_calls.append(call)
    return tuple(unique_calls)


def parse_arguments(raw: Any) -> ParsedArguments:
    """Read the arguments of one call.

    Args:
        raw: JSON text, an object already decoded, or None for a call without arguments.
    """
    if raw is None:
        return {}, ""
    if isinstance(raw, dict):
        return _validate_object(raw)
    if isinstance(raw, list):
        return _parse_object(raw)
    if not isinstance(raw, str):
        return {}, f"The arguments are {_describe_type(raw)}. Send one JSON object, for example {{}}."
    text = raw.strip()
    if not text:
        return {}, ""
    fenced = _FENCE.match(text)
    return _parse_text(fenced.group(1).strip() if fenced else text)


def _parse_text(text: str) -> ParsedArguments:
    decoder = json.JSONDecoder(strict=False)  # raw newlines within strings have one reading only
    try:
        value, end = decoder.raw_decode(text)
    except (json.JSONDecodeError, RecursionError) as error:
        value = _parse_python_literal(text)
        return _parse_object(value) if value is not None else ({}, _explain_error(text, error))
    trailing_text = text[end:]
    if trailing_text and not _TRAILING_JUNK.fullmatch(trailing_text):
        excerpt = _quote_around(text, end)
        return {}, (
            f"After a complete JSON value, at character {end}, more text follows: {excerpt}."
            " Send exactly one JSON object; make a call of its own for each further one."
        )
    return _parse_object(value)


def _parse_object(value: Any) -> ParsedArguments:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, str):
        return _parse_double_encoded(value)
    if not isinstance(value, dict):
        return {}, f"The arguments are {_describe_type(value)}. Send one JSON object, for example {{}}."
    return _validate_object(value)


def _parse_double_encoded(value: str) -> ParsedArguments:
    """Return an object that was written as a JSON string of JSON: decoded once more, and strictly."""
    try:
        inner = json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        inner = None
    if isinstance(inner, dict):
        return _validate_object(inner)
    return {}, f"The arguments are a string, {value[:60]!r}. Send one JSON object, for example {{}}."


def _validate_object(value: dict[Any, Any]) -> ParsedArguments:
    """Return the object as plain JSON with text keys that any wire can carry."""
    try:
        json.dumps(value, allow_nan=False).encode()
        arguments = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError) as error:
        return {}, f"The arguments hold something that JSON cannot: {error}. Send plain JSON values."
    if any(not isinstance(key, str) for key in value):
        return {}, "The names of the arguments must be text. Put each in double quotes."
    return arguments, ""


def _parse_python_literal(text: str) -> dict[Any, Any] | list[Any] | None:
    """Return a dict or list written as Python does it ('single quotes', True, None), complete to its last bracket."""
    if len(text) > 1_000_000 or not (text.startswith(("{", "[")) and text.endswith(("}", "]"))):
        return None
    try:
        value = parse_with_retries(ast.literal_eval, text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return value if isinstance(value, dict | list) else None


def _explain_error(text: str, error: Exception) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return "The arguments are nested too deep to be read. Send a flat JSON object."
    position = f"line {error.lineno}, column {error.colno} (character {error.pos} of {len(text)})"
    if _is_truncated(text, error):
        return (
            f"The JSON ends too early, at {position}, after {_quote_end(text)}; the output limit may have cut it."
            " Nothing was run. Send the complete object, and long content in several smaller calls."
        )
    return (
        f"The arguments are no JSON: {error.msg} at {position}, near {_quote_around(text, error.pos)}."
        " Nothing was run. Send one JSON object, with double quotes, and backslashes and newlines escaped."
    )


def _is_truncated(text: str, error: json.JSONDecodeError) -> bool:
    return error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")


def _quote_around(text: str, position: int) -> str:
    start, end = max(0, position - EXCERPT_CHARACTERS), min(len(text), position + EXCERPT_CHARACTERS)
    return repr(("..." if start else "") + text[start:end] + ("..." if end < len(text) else ""))


def _quote_end(text: str) -> str:
    return repr(("..." if len(text) > EXCERPT_CHARACTERS else "") + text[-EXCERPT_CHARACTERS:])


def _describe_type(value: Any) -> str:
    names = {"list": "a list", "str": "a string", "int": "a number", "float": "a number", "NoneType": "null"}
    return names.get(type(value).__name__, f"a {type(value).__name__}")
