"""Python text is read whatever else parses in the same process."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from m3b.llm.calls import parse_arguments
from m3b.llm.python_text import parse_with_retries
from m3b.llm.text_calls import find_calls
from m3b.messages import ToolSpec

TOOL = ToolSpec("list_files", "", {"properties": {"path": {}, "depth": {}}})
NUMBERS = [[number, -number] for number in range(2000)]


class _ParsesAtItsEnd:
    """Garbage that only the collector frees, and whose finalizer parses, as a thread that prints a traceback does."""

    parse = staticmethod(ast.parse)

    def __init__(self) -> None:
        self.me = self

    def __del__(self, deeper: int = 40) -> None:
        if deeper:  # the depth of the stack is where the count starts
            self.__del__(deeper - 1)
        else:
            self.parse("f(x)")


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first parse has another one within it; gives what was parsed."""
    parse, parsed = ast.parse, []

    def parse_with_garbage(source: str, *args: Any, **kwargs: Any) -> ast.AST:
        parsed.append(source)
        if len(parsed) == 1:
            gc.collect()
            for _ in range(3):
                _ParsesAtItsEnd()
        return parse(source, *args, **kwargs)

    monkeypatch.setattr(ast, "parse", parse_with_garbage)
    return parsed


@pytest.mark.skipif(sys.version_info >= (3, 11, 8), reason="that Python counts the depth of each parse for itself")
def test_this_python_fails_where_a_parse_runs_within_another(disturbed: list[str]) -> None:
    with pytest.raises(SystemError, match="recursion depth mismatch"):
        ast.parse(f"{NUMBERS}")


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_with_retries(ast.literal_eval, f"{{'path': 'data', 'depth': {NUMBERS}}}"),
        lambda: parse_arguments(f"{{'path': 'data', 'depth': {NUMBERS}}}")[0],
        lambda: find_calls(f"list_files(path='data', depth={NUMBERS})", [TOOL])[1][0].arguments,
    ],
    ids=["text", "arguments in single quotes", "a call in the text"],
)
def test_calls_are_read_while_something_else_parses(
    read: Callable[[], dict[str, object]], disturbed: list[str]
) -> None:
    assert read() == {"path": "data", "depth": NUMBERS}
    assert disturbed


@pytest.mark.parametrize("text", ["f(", "1 +", "\0"])
def test_what_is_no_python_is_refused(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        parse_with_retries(ast.parse, text)
