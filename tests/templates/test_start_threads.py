"""How many threads a training takes."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).parents[2] / "resources/templates"


@pytest.mark.parametrize(
    ("asked", "together", "threads"),
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
    monkeypatch: pytest.MonkeyPatch, asked: str | None, together: int, threads: int
) -> None:
    monkeypatch.syspath_prepend(str(TEMPLATES))
    module = importlib.import_module("shared.start")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(module, "world_size", lambda: together)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert module.cores() == threads
