"""Metric tables: the metrics of a task with names, direction and role in the verdict; and the registry of tables.

Each task defines its table in its package (`m3b.tasks`); `m3b.tasks.TaskFamily` has it as `metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from m3b.plugins import BUILTIN_TASKS, TaskRegistry


@dataclass(frozen=True)
class MetricTable:
    """The metrics by which models of one task are measured.

    Args:
        names: canonical name -> aliases that people write, in the order of tables.
        default_metric: the metric that a model is judged by unless the user asks for another.
        lower_is_better: metrics of which less is better.
        unbounded: metrics that are not shares between 0 and 1, such as millimetres.
        best: perfect value of unbounded metrics of which more is better.
        companions: metrics that a model without any skill can win -> the metric that has to beat the image-blind
            baseline instead.
        guarded_metrics: metrics that must not be worse than the image-blind baseline, whichever metric a model is
            judged by.
        noted_metrics: metrics that are only mentioned if they are worse than that baseline.
        decision_metric: a metric of the model's decisions that has to beat the image-blind baseline too; empty for
            none.
        uses_rarer_class: whether, with two classes, the rarer one determines the number of patients behind a value.
        titles: canonical name -> name in reports, without the direction; the canonical name if missing.
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
    titles: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mentioned = {
            self.default_metric,
            *self.lower_is_better,
            *self.unbounded,
            *self.best,
            *self.companions,
            *self.companions.values(),
            *self.titles,
            *self.guarded_metrics,
            *self.noted_metrics,
            *filter(None, [self.decision_metric]),
        }
        if unknown := sorted(mentioned - set(self.names)):
            raise ValueError(
                f"The table of metrics refers to {', '.join(unknown)}, but `names` only has {', '.join(self.names)}."
            )


@dataclass(frozen=True)
class AddedMetric:
    """Properties of a metric that a user added to a task's table; `metric` computes it."""

    lower_is_better: bool
    unbounded: bool
    aliases: tuple[str, ...]
    metric: Any


_TABLES: TaskRegistry[MetricTable] = TaskRegistry("table of metrics for")
_ADDED: dict[str, dict[str, AddedMetric]] = {}
"""Task -> metric -> its properties."""


def add_table(task: str, table: MetricTable) -> None:
    """Register the metrics of a task.

    Raises:
        ValueError: the task has another table, or another task has a metric of this name with the opposite direction.
    """
    check_directions(task, table)
    _TABLES.add(task, table)


def check_directions(task: str, table: MetricTable) -> None:
    """Check that the metrics of a task which is not built in mean the same as metrics of this name in other tasks.

    Raises:
        ValueError: another task has a metric of this name with the opposite direction.
    """
    other_tasks = () if task in BUILTIN_TASKS else _TABLES.names()
    for other_table in map(metric_table, other_tasks):
        for name in table.names.keys() & other_table.names.keys():
            if (name in other_table.lower_is_better) != (name in table.lower_is_better):
                raise ValueError(f"There is a metric {name!r} that is better the other way round; name it differently.")


def add_metric(task: str, name: str, added: AddedMetric) -> None:
    """Add a metric to a task's table; an added metric of the same name is replaced.

    Raises:
        ValueError: there is no such task, its family has a metric of this name, or another task has one with the
            opposite direction.
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
    """Return the metrics that users added to a task."""
    _TABLES.names()  # loads installed plug-ins
    return [added.metric for added in _ADDED.get(task, {}).values()]


def metric_tables() -> Iterator[MetricTable]:
    """Iterate over the tables of all tasks, m3b's own first."""
    return (metric_table(task) for task in _TABLES.names())


def metric_table(task: str) -> MetricTable:
    """Return the metrics of a task, with those that users added.

    Raises:
        ValueError: the task is unknown.
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
    """Return the tasks that have metrics."""
    return _TABLES.names()


def lower_is_better(name: str) -> bool:
    """Return whether less of a metric is better."""
    return any(name in task_table.lower_is_better for task_table in metric_tables())


def is_unbounded(name: str) -> bool:
    """Return whether a metric is not a share between 0 and 1."""
    return any(name in task_table.unbounded for task_table in metric_tables())


def metric_title(name: str) -> str:
    """Return the name of a metric in reports, without its direction; the name itself if no task has a title for it."""
    return next((table.titles[name] for table in metric_tables() if name in table.titles), name)


def best_value(name: str) -> float | None:
    """Return the value of a perfect answer; None if it is not known."""
    if lower_is_better(name):
        return 0.0
    if not is_unbounded(name):
        return 1.0
    return next((owner.best[name] for owner in metric_tables() if name in owner.best), None)


def _normalise_name(name: str) -> str:
    return re.sub(r"[^\w]|_", "", name.casefold())


def metric_names(task: str | None = None) -> dict[str, str]:
    """Return every spelling that is understood, with the canonical name that it stands for.

    Case, spaces, hyphens and underscores do not matter when a name is looked up with `canonical_metric`. A canonical
    name wins over an alias; without a task, an alias that several tasks share ("F1", "recall") means the first:
    diagnosis.

    Raises:
        ValueError: the task is unknown.
    """
    vocabularies = [vocabulary.names for vocabulary in (metric_tables() if task is None else [metric_table(task)])]
    names = {name: name for vocabulary in vocabularies for name in vocabulary}
    normalised = {_normalise_name(name) for name in names}
    for vocabulary in vocabularies:
        new_aliases = {
            alias: name
            for name, aliases in vocabulary.items()
            for alias in aliases
            if _normalise_name(alias) not in normalised
        }
        names.update(new_aliases)
        normalised.update(_normalise_name(alias) for alias in new_aliases)
    return names


def canonical_metric(name: str, task: str | None = None) -> str:
    """Return the canonical name of a metric, among those of one task if it is given.

    Raises:
        ValueError: the name is not in the vocabulary (of the task); the message lists the valid names.
    """
    canonical_by_alias = {_normalise_name(alias): canonical for alias, canonical in metric_names(task).items()}
    match = canonical_by_alias.get(_normalise_name(name))
    if match is None:
        names = dict.fromkeys(metric_names(task).values())
        model = "a model" if task is None else f"a {task} model"
        raise ValueError(f"unknown metric {name!r}; {model} is measured by one of: {', '.join(names)}")
    return match
