"""The four task families: how one answer of a model is measured, what a trivial answer is worth, how all are scored.

A family turns a record of the index and the model's answer into a row of plain JSON values at once, so that masks can
be thrown away case by case; rows are stored and scored later.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from .base import DEFAULT_METRIC, Family, Row

if TYPE_CHECKING:
    from m3b.data.index import Index

__all__ = ["DEFAULT_METRIC", "TASKS", "Family", "Row", "default_metric", "family"]

TASKS = ("diagnosis", "segmentation", "detection", "report")


def family(task: str) -> Family:
    """The family of a task.

    Raises:
        ValueError: an unknown task.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(TASKS)}")
    return cast(Family, import_module(f".{task}", __name__).FAMILY)


def default_metric(index: Index) -> str:
    """The metric that an index is judged by unless somebody asks for another."""
    return "map_50" if index.boxed else DEFAULT_METRIC[index.task]
