"""What can be asked of the reader: a function of m3b's own by name, with a typed question and a typed answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_type_hints

Q = TypeVar("Q")
A = TypeVar("A")
STALL_TIMEOUT_S = 120.0
_M3B_PREFIX = "m3b."


@dataclass(frozen=True)
class WorkerJob(Generic[Q, A]):
    """One kind of request.

    Both types are dataclasses, pydantic models or plain containers that pydantic can read; bytes travel as base64.

    Args:
        function_path: `module:function` of the function that answers, which takes the question alone. Only the reader imports it.
        input_type: the type of the question.
        output_type: the type of the answer, against which m3b checks what comes out of the process.
        stall_timeout_s: seconds that may pass without a further file being opened.
        parallel: whether several files are open at once. After an accident the question is asked once more with one file
            at a time, so that it is known which it was.
    """

    function_path: str
    input_type: type[Q]
    output_type: type[A]
    stall_timeout_s: float = STALL_TIMEOUT_S
    parallel: bool = False


def load_job_function(name: str) -> tuple[Callable[[Any], Any], Any, Any]:
    """The function of a request, and the types of its question and answer.

    Raises:
        ValueError: no function of m3b's own that takes one annotated argument.
    """
    module, _, function = name.partition(":")
    if not module.startswith(_M3B_PREFIX):
        raise ValueError(f"{name!r} is no function of m3b's own")
    job_function = getattr(importlib.import_module(module), function)
    hints = get_type_hints(job_function)
    answer = hints.pop("return")
    if len(hints) != 1:
        raise ValueError(f"{name!r} must take one annotated argument, the question")
    return job_function, next(iter(hints.values())), answer
