"""Runs an external Python program in its own interpreter, without limits that its command line cannot change.

python launcher.py NAME STEPS PROGRAM ARGUMENTS...

The budget of the run is the limit instead. A program that crashes ends at once with all its processes: AIDE would wait
for its worker for ever. Uses only the standard library, because it runs where only the other program is installed.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import sys
import traceback
from types import ModuleType, TracebackType


def lift_aider(steps: int) -> None:
    """Raise aider's limit of three reactions to a failed test, after which it waits for a user.

    Also register the model for chat completions: aider would ask some models by name through the responses API, which
    the relay does not support.
    """
    routed_model = os.environ["M3B_ROUTED_MODEL"]
    chat = {"litellm_provider": routed_model.partition("/")[0], "mode": "chat"}
    importlib.import_module("litellm").register_model({routed_model: chat})
    importlib.import_module("aider.coders").Coder.max_reflections = steps


def lift_smolagents(steps: int) -> None:
    """Raise smolagents' limits of 20 steps and of 30 s for code, and allow `open`."""
    agent = importlib.import_module("smolagents").CodeAgent
    executor = {"timeout_seconds": None, "additional_functions": {"open": open}}
    agent.__init__ = functools.partialmethod(agent.__init__, max_steps=steps, executor_kwargs=executor)


def lift_crea(steps: int) -> None:
    """Let CREA keep its knowledge base, which it always opens, in the working directory."""
    _move_knowledge_base(importlib.import_module("crea.monai_rag.query_rag_db"))


def lift_meddle(steps: int) -> None:
    """Let MedDLE keep its knowledge base, which it always opens, in the working directory."""
    _move_knowledge_base(importlib.import_module("meddle.monai_rag.query_rag_db"))


def _move_knowledge_base(module: ModuleType) -> None:
    knowledge_base = module.MED_KNOWLEDGE_RAG
    knowledge_base.__init__ = functools.partialmethod(knowledge_base.__init__, persist_dir="knowledge_base")


def lift_mlzero(steps: int) -> None:
    """Accept the model of the relay, keep the index of tutorials in the working directory, retry no request, name the Python.

    mlzero knows the models of its providers by name, and would wait minutes for a model that refuses.
    """
    base_chat = importlib.import_module("autogluon.assistant.llm.base_chat")
    factory = importlib.import_module("autogluon.assistant.llm.llm_factory")
    indexing = importlib.import_module("autogluon.assistant.tools_registry.indexing")
    base_chat.BaseAssistantChat.assistant_chat.retry.stop = importlib.import_module("tenacity").stop_after_attempt(1)
    factory.ChatLLMFactory.get_valid_models = classmethod(lambda cls, provider: ["relay"])
    os.environ["MLZERO_PYTHON"] = sys.executable
    indexing.__file__ = os.path.abspath("mlzero-tutorials/indexing.py")


LIFTS = {
    "aider": lift_aider,
    "smolagents": lift_smolagents,
    "crea": lift_crea,
    "meddle": lift_meddle,
    "mlzero": lift_mlzero,
}


def exit_at_once(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End the program without waiting for its child processes; the sandbox ends them."""
    traceback.print_exception(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def main(arguments: list[str]) -> None:
    """Lift the limits of the program, then run it in this process."""
    name, steps, *command = arguments
    try:
        if name in LIFTS:
            LIFTS[name](int(steps))
    except (ImportError, AttributeError) as error:
        print(f"{name} keeps the limits of its command: {error}", file=sys.stderr)
    sys.argv = command
    sys.path.pop(0)  # the folder of this file, which the program would not have otherwise
    sys.excepthook = exit_at_once
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
