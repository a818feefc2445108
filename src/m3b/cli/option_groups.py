"""Groups of options: a parameter of a command that is a dataclass becomes one option for each of its fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of its dataclass parameters as options of their own."""
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if not (isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = parameter.annotation
        hints = get_type_hints(parameter.annotation, include_extras=True)
        parameters += [
            inspect.Parameter(
                item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default, annotation=hints[item.name]
            )
            for item in fields(parameter.annotation)
        ]

    @wraps(command)
    def run_command(**arguments: Any) -> None:
        values = {
            name: group(**{item.name: arguments.pop(item.name) for item in fields(group)})
            for name, group in groups.items()
        }
        command(**arguments, **values)

    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run_command
