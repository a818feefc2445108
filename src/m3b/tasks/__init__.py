"""The task families: how one answer of a model is measured, what the image-blind baseline is, how all are scored.

A family turns a record of the index and the model's answer into a row of plain JSON values at once, so that masks can
be thrown away case by case; rows are stored and scored later. A family of one's own is a `TaskFamily` that is given to
`register_task`, or named by an entry point of the group `m3b.tasks`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from m3b.data.kinds import names
from m3b.tasks.user_metric import Metric, score_all

from .base import FAMILIES, Row, TaskFamily

if TYPE_CHECKING:
    from m3b.data.index import Index

__all__ = [
    "Metric",
    "Row",
    "TaskFamily",
    "find_requested_task",
    "get_default_metric",
    "list_families",
    "get_family",
    "names",
    "register_task",
    "score_all",
]


_BUILTIN_TASKS = ("diagnosis", "segmentation", "detection", "report", "grading", "regression", "survival")


@cache
def _register_builtin(name: str) -> None:
    """One of m3b's own, which are a module each and are loaded when asked for: they bring what measures masks."""
    import_module(f".{name}", __name__).FAMILY.register()


def _register_builtins() -> None:
    for name in _BUILTIN_TASKS:
        _register_builtin(name)


def register_task(task_family: TaskFamily) -> TaskFamily:
    """Make a task family known in this process: to runs, checks, audit, model cards, reports and the command line.

    Raises:
        ValueError: another family has this name, or one of its metrics is better the other way round elsewhere.
    """
    _register_builtins()
    task_family.register()
    return task_family


def get_family(task: str) -> TaskFamily:
    """The family of a task.

    Raises:
        ValueError: an unknown task.
    """
    if task in _BUILTIN_TASKS:
        _register_builtin(task)
    task_family = FAMILIES.get(task)
    if task_family is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(names())}")
    return task_family


def list_families() -> list[TaskFamily]:
    """All families, m3b's own first."""
    return [get_family(name) for name in names()]


def find_requested_task(request: str) -> str:
    """The task that a request's words name; empty where they leave it open.

    "Detect" alone leaves it open: a model that detects pneumonia may well be a classifier. Of several the family that was
    registered last is taken: of m3b's own, "write a report that locates the nodules" is a report.
    """
    from m3b.data.spec.proposals.language import plain

    text = plain(request)
    return next((task_family.name for task_family in reversed(list_families()) if task_family.is_named_in(text)), "")


def get_default_metric(index: Index) -> str:
    """The metric that an index is judged by unless somebody asks for another."""
    return get_family(index.task).get_default_metric(index)
