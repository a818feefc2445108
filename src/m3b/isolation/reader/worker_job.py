"""Worker jobs: functions of m3b that the reader process runs by name, with typed input and output."""

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
    """A function that the reader process can run.

    Both types are dataclasses, pydantic models or containers that pydantic can validate; bytes are sent as base64.

    Args:
        function_path: `module:function` of the function, which takes the input as its only argument. Only the reader
            imports it.
        input_type: the type of the input.
        output_type: the type of the output; m3b validates what comes out of the process against it.
        stall_timeout_s: maximum time in seconds without another file being opened.
        parallel: whether several files are open at once. After a crash the job is run once more with one file at a
            time, to find the file that caused it.
    """

    function_path: str
    input_type: type[Q]
    output_type: type[A]
    stall_timeout_s: float = STALL_TIMEOUT_S
    parallel: bool = False


def load_job_function(name: str) -> tuple[Callable[[Any], Any], Any, Any]:
    """Return the function of a worker job by its path, and the types of its input and output.

    Raises:
        ValueError: this is not a function of m3b that takes one annotated argument.
    """
    module, _, function = name.partition(":")
    if not module.startswith(_M3B_PREFIX):
        raise ValueError(f"{name!r} is not a function of m3b")
    job_function = getattr(importlib.import_module(module), function)
    hints = get_type_hints(job_function)
    output_type = hints.pop("return")
    if len(hints) != 1:
        raise ValueError(f"{name!r} must take one annotated argument, the input")
    return job_function, next(iter(hints.values())), output_type
