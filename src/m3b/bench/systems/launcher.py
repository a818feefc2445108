"""Runs a Python program in its own interpreter, with limits lifted for which its command line has no option.

python launcher.py NAME STEPS PROGRAM ARGUMENTS...

A program that breaks down ends at once, whatever it has started: AIDE would wait for its own worker for ever.
The standard library alone: it runs where only the other program is installed. The budget of the run is the limit instead.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import sys
import traceback
from types import TracebackType


def lift_aider(steps: int) -> None:
    """Its command ends after three answers to its own test; nobody is there to say "go on".

    It takes some models' names for ones that must be asked through the responses API, which the relay does not speak.
    """
    routed_model = os.environ["M3B_ROUTED_MODEL"]
    chat = {"litellm_provider": routed_model.partition("/")[0], "mode": "chat"}
    importlib.import_module("litellm").register_model({routed_model: chat})
    importlib.import_module("aider.coders").Coder.max_reflections = steps


def lift_smolagents(steps: int) -> None:
    """Its command ends after 20 steps, gives up on code after 30 seconds, and has no `open`."""
    agent = importlib.import_module("smolagents").CodeAgent
    executor = {"timeout_seconds": None, "additional_functions": {"open": open}}
    agent.__init__ = functools.partialmethod(agent.__init__, max_steps=steps, executor_kwargs=executor)


LIFTS = {"aider": lift_aider, "smolagents": lift_smolagents}


def exit_at_once(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The program is over, and waits for nothing that it has started: the sandbox ends what is left."""
    traceback.print_exception(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def main(arguments: list[str]) -> None:
    """Lift what can be lifted, then become the program."""
    name, steps, *command = arguments
    try:
        if name in LIFTS:
            LIFTS[name](int(steps))
    except (ImportError, AttributeError) as error:
        print(f"{name} keeps the limits of its command: {error}", file=sys.stderr)
    sys.argv = command
    sys.path.pop(0)  # m3b's folder, which the program itself would not have
    sys.excepthook = exit_at_once
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
