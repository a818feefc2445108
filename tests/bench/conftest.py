"""Stand-ins made once a session, and small enough to be quick."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from m3b.bench.datasets import DatasetSpec, GeneratedSet, RawDataset, get_dataset

SMALL = {
    "ADNI": 24, "KneeMRI": 33, "CC-CCII": 24, "CT-Kidney": 160, "BTCV": 8, "VerSe": 6, "OASIS": 6, "COVID19": 16,
    "INSTANCE22": 12, "MSD-Pancreas": 8, "ChestX-Det10": 30, "CT-RATE": 32, "RadGenome-BrainMRI": 20, "IU-Xray": 64,
}  # fmt: skip
"""Patients of the stand-ins that the tests look at."""

StandIns = Callable[..., tuple[DatasetSpec, GeneratedSet, RawDataset]]


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    """`stand_in(name, layout)`: the set's spec, what was made, and what its reader finds; made on first demand."""
    root: Path = tmp_path_factory.mktemp("stand-ins")

    @cache
    def make(name: str, layout: str) -> tuple[DatasetSpec, GeneratedSet, RawDataset]:
        spec = get_dataset(name)
        folder = root / f"{name}-{layout}"
        generated = spec.make(folder, patients=SMALL[name], seed=1, layout=layout)
        return spec, generated, spec.read(folder)

    def get(name: str, layout: str = "card") -> tuple[DatasetSpec, GeneratedSet, RawDataset]:
        return make(name, layout)

    return get
