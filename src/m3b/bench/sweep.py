"""A sweep: cells of systems x models x tasks x runs, run in parallel by an engine; it can be resumed at any time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from m3b.bench.benchmark_data import BenchmarkData
from m3b.bench.cell import make_broken_row, read_finished_row
from m3b.bench.results_store import DATA_FOLDER, PLAN_FILE, SweepStore
from m3b.errors import UsageError
from m3b.run.options import Options
from m3b.writing import write_text_atomically

from .cell import RESULT_FILE, Cell
from .systems import get_system
from .tasks import BenchmarkTask

MAX_ATTEMPTS = 3
"""Maximum number of starts of a cell whose process crashes; then the crash is its result."""

REAL_TRAIN_MINUTES = 60.0
"""Default training time in minutes on a real data set."""

RETRYABLE_KINDS = ("provider", "crashed", "cancelled", "not_installed")
"""Kinds of ends that do not depend on the task; `--retry` runs these cells again."""


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep.

    Args:
        runs: number of repetitions; the number of a run is its seed.
        options: keyword options of m3b.Options, the same for every system. Without `train_minutes` each stand-in gets
            the time that it needs, and a real data set `REAL_TRAIN_MINUTES`.
        real: data set -> folder with the real data; all other data sets are stand-ins.
        simulate: seconds that each cell sleeps instead of working.
    """

    tasks: tuple[BenchmarkTask, ...]
    models: tuple[str, ...] = ("rules",)
    systems: tuple[str, ...] = ("m3b",)
    runs: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    real: Mapping[str, str] = field(default_factory=dict)
    patients: int | None = None
    share: float = 0.2
    simulate: float | None = None

    def validate(self) -> None:
        """Check that the plan can be run.

        Raises:
            UsageError: there are no cells, a system or option is unknown, or a system is not installed.
        """
        if self.runs < 1 or not (self.tasks and self.models and self.systems):
            raise UsageError("A sweep needs at least one task, one model, one system and one run.")
        Options(**self.options)
        missing = [reason for name in self.systems if (reason := get_system(name).explain_missing())]
        if missing and self.simulate is None:
            raise UsageError(" ".join(missing))

    def iterate_cells(self, folder: Path) -> Iterator[Cell]:
        """Yield all cells, with runs as outermost loop, so that an interrupted sweep has results of every task."""
        for run in range(self.runs):
            for task in self.tasks:
                for model in self.models:
                    for name in self.systems:
                        yield Cell(name, model, task, run, self.options_of(task), str(folder / DATA_FOLDER), self.real,
                                   self.patients, self.share, self.simulate)  # fmt: skip

    def options_of(self, task: BenchmarkTask) -> dict[str, Any]:
        """Return the options for the cells of a task."""
        minutes = 1.0
        if task.dataset:
            minutes = REAL_TRAIN_MINUTES if task.dataset in self.real else task.spec.stand_in.minutes
        return {"train_minutes": minutes, **self.options}

    def __len__(self) -> int:
        return self.runs * len(self.tasks) * len(self.models) * len(self.systems)

    def make_benchmark_data(self, folder: Path) -> BenchmarkData:
        """Return the benchmark data of this sweep."""
        real = {name: Path(path) for name, path in self.real.items()}
        return BenchmarkData(folder / DATA_FOLDER, real=real, patients=self.patients, share=self.share)

    def to_json(self) -> dict[str, Any]:
        return {"tasks": [task.id for task in self.tasks], "models": list(self.models), "systems": list(self.systems),
                "runs": self.runs, "options": dict(self.options), "real": dict(self.real), "patients": self.patients,
                "share": self.share}  # fmt: skip


OnEvent = Callable[[str, dict[str, Any]], None]
"""Called with `begun` and {"key"} when a cell starts, and with `done` and its row when it ends."""


class Engine(Protocol):
    """Runs cells. Calls `begin` before each start, which returns the number of the attempt, and `end` with each row."""

    def run(
        self,
        cells: Iterator[Cell],
        store: SweepStore,
        begin: Callable[[Cell], int],
        end: Callable[[dict[str, Any]], None],
    ) -> None: ...


def run_sweep(
    plan: SweepPlan, folder: Path, engine: Engine, *, retry: bool = False, on_event: OnEvent = lambda kind, row: None
) -> int:
    """Run all cells that are not finished yet; return how many were finished now.

    After Ctrl-C the sweep can be resumed.

    Args:
        retry: run the cells again that ended for reasons independent of the task (`RETRYABLE_KINDS`).

    Raises:
        UsageError: the plan cannot be run, or another sweep is running in the folder.
        DataError: a data set cannot be read or carved.
    """
    plan.validate()
    with SweepStore(folder) as store:
        _write_plan(store.folder, plan)
        if plan.simulate is None:
            plan.make_benchmark_data(store.folder).prepare_tasks(plan.tasks)
        if retry:
            _forget_retryable(store)
        count = 0
        running_keys: set[str] = set()

        def begin(started_cell: Cell) -> int:
            on_event("begun", {"key": started_cell.key})
            running_keys.add(started_cell.key)
            return store.claim(started_cell.key)

        def end(row: dict[str, Any]) -> None:
            nonlocal count
            store.finish(row)
            running_keys.discard(row["key"])
            count += 1
            on_event("done", row)

        try:
            engine.run(_iterate_open_cells(plan, store, end), store, begin, end)
        finally:
            for key in running_keys:
                store.release(key)
        return count


def _iterate_open_cells(plan: SweepPlan, store: SweepStore, end: Callable[[dict[str, Any]], None]) -> Iterator[Cell]:
    """Yield the cells that must still be run. If the folder of a cell has a result, it is only added to the results."""
    for cell in plan.iterate_cells(store.folder):
        if cell.key in store.finished_keys:
            continue
        row = read_finished_row(store.get_cell_folder(cell.key)) if store.claims[cell.key] else None
        if row is not None:
            end(row)
        elif store.claims[cell.key] >= MAX_ATTEMPTS:
            end(make_broken_row(cell, f"its process crashed {store.claims[cell.key]} times"))
        else:
            yield cell


def _forget_retryable(store: SweepStore) -> None:
    """Delete the results of the cells that ended for reasons independent of the task."""
    from m3b.bench.results_store import read_rows

    keys = set()
    for row in read_rows(store.folder) if store.finished_keys else ():
        if row["kind"] in RETRYABLE_KINDS:
            keys.add(row["key"])
            for name in (RESULT_FILE, "outcome.json", "score.json"):
                (store.get_cell_folder(row["key"]) / name).unlink(missing_ok=True)
    store.forget(keys)


def _write_plan(folder: Path, plan: SweepPlan) -> None:
    """Write the plan to the folder.

    Raises UsageError if the folder contains a sweep with other settings, because its cells could not be compared.
    """
    file = folder / PLAN_FILE
    plan_json = plan.to_json()
    if file.is_file():
        previous = json.loads(file.read_text(encoding="utf-8"))
        fixed_fields = ("options", "real", "patients", "share")
        changed_fields = [
            name for name in fixed_fields if previous.get(name) != json.loads(json.dumps(plan_json[name]))
        ]
        if changed_fields:
            raise UsageError(
                f"{folder} holds a sweep with other {' and '.join(changed_fields)} "
                f"({', '.join(str(previous.get(n)) for n in changed_fields)}); its"
                " cells could not be compared with these. Give another --out."
            )
        for name in ("tasks", "models", "systems"):
            plan_json[name] = list(dict.fromkeys([*previous[name], *plan_json[name]]))
        plan_json["runs"] = max(previous["runs"], plan_json["runs"])
    write_text_atomically(file, json.dumps(plan_json, ensure_ascii=False, indent=1))
