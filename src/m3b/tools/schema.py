"""JSON schemas of tools from typed functions, and typed arguments from those that a model sends."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_args, get_origin, is_typeddict

from m3b.errors import ToolError
from m3b.messages import ToolSpec

_JSON_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ARGUMENT_LINE = re.compile(r"^ {4}(\w+): (.*)$")


def make_tool_spec(function: Callable[..., Any]) -> ToolSpec:
    """Return the specification of a tool. The first parameter of the function, the context, is not part of it.

    The text of the docstring becomes the description; its `Args:` section describes the parameters.
    """
    text, descriptions = _parse_docstring(function)
    hints = _hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in _parameters(function).items():
        property_schema = _make_type_schema(hints[name])
        if name in descriptions:
            property_schema["description"] = descriptions[name]
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            property_schema["default"] = parameter.default
        properties[name] = property_schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(getattr(function, "__name__", "tool"), text, parameters)


def coerce_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the types of the function, converted if the intended value is certain.

    Raises:
        ToolError: an argument is unknown, missing or of a wrong type; the message says what is expected.
    """
    hints, parameters = _hints(function), _parameters(function)
    for name in arguments:
        if name not in parameters:
            similar = difflib.get_close_matches(name, parameters, 1)
            hint = f" Did you mean {similar[0]!r}?" if similar else ""
            raise ToolError(f"Unknown argument {name!r}.{hint} Accepted: {', '.join(parameters)}.")
    result: dict[str, Any] = {}
    for name, parameter in parameters.items():
        value = arguments.get(name)
        if value is None:
            if parameter.default is inspect.Parameter.empty:
                raise ToolError(f"Argument {name!r} is missing: {_describe_type(hints[name])} is needed.")
            continue
        result[name] = coerce(value, hints[name], name)
    return result


@lru_cache(maxsize=64)
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function)


def coerce(value: Any, hint: Any, location: str) -> Any:
    """Convert a JSON value to a type: `"5"` to 5, `"a"` to `["a"]`, a JSON text to the list or object that it encodes.

    Raises:
        ToolError: the intended value is not certain.
    """
    hint = _strip_none(hint)
    if hint is Any:
        return value
    if hint in _JSON_TYPES:
        return _coerce_scalar(value, hint, location)
    if get_origin(hint) is list:
        return _coerce_list(value, get_args(hint)[0], location)
    if isinstance(value, str):
        value = _parse_json(value)
    if not isinstance(value, dict):
        raise _make_type_error(value, hint, location)
    return _coerce_object(value, hint, location)


def _coerce_scalar(value: Any, hint: Any, location: str) -> Any:
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if type(value) is hint:
        return value
    if isinstance(value, str) and hint is not str:
        word = value.strip().lower()
        if hint is bool and word in ("true", "false"):
            return word == "true"
        if hint is int and re.fullmatch(r"[+-]?\d{1,18}(\.0+)?", word):
            return int(float(word)) if "." in word else int(word)
        if hint is float and re.fullmatch(r"[+-]?(\d{1,18}(\.\d*)?|\.\d+)(e[+-]?\d{1,2})?", word):
            return float(word)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if hint is float:
            return float(value)
        if hint is int and abs(value) < 2**53 and value == int(value):
            return int(value)
        if hint is bool and value in (0, 1):
            return bool(value)
    raise _make_type_error(value, hint, location)


def _coerce_list(value: Any, item: Any, location: str) -> list[Any]:
    if isinstance(value, str):
        parsed = _parse_json(value) if value.lstrip()[:1] in ("[", "{") else value
        value = parsed if isinstance(parsed, list | dict) else value
    if isinstance(value, str) and _strip_none(item) is not str:
        raise _make_type_error(value, list[item], location)
    if isinstance(value, str | dict):
        value = [value]
    if not isinstance(value, list):
        raise _make_type_error(value, list[item], location)
    return [coerce(element, item, f"{location}[{index}]") for index, element in enumerate(value)]


def _coerce_object(value: dict[str, Any], hint: Any, location: str) -> dict[str, Any]:
    fields = typing.get_type_hints(hint)
    for name in value:
        if name not in fields:
            raise ToolError(f"Unknown key {name!r} in {location}. Accepted: {', '.join(fields)}.")
    missing = [name for name in fields if value.get(name) is None]
    if missing:
        raise ToolError(f"{location} lacks {', '.join(map(repr, missing))}: {_describe_type(hint)} is needed.")
    return {name: coerce(value[name], kind, f"{location}.{name}") for name, kind in fields.items()}


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _strip_none(hint: Any) -> Any:
    """Return the type without its `| None`."""
    if get_origin(hint) in (types.UnionType, typing.Union):
        return next(member for member in get_args(hint) if member is not type(None))
    return hint


def _make_type_schema(hint: Any) -> dict[str, Any]:
    hint = _strip_none(hint)
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    if get_origin(hint) is list:
        return {"type": "array", "items": _make_type_schema(get_args(hint)[0])}
    if is_typeddict(hint):
        fields = {name: _make_type_schema(kind) for name, kind in typing.get_type_hints(hint).items()}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    raise TypeError(f"a tool's parameter cannot be a {hint}")


def _describe_type(hint: Any) -> str:
    hint = _strip_none(hint)
    if hint in _JSON_TYPES:
        return f"a {_JSON_TYPES[hint]}".replace("a integer", "an integer")
    if get_origin(hint) is list:
        noun, _, qualifier = _describe_type(get_args(hint)[0]).split(" ", 1)[1].partition(" ")
        return f"a list of {noun}s{', each ' + qualifier if qualifier else ''}"
    names = ", ".join(f'"{name}"' for name in typing.get_type_hints(hint))
    return f"an object with {names}"


def _make_type_error(value: Any, hint: Any, location: str) -> ToolError:
    value_json = json.dumps(value, default=str)
    value_json = value_json if len(value_json) <= 80 else value_json[:79] + "…"
    return ToolError(f"Argument {location}: {_describe_type(hint)} is needed, got {value_json}.")


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(list(inspect.signature(function).parameters.items())[1:])


def _parse_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    text, _, args_section = inspect.getdoc(function).partition("\nArgs:\n")  # type: ignore[union-attr]
    descriptions: dict[str, str] = {}
    current_name = ""
    for line in args_section.split("\n"):
        if match := _ARGUMENT_LINE.match(line):
            current_name = match[1]
            descriptions[current_name] = match[2].strip()
        elif current_name and line.startswith(" " * 8):
            descriptions[current_name] += " " + line.strip()
        elif line.strip():
            current_name = ""
    return " ".join(text.split()), descriptions
