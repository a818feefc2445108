"""The assembled diagnosis template in a folder of its own, and a way to run its scripts there."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from template_kit import Run, assemble, call


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return assemble(tmp_path / "work")


@pytest.fixture
def run(project: Path) -> Run:
    return functools.partial(call, project)
