"""Tools of the user's own: any typed function with a docstring, offered to agents beside the eight."""

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
"""What a tool may raise and the agent then reads; anything else ends the run."""


def bind_user_tools(functions: Iterable[UserTool]) -> dict[str, BoundTool]:
    """The functions as the toolbox calls them, by name.

    Raises:
        UsageError: a function without name, docstring or types, of a type that no schema holds, or of a name that is taken.
    """
    tools_by_name: dict[str, BoundTool] = {}
    for function in functions:
        name = getattr(function, "__name__", "")
        if not name.isidentifier() or name in TOOLS or name in tools_by_name:
            raise UsageError(
                f"The tool {name or function!r} needs a name of its own; taken are {', '.join((*TOOLS, *tools_by_name))}."
            )
        if not inspect.getdoc(function):
            raise UsageError(f"The tool {name} needs a docstring: it is what agents are told of it.")
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
    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    tool.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    try:
        schema.make_tool_spec(tool)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"The tool {name} has a parameter that no JSON schema holds: {error}.") from error
    return tool
