"""Data of a sweep: every data set is read or generated once, carved once, and then only read."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from m3b.bench.carve_out import CARVE_OUT_FILE, HIDDEN_FOLDER, HIDDEN_TEST_SHARE, CarveOut, carve
from m3b.bench.datasets import get_dataset
from m3b.bench.field_carving import FieldCarveOut, carve_field_set
from m3b.bench.field_sets import FieldSet
from m3b.bench.tasks import BenchmarkTask
from m3b.data.cards import slug
from m3b.resources import get_resources_folder


class BenchmarkData:
    """The data below one benchmark folder.

    Args:
        folder: gets one sub-folder for each data set and layout.
        real: name of a data set -> folder with its real data; all other data sets are stand-ins.
        patients: number of patients of the stand-ins; None for their default.
        seed: seed of the stand-ins and of the choice of hidden patients.
    """

    def __init__(
        self,
        folder: Path,
        *,
        real: Mapping[str, Path] | None = None,
        patients: int | None = None,
        share: float = HIDDEN_TEST_SHARE,
        seed: int = 0,
    ) -> None:
        self.folder, self.real, self.patients, self.share, self.seed = folder, dict(real or {}), patients, share, seed

    def prepare(self, name: str, layout: str) -> CarveOut:
        """Return the carve-out of a data set, and make it if necessary. Safe to call from several processes.

        Raises:
            DataError: the data set cannot be read or carved.
            UsageError: there is no such data set or layout.
        """
        spec = get_dataset(name)
        carve_out_folder = self.folder / (slug(name) if layout == "card" else f"{slug(name)}-{layout}")
        if (carve_out_folder / CARVE_OUT_FILE).is_file():
            return CarveOut.load(carve_out_folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f".{carve_out_folder.name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if name in self.real:
                return carve(spec, self.real[name], carve_out_folder, share=self.share, seed=self.seed)
            source = self.folder / "made" / carve_out_folder.name
            if not source.is_dir():
                temporary_folder = source.with_name(f".{source.name}")
                shutil.rmtree(temporary_folder, ignore_errors=True)
                size = None if self.patients is None else max(self.patients, spec.stand_in.min_patients)
                max_patients = spec.stand_in.max_patients
                spec.make(
                    temporary_folder,
                    patients=min(size, max_patients) if size and max_patients else size,
                    seed=self.seed,
                    layout=layout,
                )
                temporary_folder.rename(source)
            return carve(spec, source, carve_out_folder, share=self.share, seed=self.seed, stand_in=True)

    def prepare_tasks(self, tasks: Iterable[BenchmarkTask]) -> None:
        """Prepare all data sets that these tasks need."""
        task_list = list(tasks)
        for task in task_list:
            if task.field_set is not None:
                self.prepare_field_set(task.field_set)
        for name, layout in dict.fromkeys((name, task.layout) for task in task_list for name in task.dataset_names):
            self.prepare(name, layout)

    def prepare_field_set(self, field_set: FieldSet) -> FieldCarveOut:
        """Return the carve-out of a field set, and make it if necessary. Safe to call from several processes.

        Raises:
            DataError: data of a hidden patient would remain in the agent's copy.
        """
        carve_out_folder = self._get_field_folder(field_set.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f".{carve_out_folder.name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            return carve_field_set(field_set, carve_out_folder, share=self.share, seed=self.seed)

    def is_divided(self, name: str) -> bool:
        """Return whether there is a carve-out of a field set already."""
        return (self._get_field_folder(name) / CARVE_OUT_FILE).is_file()

    def _get_field_folder(self, name: str) -> Path:
        return self.folder / f"field-{slug(name)}"

    def load_cards(self, task: BenchmarkTask) -> list[dict[str, Any] | str]:
        """Return the data of a task: its cards with paths, or the folder of a field set.

        A run sees all other shipped cards too, as distractors.
        """
        if task.field_set is not None:
            return [str(self.prepare_field_set(task.field_set).agent_folder.resolve())]
        return [load_card(self.prepare(name, task.layout)) for name in task.dataset_names]

    def get_carve_out(self, task: BenchmarkTask) -> CarveOut:
        """Return the carve-out of the data set that serves the task."""
        return self.prepare(task.dataset, task.layout)


def load_card(carve_out: CarveOut) -> dict[str, Any]:
    """Return the shipped card of a carved data set with the agent's folder, and for a stand-in its acceptable range."""
    file = get_resources_folder() / "datacards" / f"{slug(carve_out.dataset)}.json"
    raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    raw["path"] = str(carve_out.agent_folder.resolve())
    if carve_out.stand_in:
        low, high = get_dataset(carve_out.dataset).stand_in.acceptable
        raw["acceptable"] = [low, high]
    return raw


__all__ = ["HIDDEN_FOLDER", "BenchmarkData", "load_card"]
