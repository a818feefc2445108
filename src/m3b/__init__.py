"""m3b: one request in, one verified medical-imaging model out.

`Pipeline(llm=..., data=...).run(request)` gives a `Result`; `load_model(folder)` loads what it delivered. Nothing
heavy is imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3b.data.cards import Card
    from m3b.models import load_model
    from m3b.models.exporting import export_model
    from m3b.options import Options
    from m3b.pipeline import Pipeline, resume
    from m3b.result import Result
    from m3b.tasks import TaskFamily, register_task
    from m3b.workspace import Workspace

__version__ = "0.1.0"
__all__ = [
    "Card",
    "Options",
    "Pipeline",
    "Result",
    "TaskFamily",
    "Workspace",
    "export_model",
    "load_model",
    "register_task",
    "resume",
]

_HOMES = {
    "Card": "m3b.data.cards",
    "Options": "m3b.options",
    "Pipeline": "m3b.pipeline",
    "Result": "m3b.result",
    "TaskFamily": "m3b.tasks",
    "Workspace": "m3b.workspace",
    "export_model": "m3b.models.exporting",
    "load_model": "m3b.models",
    "register_task": "m3b.tasks",
    "resume": "m3b.pipeline",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'm3b' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
