"""Task families: how a prediction is measured, what the image-blind baseline is, and how all cases are scored.

A family turns an index record and the model's prediction into a row of plain JSON values at once, so that masks can
be dropped case by case. Rows are stored and scored later.

Each of m3b's own tasks is a package that is loaded on demand: `answers` (the answers of predict.py), `metrics` (names
and scoring), `report_section` (if the report page shows something of its own), and `family` (everything together).
Users add a family of their own with `register_task`, or with an entry point of the group `m3b.tasks`.
"""

from __future__ import annotations

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


def register_task(task_family: TaskFamily) -> TaskFamily:
    """Make a task family known in this process: to runs, checks, audit, model cards, reports and the command line.

    Raises:
        ValueError: another family has this name, or another task has a metric of the same name with the opposite
            direction.
    """
    task_family.register()
    return task_family


def get_family(task: str) -> TaskFamily:
    """Return the family of a task.

    Raises:
        ValueError: the task is unknown.
    """
    task_family = FAMILIES.get(task)
    if task_family is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(names())}")
    return task_family


def list_families() -> list[TaskFamily]:
    """Return all families, m3b's own first."""
    return [get_family(name) for name in names()]


def find_requested_task(request: str) -> str:
    """Return the task that the words of a request name; empty if they name none.

    "Detect" alone names none: a model that detects pneumonia may well be a classifier. If several families match, the
    one that was registered last wins: among m3b's own, "write a report that locates the nodules" is a report.
    """
    from m3b.request_words import fold_accents

    text = fold_accents(request)
    return next((task_family.name for task_family in reversed(list_families()) if task_family.is_named_in(text)), "")


def get_default_metric(index: Index) -> str:
    """Return the metric by which an index is judged unless the user asks for another."""
    return get_family(index.task).get_default_metric(index)
