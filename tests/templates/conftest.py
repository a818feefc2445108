"""The assembled diagnosis template in a folder of its own, and a way to run its scripts there."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from template_kit import Run, assemble, call

from m3b.training.recipe import use_recipe


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return assemble(tmp_path / "work")


@pytest.fixture
def run(project: Path) -> Run:
    return functools.partial(call, project)


TASK_WORDS = {
    "detection": ("detect", "fewshot"),
    "segmentation": ("segment", "nnunet", "windows_training", "small_maps", "optimizers", "intensity_augmentation"),
    "report": ("report",),
}
"""Task -> words in the names of the test modules that build its networks in process; others are of diagnosis."""


@pytest.fixture(autouse=True)
def recipe(request: pytest.FixtureRequest) -> Iterator[None]:
    """The recipe of the module's task, for networks that are built in process."""
    name = request.module.__name__
    task = next((task for task, words in TASK_WORDS.items() if any(word in name for word in words)), "diagnosis")
    module = importlib.import_module(f"m3b.training.{task}.recipe")
    use_recipe(getattr(module, f"{task.capitalize()}Recipe")())
    yield
    use_recipe(None)
