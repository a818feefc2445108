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
        default_metric: the metric that a model is judged by unless somebody asks for another.
        lower_is_better: those of which less is better.
        unbounded: those that are no shares between 0 and 1, such as millimetres.
        best: perfect figure of those metrics for which more is better that are no shares.
        companions: metrics that a model without any skill can win, and the one that has to beat the image-blind baseline
            in their place.
        guarded_metrics: metrics that must not be worse than the image-blind baseline, whichever of them a model is judged by.
        noted_metrics: metrics of which it is only said where they are worse than that.
        decision_metric: a metric of the model's decisions that has to beat the image-blind baseline too; empty for none.
        uses_rarer_class: whether of two classes the rarer one says how many patients a figure rests on.
    """

    names: Mapping[str, tuple[str, ...]]
    default_metric: str
    lower_is_better: frozenset[str] = frozenset()
    unbounded: frozenset[str] = frozenset()
    best: Mapping[str, float] = field(default_factory=dict)
    companions: Mapping[str, str] = field(default_factory=dict)
    guarded_metrics: tuple[str, ...] = ()
    noted_metrics: tuple[str, ...] = ()
    decision_metric: str = ""
    uses_rarer_class: bool = False

    def __post_init__(self) -> None:
        mentioned = {self.default_metric, *self.lower_is_better, *self.unbounded, *self.best, *self.companions,
        *self.companions.values(),
                *self.guarded_metrics, *self.noted_metrics, *filter(None, [self.decision_metric])}  # fmt: skip
        if unknown := sorted(mentioned - set(self.names)):
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
        for registered in (existing for existing in _registered_tables() if name in existing.names):
            if (name in registered.lower_is_better) != (name in table.lower_is_better):
                raise ValueError(f"There is a metric {name!r} that is better the other way round; name it differently.")
    _TABLES.add(task, table)


def add_metric(task: str, name: str, added: AddedMetric) -> None:
    """Add a metric to a task's table; one of this name that was added before is replaced.

    Raises:
        ValueError: there is no such task, its family has a metric of this name, or a metric of this name is better the
            other way round elsewhere.
    """
    if (task_table := _TABLES.get(task)) is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(_TABLES.names())}")
    if name in task_table.names:
        raise ValueError(f"The task {task} has a metric {name!r} of its own; choose another name.")
    for other_task in (
        other_task for other_task in _TABLES.names() if other_task != task and name in metric_table(other_task).names
    ):
        if (name in metric_table(other_task).lower_is_better) != added.lower_is_better:
            raise ValueError(f"There is a metric {name!r} that is better the other way round; name it differently.")
    _ADDED.setdefault(task, {})[name] = added


def added_metrics(task: str) -> list[Any]:
    """What measures the metrics that were added to a task."""
    _TABLES.names()  # loads what is installed
    return [added.metric for added in _ADDED.get(task, {}).values()]


def _registered_tables() -> list[MetricTable]:
    return [metric_table(task) for task in _TABLES.added_names()]


def metric_tables() -> Iterator[MetricTable]:
    """Those of all tasks, m3b's own first."""
    return (metric_table(task) for task in _TABLES.names())


def metric_table(task: str) -> MetricTable:
    """The metrics of a task.

    Raises:
        ValueError: an unknown task.
    """
    base_table = _TABLES.get(task)
    if base_table is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(_TABLES.names())}")
    if not (additions := _ADDED.get(task)):
        return base_table
    return replace(
        base_table,
        names={**base_table.names, **{name: added.aliases for name, added in additions.items()}},
        lower_is_better=base_table.lower_is_better
        | {name for name, added in additions.items() if added.lower_is_better},
        unbounded=base_table.unbounded | {name for name, added in additions.items() if added.unbounded},
    )


def tasks_with_metrics() -> tuple[str, ...]:
    """The tasks that have metrics."""
    return _TABLES.names()


def lower_is_better(name: str) -> bool:
    """Whether less of a metric is better."""
    return any(name in task_table.lower_is_better for task_table in metric_tables())


def is_unbounded(name: str) -> bool:
    """Whether a metric is no share between 0 and 1."""
    return any(name in task_table.unbounded for task_table in metric_tables())


def best_value(name: str) -> float | None:
    """Return the figure of a perfect answer; None if it is not known."""
    if lower_is_better(name):
        return 0.0
    if not is_unbounded(name):
        return 1.0
    return next((owner.best[name] for owner in metric_tables() if name in owner.best), None)
