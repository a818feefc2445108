"""What an index takes of memory: a bounded number of bytes a case while it is made, read and locked."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from m3b.agents.checks.index_lock import freeze_index, lock_index
from m3b.data.index import LABELS, TEST, TRAIN, Record, read_index, write_records
from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest import execute as execution
from m3b.dataset.manifest.model import Manifest
from m3b.isolation.untrusted import paths

FEW_CASES, MANY_CASES = 200, 1_200
RUNS = 3
"""The least of their peaks counts: what threads of earlier tests allocate at the same time only adds to one."""
MAX_READ_BYTES, MAX_LOCK_BYTES, MAX_EXECUTE_BYTES = 430, 440, 970
"""Bytes a case: twice those that were measured."""
CLASSES = ("clear", "opacity")


def name_film(case: int) -> str:
    return f"images/{CLASSES[case % 3 == 0]}/P{case // 2:06d}_{case:07d}.png"


def write_index(work: Path, count: int) -> None:
    records = (
        Record(f"data/films/{name_film(case)}", (CLASSES[case % 3 == 0],), f"P{case // 2:06d}") for case in range(count)
    )
    write_records(work / TRAIN, [record for case, record in enumerate(records) if case % 10 < 8], "diagnosis")
    write_records(
        work / TEST, [Record(f"data/films/t{case}.png", ("clear",), f"T{case}") for case in range(9)], "diagnosis"
    )
    (work / LABELS).write_text(json.dumps({name: number for number, name in enumerate(CLASSES)}))


def measure_peak(action: Callable[[], object]) -> int:
    """Return the most bytes that Python objects of an action took at the same time."""
    gc.collect()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of a file, which is held too, is as small beside the files of a test as one of 256 KiB is beside real ones."""
    monkeypatch.setattr(paths, "BLOCK_BYTES", 4096)


def measure_bytes_per_case(run: Callable[[int], object]) -> float:
    run(FEW_CASES)  # loads what is loaded once
    small_peak, large_peak = (
        min(measure_peak(lambda count=count: run(count)) for _ in range(RUNS)) for count in (FEW_CASES, MANY_CASES)
    )
    return (large_peak - small_peak) / (MANY_CASES - FEW_CASES)


def test_reading_an_index_takes_the_records_and_no_copy_of_the_file(tmp_path: Path) -> None:
    for count in (FEW_CASES, MANY_CASES):
        write_index(tmp_path / str(count), count)
    assert measure_bytes_per_case(lambda count: read_index(tmp_path / str(count))) < MAX_READ_BYTES


def test_locking_an_index_takes_its_records_once(tmp_path: Path) -> None:
    def lock(count: int) -> None:
        frozen, locked = tmp_path / f"frozen{count}", tmp_path / f"locked{count}"
        locked.mkdir(exist_ok=True)
        freeze_index(tmp_path / str(count), frozen, {"films": tmp_path}, "diagnosis")
        lock_index(frozen, locked, "diagnosis")

    for count in (FEW_CASES, MANY_CASES):
        write_index(tmp_path / str(count), count)
    assert measure_bytes_per_case(lock) < MAX_LOCK_BYTES


def test_a_manifest_is_executed_without_many_objects_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "MAX_OPENED", 0)
    manifest = Manifest.model_validate(
        {
            "task": "diagnosis",
            "images": {"files": "images/{label:word}/{patient}_{number:number}.png"},
            "labels": {"value": "{label}", "classes": {name: [name] for name in CLASSES}},
            "patient": "{patient}",
        }
    )

    def execute(count: int) -> None:
        files = pl.DataFrame({"path": sorted(map(name_film, range(count)))}).with_columns(bytes=pl.lit(1000))
        executed = execution.execute(manifest, Inventory(tmp_path, files), name="films", work=tmp_path)
        assert len(executed.train) + len(executed.test) == count
        execution.write(executed, tmp_path)

    assert measure_bytes_per_case(execute) < MAX_EXECUTE_BYTES
