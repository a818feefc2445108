"""Registries of what each task has, filled on demand: from m3b's own tasks, and from entry points of installed packages."""

from __future__ import annotations

import sys
import threading
import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

ENTRY_POINT_GROUPS = {"m3b.tasks": "task family", "m3b.metrics": "metric", "m3b.audit_checks": "audit check"}
"""Entry points of these groups name objects with a `register()` method, as each `m3b.TaskFamily`, `m3b.Metric` and
`m3b.dataset.audit.AuditCheck` has."""

BUILTIN_TASKS = ("diagnosis", "segmentation", "detection", "report", "grading", "regression", "survival")
"""m3b's own tasks in the order of lists; the family of each is `FAMILY` in the package `m3b.tasks.NAME`."""

T = TypeVar("T")
_lock = threading.RLock()
_loaded: set[str] = set()


class TaskRegistry(Generic[T]):
    """What each task has, by the name of the task: m3b's own tasks first, then others in the order of registration.

    A built-in task is loaded when it is requested. Installed plug-ins are loaded when all names or an unknown one are
    requested.

    Args:
        item_kind: what the items are, for messages.
    """

    def __init__(self, item_kind: str) -> None:
        self.item_kind = item_kind
        self._items: dict[str, T] = {}

    def add(self, task: str, item: T) -> None:
        """Add the item of a task; the same item may be added again.

        Raises:
            ValueError: the task has another item.
        """
        if self._items.setdefault(task, item) is not item:
            raise ValueError(f"There is a {self.item_kind} {task!r} already; choose another name.")

    def get(self, task: str) -> T | None:
        """Return the item of a task; None if there is no such task."""
        if task not in self._items:
            load_task(task)
        return self._items.get(task)

    def names(self) -> tuple[str, ...]:
        """Return the names of all tasks, those of m3b itself first."""
        load_plugins()
        for task in BUILTIN_TASKS:
            if task not in self._items:
                load_task(task)
        return (*BUILTIN_TASKS, *(task for task in self._items if task not in BUILTIN_TASKS))


def load_task(name: str) -> None:
    """Register m3b's own task of this name, else the installed plug-ins, one of which may have it."""
    if name in BUILTIN_TASKS:
        EntryPoint(name, f"m3b.tasks.{name}:FAMILY", "m3b.tasks").load().register()
    else:
        load_plugins()


def load_plugins() -> None:
    """Register the installed entry points of `ENTRY_POINT_GROUPS`, once per process; warn of broken ones."""
    with _lock:
        for point, item_kind in _find_entry_points(tuple(sys.path)):
            if point.value not in _loaded:
                _loaded.add(point.value)
                _register_plugin(point, item_kind)


@cache
def _find_entry_points(path: tuple[str, ...]) -> tuple[tuple[EntryPoint, str], ...]:
    """Return the entry points below the folders of a Python path; takes 10 ms or more with many packages."""
    return tuple(
        (point, item_kind) for group, item_kind in ENTRY_POINT_GROUPS.items() for point in entry_points(group=group)
    )


def is_installed(item: object) -> bool:
    """Return whether other processes of this installation have the item too: from m3b or from an installed plug-in."""
    load_plugins()
    package = type(item).__module__.partition(".")[0]
    return package in {"m3b", *(value.partition(":")[0].partition(".")[0] for value in _loaded)}


def _register_plugin(point: EntryPoint, item_kind: str) -> None:
    try:
        point.load().register()
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # one broken plug-in does not stop the others
        message = f"The {item_kind} {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
