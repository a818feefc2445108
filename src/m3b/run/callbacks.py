"""Functions of the user's, called so that whatever they raise ends the run and not the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from m3b.errors import RunEnd, RunFailed, ToolError

P = ParamSpec("P")
R = TypeVar("R")


class CallbackError(RunFailed):
    """A function of the user's raised; `__cause__` is what."""


def guard_callback(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors end the run as `failed` with its name.

    Args:
        name: as the user knows it, e.g. `on_event`.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (RunEnd, ToolError):
            raise  # says on purpose how to go on
        except Exception as error:  # a function of the user's raises what it likes
            error_text = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CallbackError(
                f"`{name}`, which was given to m3b, raised {error_text}. Fix it, then resume."
            ) from error

    return wrapper
