"""A sweep: cells of systems x models x tasks x runs, run in parallel by an engine; it can be resumed at any time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.bench.benchmark_data import BenchmarkData
from m3b.bench.cell_runner import CellRunner, OnEvent
from m3b.bench.field_sets import EXPECTATIONS_FILE, describe_changed_expectation
from m3b.bench.results_store import DATA_FOLDER, PLAN_FILE, SweepStore
from m3b.engines import Engine, Resources
from m3b.errors import UsageError
from m3b.run.options import Options
from m3b.writing import write_text_atomically

from .cell import RESULT_FILE, Cell
from .systems import get_system
from .tasks import BenchmarkTask

REAL_TRAIN_MINUTES, FIELD_TRAIN_MINUTES = 60.0, 10.0
"""Default training time in minutes on a real data set, and on a field set, which is small."""

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
        minutes = FIELD_TRAIN_MINUTES if task.field_set is not None else 1.0
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
                "share": self.share, "field": self.list_expectations()}  # fmt: skip

    def list_expectations(self) -> dict[str, dict[str, Any]]:
        """Return name of a field set -> what its `EXPECTED.json` says, see `FieldSet.to_expectation`.

        Raises:
            UsageError: a manifest cannot be read.
        """
        field_sets = [task.field_set for task in self.tasks if task.field_set is not None]
        return {field_set.name: field_set.to_expectation() for field_set in field_sets}


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    engine: Engine,
    *,
    resources: Resources | None = None,
    max_jobs: int | None = None,
    retry: bool = False,
    on_event: OnEvent = lambda kind, row: None,
) -> int:
    """Run all cells that are not finished yet; return how many were finished now.

    After Ctrl-C the sweep can be resumed. If this process dies, the jobs of a cluster go on, and the next sweep in the
    folder with the same engine takes them over.

    Args:
        resources: what one cell needs; a cell that takes longer than its minutes has the result `budget`.
        max_jobs: number of cells at a time; None for as many as the cluster can run, and a few more.
        retry: run the cells again that ended for reasons independent of the task (`RETRYABLE_KINDS`).

    Raises:
        UsageError: the plan cannot be run, or another sweep is running in the folder.
        DataError: a data set cannot be read or carved.
        EngineError: the engine cannot be reached, or refuses a cell.
    """
    plan.validate()
    if engine.name != "local":
        engine.resources()  # a cluster that does not answer is said before any data is prepared
    with SweepStore(folder) as store:
        _write_plan(store.folder, plan)
        if plan.simulate is None:
            plan.make_benchmark_data(store.folder).prepare_tasks(plan.tasks)
        if retry:
            _forget_retryable(store)
        runner = CellRunner(store, engine, resources or Resources(), max_jobs, on_event)
        runner.run(plan.iterate_cells(store.folder))
        return runner.finished_count


def _forget_retryable(store: SweepStore) -> None:
    """Delete the results of the cells that ended for reasons independent of the task."""
    from m3b.bench.results_store import read_rows

    keys = set()
    for row in read_rows(store.folder) if store.finished_keys else ():
        if row["kind"] in RETRYABLE_KINDS:
            keys.add(row["key"])
            for name in (RESULT_FILE, "outcome.json", "score.json"):
                (store.get_cell_folder(row.get("folder") or row["key"]) / name).unlink(missing_ok=True)
    store.forget(keys)


def _write_plan(folder: Path, plan: SweepPlan) -> None:
    """Write the plan to the folder.

    Raises UsageError if the folder contains a sweep with other settings or other expectations of a field set, because its
    cells could not be compared.
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
        previous_expectations = previous.get("field") or {}
        changes = [
            change
            for name, expectation in plan_json["field"].items()
            if plan.make_benchmark_data(folder).is_divided(name)
            and (
                change := describe_changed_expectation(name, previous_expectations.get(name, expectation), expectation)
            )
        ]
        if changes:
            raise UsageError(
                f"{EXPECTATIONS_FILE} has changed since the sweep in {folder} began: {'; '.join(changes)}. Its sets were "
                "divided and judged by the old one. Give another --out, or put the old one back."
            )
        plan_json["field"] = {**previous_expectations, **plan_json["field"]}
        for name in ("tasks", "models", "systems"):
            plan_json[name] = list(dict.fromkeys([*previous[name], *plan_json[name]]))
        plan_json["runs"] = max(previous["runs"], plan_json["runs"])
    write_text_atomically(file, json.dumps(plan_json, ensure_ascii=False, indent=1))
