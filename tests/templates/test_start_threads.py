"""How many threads a training takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from m3b.training import entry

TEMPLATES = Path(__file__).parents[2] / "resources/templates"


@pytest.mark.parametrize(
    ("omp_threads", "together", "threads"),
    [
        (None, 1, 8),
        (None, 4, 2),
        (None, 16, 1),
        ("3", 1, 3),
        ("3,1", 1, 3),
        ("64", 1, 8),
        ("8", 4, 2),  # as train.py tells those that train together
        ("0", 1, 1),
        ("many", 1, 8),
    ],
)
def test_cores_are_those_of_the_process_or_fewer_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, omp_threads: str | None, together: int, threads: int
) -> None:
    module = entry
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(module, "world_size", lambda: together)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if omp_threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", omp_threads)
    assert module.count_cores() == threads


@pytest.mark.parametrize(
    "file",
    [file for name in ("plan.py", "train.py") for file in sorted(TEMPLATES.glob(f"*/{name}"))],
    ids=lambda file: "/".join(file.parts[-2:]),
)
def test_threads_that_wait_for_each_other_do_not_sleep(file: Path) -> None:
    """Two threads that sleep at every wait take 1.5 times as long for a step; beside busy programs fewer are taken (threads.py)."""
    assert "OMP_WAIT_POLICY" not in file.read_text(encoding="utf-8")
