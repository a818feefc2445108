"""Registries for what can be added to m3b from outside, filled from entry points on demand."""

from __future__ import annotations

import sys
import threading
import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

ENTRY_POINT_GROUPS = {"m3b.tasks": "task family", "m3b.metrics": "metric"}
"""Entry points of these groups name objects with a `register()` method, as each `m3b.TaskFamily` and `m3b.Metric`
has."""

T = TypeVar("T")
_lock = threading.RLock()
_loaded: set[str] = set()


class Registry(Generic[T]):
    """Items by name, in the order in which they were added.

    Installed plug-ins are loaded when all names or an unknown one are requested.

    Args:
        item_kind: what the items are, for messages.
    """

    def __init__(self, item_kind: str) -> None:
        self.item_kind = item_kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> None:
        """Add an item; the same item may be added again.

        Raises:
            ValueError: another item has this name.
        """
        if self._items.setdefault(name, item) is not item:
            raise ValueError(f"There is a {self.item_kind} {name!r} already; choose another name.")

    def get(self, name: str) -> T | None:
        """Return the item of a name; None if there is none."""
        if name not in self._items:
            load_plugins()
        return self._items.get(name)

    def added_names(self) -> tuple[str, ...]:
        """Return the names added so far, without loading plug-ins."""
        return tuple(self._items)

    def names(self) -> tuple[str, ...]:
        """Return all names, those of m3b itself first."""
        load_plugins()
        return tuple(self._items)


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
