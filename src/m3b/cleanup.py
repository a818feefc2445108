"""Undoing an unfinished piece of work after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec

P = ParamSpec("P")


@contextmanager
def undo_on_error(undo: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Iterator[None]:
    """Call `undo` if the body raises anything, Ctrl-C included; the exception propagates."""
    with ExitStack() as stack:
        stack.callback(undo, *args, **kwargs)
        yield
        stack.pop_all()
