"""Taking back what a piece of work began, where it does not come to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec

P = ParamSpec("P")


@contextmanager
def undo_on_error(undo: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Iterator[None]:
    """Call `undo` where the body raises anything, Ctrl-C included; the exception goes on."""
    with ExitStack() as stack:
        stack.callback(undo, *args, **kwargs)
        yield
        stack.pop_all()
