"""The tasks: requests in plain words, from `resources/bench/tasks.json`, and the data that goes with each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from m3b.errors import WrongUse
from m3b.resources import resources_dir

from .datasets import NAMES, DatasetSpec, dataset
from .datasets.spec import CARD

PLAIN, DECLINE = "plain", "decline"


@dataclass(frozen=True)
class Task:
    """One request.

    Args:
        id: `ct-kidney`, or `ct-kidney:reworded` for a variant.
        dataset: the set that serves it, or empty where none does.
        offered: sets whose data is on the machine although they do not serve the request.
        expects: `model`, or `decline` where the only right end is `no_dataset`.
    """

    id: str
    request: str
    dataset: str = ""
    variant: str = PLAIN
    layout: str = CARD
    offered: tuple[str, ...] = ()
    expects: str = "model"

    @property
    def sets(self) -> tuple[str, ...]:
        """The data sets that have to be on the machine."""
        return (self.dataset, *self.offered) if self.dataset else self.offered

    @property
    def spec(self) -> DatasetSpec:
        """What is known of the set that serves it."""
        return dataset(self.dataset)

    @property
    def family(self) -> str:
        """diagnosis, segmentation, detection, report, or `decline`."""
        return self.spec.task if self.dataset else DECLINE


def parse(raw: dict[str, Any]) -> Task:
    """A task from its JSON object."""
    values = {**raw, "dataset": raw.get("dataset") or "", "offered": tuple(raw.get("offered", ()))}
    return Task(**values)


@lru_cache(maxsize=1)
def all_tasks() -> tuple[Task, ...]:
    """Every task that ships with m3b: the fourteen, the variants, the requests to be declined."""
    raw = json.loads((resources_dir() / "bench" / "tasks.json").read_text(encoding="utf-8"))
    return tuple(parse(raw_task) for raw_task in raw["tasks"])


def choose(wanted: Sequence[str]) -> tuple[Task, ...]:
    """Tasks by id, data set, family or variant; `plain` is the fourteen, `all` every one.

    Raises:
        WrongUse: a word that names nothing.
    """
    selected_tasks: dict[str, Task] = {}
    for selector in wanted or [PLAIN]:
        lower_selector = selector.strip().lower()
        matches = [task for task in all_tasks() if lower_selector == "all" or lower_selector in _words(task)]
        if lower_selector in {name.lower() for name in NAMES} | {task.family for task in all_tasks()}:
            matches = [task for task in matches if task.variant in (PLAIN, DECLINE)]
        if not matches:
            raise WrongUse(
                f"No task is called {selector!r}. Choose ids ({', '.join(task.id for task in all_tasks()[:4])}, ...), a family, "
                f"a variant ({', '.join(sorted({task.variant for task in all_tasks()}))}) or `all`; `m3b bench list` shows them."
            )
        selected_tasks.update({task.id: task for task in matches})
    return tuple(selected_tasks.values())


def _words(task: Task) -> set[str]:
    return {task.id.lower(), task.dataset.lower(), task.family, task.variant}
