"""m3b: one request in, one verified medical-imaging model out.

`Pipeline(llm=..., data=...).run(request)` returns a `Result`; `load_model(folder)` loads the delivered model. Heavy
packages are imported only when they are used.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3b.agents.roles import Role
    from m3b.data.cards import Card
    from m3b.errors import DataError, IntegrityError, LLMError, M3bError, ModelError, SandboxError, UsageError
    from m3b.events import Event
    from m3b.llm import LLM, connect
    from m3b.measure import Measure
    from m3b.metrics import MetricTable
    from m3b.models import Prediction, load_model
    from m3b.models.export import export_model
    from m3b.remote.mirror import mirror
    from m3b.run.extending import ExtendedData, extend_data
    from m3b.run.handle import RunHandle
    from m3b.run.options import Options
    from m3b.run.paper_kit import write_paper_kit
    from m3b.run.pipeline import Pipeline, resume, train_more
    from m3b.run.result import Result
    from m3b.run.stages import Stage
    from m3b.run.training_overrides import TrainingOverrides
    from m3b.run.verification import verify
    from m3b.tasks import Metric, TaskFamily, register_task
    from m3b.workspace import Workspace

logging.getLogger("m3b").addHandler(logging.NullHandler())  # a program that uses the library decides what is shown

__version__ = "0.1.0"
__all__ = [
    "Card",
    "DataError",
    "Event",
    "ExtendedData",
    "IntegrityError",
    "LLM",
    "LLMError",
    "M3bError",
    "Measure",
    "Metric",
    "MetricTable",
    "ModelError",
    "Options",
    "Pipeline",
    "Prediction",
    "Result",
    "Role",
    "RunHandle",
    "SandboxError",
    "Stage",
    "TaskFamily",
    "TrainingOverrides",
    "Workspace",
    "UsageError",
    "connect",
    "export_model",
    "extend_data",
    "load_model",
    "mirror",
    "register_task",
    "resume",
    "train_more",
    "verify",
    "write_paper_kit",
]

_MODULE_BY_NAME = {
    "Card": "m3b.data.cards",
    "DataError": "m3b.errors",
    "Event": "m3b.events",
    "ExtendedData": "m3b.run.extending",
    "IntegrityError": "m3b.errors",
    "LLM": "m3b.llm",
    "LLMError": "m3b.errors",
    "M3bError": "m3b.errors",
    "Measure": "m3b.measure",
    "Metric": "m3b.tasks",
    "MetricTable": "m3b.metrics",
    "ModelError": "m3b.errors",
    "Options": "m3b.run.options",
    "Pipeline": "m3b.run.pipeline",
    "Prediction": "m3b.models",
    "Result": "m3b.run.result",
    "Role": "m3b.agents.roles",
    "RunHandle": "m3b.run.handle",
    "SandboxError": "m3b.errors",
    "Stage": "m3b.run.stages",
    "TaskFamily": "m3b.tasks",
    "TrainingOverrides": "m3b.run.training_overrides",
    "Workspace": "m3b.workspace",
    "UsageError": "m3b.errors",
    "connect": "m3b.llm",
    "extend_data": "m3b.run.extending",
    "export_model": "m3b.models.export",
    "load_model": "m3b.models",
    "mirror": "m3b.remote.mirror",
    "register_task": "m3b.tasks",
    "resume": "m3b.run.pipeline",
    "train_more": "m3b.run.pipeline",
    "verify": "m3b.run.verification",
    "write_paper_kit": "m3b.run.paper_kit",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_BY_NAME:
        import importlib

        return getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    raise AttributeError(f"module 'm3b' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
