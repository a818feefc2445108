"""The metrics of a task in one object: names, aliases, which way is better, what a verdict compares; and their registry.

`m3b.tasks.TaskFamily` has its table as `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from m3b.plugins import Registry


@dataclass(frozen=True)
class MetricTable:
    """The metrics that models of one task are measured by.

    Args:
        names: canonical name -> aliases that people write, in the order in which tables show them.
        default: the metric that a model is judged by unless somebody asks for another.
        lower_is_better: those of which less is better.
        unbounded: those that are no shares between 0 and 1, such as millimetres.
        best: perfect figure of those metrics for which more is better that are no shares.
        companions: metrics that a model without any skill can win, and the one that has to beat the image-blind baseline
            in their place.
        alongside: metrics that must not be worse than the image-blind baseline, whichever of them a model is judged by.
        remarked: metrics of which it is only said where they are worse than that.
        decisions: a metric of the model's decisions that has to beat the image-blind baseline too; empty for none.
        rarer_class: whether of two classes the rarer one says how many patients a figure rests on.
    """

    names: Mapping[str, tuple[str, ...]]
    default: str
    lower_is_better: frozenset[str] = frozenset()
    unbounded: frozenset[str] = frozenset()
    best: Mapping[str, float] = field(default_factory=dict)
    companions: Mapping[str, str] = field(default_factory=dict)
    alongside: tuple[str, ...] = ()
    remarked: tuple[str, ...] = ()
    decisions: str = ""
    rarer_class: bool = False

    def __post_init__(self) -> None:
        told = {self.default, *self.lower_is_better, *self.unbounded, *self.best, *self.companions, *self.companions.values(),
                *self.alongside, *self.remarked, *filter(None, [self.decisions])}  # fmt: skip
        if unknown := sorted(told - set(self.names)):
            raise ValueError(f"The table of metrics speaks of {', '.join(unknown)}, and names {', '.join(self.names)}.")


@dataclass(frozen=True)
class AddedMetric:
    """What is known of a metric that somebody added to a task's table; `metric` is what measures it."""

    lower_is_better: bool
    unbounded: bool
    aliases: tuple[str, ...]
    metric: Any


_TABLES: Registry[MetricTable] = Registry("table of metrics for")
_ADDED: dict[str, dict[str, AddedMetric]] = {}
"""Task -> metric -> what was added."""


def add_table(task: str, table: MetricTable) -> None:
    """Register the metrics of a task.

    Raises:
        ValueError: the task has another table, or a metric of this name is better the other way round elsewhere.
    """
    for name in table.names:
        for other in (one for one in _known() if name in one.names):
            if (name in other.lower_is_better) != (name in table.lower_is_better):
                raise ValueError(f"There is a metric {name!r} that is better the other way round; name it differently.")
    _TABLES.add(task, table)


def add_metric(task: str, name: str, added: AddedMetric) -> None:
    """Add a metric to a task's table; one of this name that was added before is replaced.

    Raises:
        ValueError: there is no such task, its family has a metric of this name, or a metric of this name is better the
            other way round elsewhere.
    """
    if (own := _TABLES.get(task)) is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(_TABLES.names())}")
    if name in own.names:
        raise ValueError(f"The task {task} has a metric {name!r} of its own; choose another name.")
    for other in (other for other in _TABLES.names() if other != task and name in table(other).names):
        if (name in table(other).lower_is_better) != added.lower_is_better:
            raise ValueError(f"There is a metric {name!r} that is better the other way round; name it differently.")
    _ADDED.setdefault(task, {})[name] = added


def added_metrics(task: str) -> list[Any]:
    """What measures the metrics that were added to a task."""
    _TABLES.names()  # loads what is installed
    return [one.metric for one in _ADDED.get(task, {}).values()]


def _known() -> list[MetricTable]:
    return [table(task) for task in _TABLES.known()]


def tables() -> Iterator[MetricTable]:
    """Those of all tasks, m3b's own first."""
    return (table(task) for task in _TABLES.names())


def table(task: str) -> MetricTable:
    """The metrics of a task.

    Raises:
        ValueError: an unknown task.
    """
    found = _TABLES.get(task)
    if found is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(_TABLES.names())}")
    if not (more := _ADDED.get(task)):
        return found
    return replace(
        found,
        names={**found.names, **{name: one.aliases for name, one in more.items()}},
        lower_is_better=found.lower_is_better | {name for name, one in more.items() if one.lower_is_better},
        unbounded=found.unbounded | {name for name, one in more.items() if one.unbounded},
    )


def tasks() -> tuple[str, ...]:
    """The tasks that have metrics."""
    return _TABLES.names()


def lower_is_better(name: str) -> bool:
    """Whether less of a metric is better."""
    return any(name in one.lower_is_better for one in tables())


def unbounded(name: str) -> bool:
    """Whether a metric is no share between 0 and 1."""
    return any(name in one.unbounded for one in tables())


def best_value(name: str) -> float | None:
    """Return the figure of a perfect answer; None if it is not known."""
    if lower_is_better(name):
        return 0.0
    if not unbounded(name):
        return 1.0
    return next((owner.best[name] for owner in tables() if name in owner.best), None)
