"""Python source read by `ast`, also while other threads or finalizers parse.

CPython 3.11.0 to 3.11.7 counts the depth of the tree in one place for the whole interpreter: where a second parse runs within a first
(a finalizer that the garbage collector calls, a thread that prints a traceback), the first ends in a `SystemError` ("AST constructor
recursion depth mismatch", https://github.com/python/cpython/issues/106905). The text is not at fault, and another try reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

ParsedT = TypeVar("ParsedT")
MAX_TRIES = 5


def parse_with_retries(parse: Callable[[str], ParsedT], source: str) -> ParsedT:
    """Return what `parse` (`ast.parse`, `ast.literal_eval`) makes of `source`. Its errors are raised as they are."""
    for _ in range(MAX_TRIES - 1):
        try:
            return parse(source)
        except SystemError:
            continue
    return parse(source)
