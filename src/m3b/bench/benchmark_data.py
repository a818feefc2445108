"""Data for a sweep: every set read or made once, carved once, and then only read."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from m3b.bench.carve_out import CARVE_OUT_FILE, HIDDEN_FOLDER, HIDDEN_TEST_SHARE, CarveOut, carve
from m3b.bench.datasets import get_dataset
from m3b.bench.tasks import BenchmarkTask
from m3b.data.cards import slug
from m3b.resources import get_resources_folder


class BenchmarkData:
    """The data below one benchmark folder.

    Args:
        folder: gets one folder for each set and layout.
        real: set name -> folder with the real data; sets that are not named are stand-ins.
        patients: size of stand-ins, where not the default; for trying things.
        seed: of stand-ins and of the choice of hidden patients.
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
        """The carve-out of a set, made if it is not there yet. Safe to call from several processes.

        Raises:
            DataError: the set cannot be read or carved.
            UsageError: there is no such set or layout.
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
                _clear(temporary_folder)
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
        """Make everything that these tasks need."""
        for name, layout in dict.fromkeys((name, task.layout) for task in tasks for name in task.dataset_names):
            self.prepare(name, layout)

    def load_cards(self, task: BenchmarkTask) -> list[dict[str, Any]]:
        """The data cards of a task with their paths; every other shipped card stands beside them as a distractor."""
        return [load_card(self.prepare(name, task.layout)) for name in task.dataset_names]

    def get_carve_out(self, task: BenchmarkTask) -> CarveOut:
        """The hidden cases of the set that serves the task."""
        return self.prepare(task.dataset, task.layout)


def load_card(carve_out: CarveOut) -> dict[str, Any]:
    """The shipped card of a carved set, with the agent's folder; stand-ins get their own acceptable range."""
    file = get_resources_folder() / "datacards" / f"{slug(carve_out.dataset)}.json"
    raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    raw["path"] = str(carve_out.agent_folder.resolve())
    if carve_out.stand_in:
        low, high = get_dataset(carve_out.dataset).stand_in.acceptable
        raw["acceptable"] = [low, high]
    return raw


def _clear(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


__all__ = ["HIDDEN_FOLDER", "BenchmarkData", "load_card"]
