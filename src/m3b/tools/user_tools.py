"""User tools: typed functions with a docstring that agents may call in addition to the eight tools."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

from m3b.errors import ToolError, UsageError
from m3b.tools import schema
from m3b.tools.context import ToolContext, ToolResult
from m3b.tools.toolbox import TOOLS

UserTool = Callable[..., str | ToolResult]
BoundTool = Callable[..., ToolResult]
REPORTED_ERRORS = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Errors of a user tool that are returned to the agent; any other error ends the run."""


def bind_user_tools(functions: Iterable[UserTool]) -> dict[str, BoundTool]:
    """Return the functions as tools of the toolbox, by name.

    Raises:
        UsageError: a function has no name, docstring or type hints, has a type that JSON schema cannot express, or has
            a name that is already in use.
    """
    tools_by_name: dict[str, BoundTool] = {}
    for function in functions:
        name = getattr(function, "__name__", "")
        if not name.isidentifier() or name in TOOLS or name in tools_by_name:
            raise UsageError(
                f"The tool {name or function!r} needs a name of its own; names in use: {', '.join((*TOOLS, *tools_by_name))}."
            )
        if not inspect.getdoc(function):
            raise UsageError(f"The tool {name} needs a docstring: agents read it to learn what the tool does.")
        tools_by_name[name] = _bind_user_tool(function, name)
    return tools_by_name


def _bind_user_tool(function: UserTool, name: str) -> BoundTool:
    hints = typing.get_type_hints(function)
    parameters = list(inspect.signature(function).parameters.values())
    if untyped := [parameter.name for parameter in parameters if parameter.name not in hints]:
        raise UsageError(f"The tool {name} has parameters without a type: {', '.join(untyped)}.")

    def tool(context: ToolContext, **arguments: Any) -> ToolResult:
        try:
            answer = function(**arguments)
        except REPORTED_ERRORS as error:
            raise ToolError(f"{name}: {type(error).__name__}: {error}") from error
        return answer if isinstance(answer, ToolResult) else ToolResult(str(answer))

    tool.__name__, tool.__doc__, tool.__annotations__ = name, function.__doc__, hints
    context_parameter = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    tool.__signature__ = inspect.Signature([context_parameter, *parameters])  # type: ignore[attr-defined]
    try:
        schema.make_tool_spec(tool)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"The tool {name} has a parameter that a JSON schema cannot describe: {error}.") from error
    return tool
