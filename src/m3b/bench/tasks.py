"""The benchmark tasks: requests in plain words, with data sets of m3b (`resources/bench/tasks.json`) or field sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from m3b.bench.datasets.definitions import CARD
from m3b.bench.field_sets import FieldSet, load_field_sets
from m3b.errors import UsageError
from m3b.resources import get_resources_folder

from .datasets import DATASET_NAMES, DatasetSpec, get_dataset

PLAIN_VARIANT, DECLINE, FIELD_VARIANT = "plain", "decline", "field"


@dataclass(frozen=True)
class BenchmarkTask:
    """A benchmark task: a request and its data.

    Args:
        id: `ct-kidney`, or `ct-kidney:reworded` for a variant.
        dataset: the data set that serves the request; empty if none does.
        offered: data sets on the machine that do not serve the request.
        expects: `model`, or `decline` if the only correct end is `no_dataset`.
        field_set: the folder of a field task, which has no data card; None for tasks of m3b.
    """

    id: str
    request: str
    dataset: str = ""
    variant: str = PLAIN_VARIANT
    layout: str = CARD
    offered: tuple[str, ...] = ()
    expects: str = "model"
    field_set: FieldSet | None = None

    @property
    def data_name(self) -> str:
        """The name of the data that serves the request; empty if none does."""
        return self.field_set.name if self.field_set else self.dataset

    @property
    def dataset_names(self) -> tuple[str, ...]:
        """The names of the data sets that must be on the machine."""
        return (self.dataset, *self.offered) if self.dataset else self.offered

    @property
    def spec(self) -> DatasetSpec:
        """The specification of the data set that serves the request."""
        return get_dataset(self.dataset)

    @property
    def family(self) -> str:
        """The task of m3b, or `decline`; `field` for a field set that does not tell its task."""
        if self.field_set is not None:
            return self.field_set.family if self.expects == "model" else DECLINE
        return self.spec.task if self.dataset else DECLINE


def parse_task(raw: dict[str, Any]) -> BenchmarkTask:
    """Return a task from its JSON object."""
    values = {**raw, "dataset": raw.get("dataset") or "", "offered": tuple(raw.get("offered", ()))}
    if values.get("field_set"):
        values["field_set"] = FieldSet(**values["field_set"])
    return BenchmarkTask(**values)


def load_field_tasks(
    folder: Path, selectors: Sequence[str] = (), on_note: Callable[[str], None] = lambda text: None
) -> tuple[BenchmarkTask, ...]:
    """Return the tasks of a folder with field sets and `EXPECTED.json`, in its order.

    Args:
        selectors: ids (`field:NAME`), names of folders or families; none selects all.
        on_note: see `load_field_sets`.

    Raises:
        UsageError: the folder has no valid `EXPECTED.json`, or a selector matches no task.
    """
    tasks = [
        BenchmarkTask(
            f"{FIELD_VARIANT}:{field_set.name}",
            field_set.request,
            variant=FIELD_VARIANT,
            layout=FIELD_VARIANT,
            expects=DECLINE if field_set.should_refuse else "model",
            field_set=field_set,
        )
        for field_set in load_field_sets(folder, on_note)
    ]
    names = {task.id: {task.id.lower(), task.data_name.lower(), task.family} for task in tasks}
    wanted = {selector.strip().lower() for selector in selectors}
    if unknown := sorted(selector for selector in wanted if not any(selector in group for group in names.values())):
        raise UsageError(
            f"No field task of {folder} is called {', '.join(unknown)}; there are {', '.join(task.data_name for task in tasks)}."
        )
    return tuple(task for task in tasks if not wanted or wanted & names[task.id])


@lru_cache(maxsize=1)
def load_tasks() -> tuple[BenchmarkTask, ...]:
    """Return all tasks of m3b: the fourteen, their variants, and the requests to be declined."""
    raw = json.loads((get_resources_folder() / "bench" / "tasks.json").read_text(encoding="utf-8"))
    return tuple(parse_task(raw_task) for raw_task in raw["tasks"])


def choose_tasks(selectors: Sequence[str]) -> tuple[BenchmarkTask, ...]:
    """Return the tasks selected by id, data set, family or variant; `plain` selects the fourteen, `all` every task.

    Raises:
        UsageError: a selector matches no task.
    """
    selected_tasks: dict[str, BenchmarkTask] = {}
    for selector in selectors or [PLAIN_VARIANT]:
        lower_selector = selector.strip().lower()
        matches = [task for task in load_tasks() if lower_selector == "all" or lower_selector in _get_selectors(task)]
        if lower_selector in {name.lower() for name in DATASET_NAMES} | {task.family for task in load_tasks()}:
            matches = [task for task in matches if task.variant in (PLAIN_VARIANT, DECLINE)]
        if not matches:
            raise UsageError(
                f"No task is called {selector!r}. Choose ids ({', '.join(task.id for task in load_tasks()[:4])}, ...), a family, "
                f"a variant ({', '.join(sorted({task.variant for task in load_tasks()}))}) or `all`; `m3b bench list` shows them."
            )
        selected_tasks.update({task.id: task for task in matches})
    return tuple(selected_tasks.values())


def _get_selectors(task: BenchmarkTask) -> set[str]:
    return {task.id.lower(), task.dataset.lower(), task.family, task.variant}
