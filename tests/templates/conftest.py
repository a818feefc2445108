"""The assembled diagnosis template in a folder of its own, and a way to run its scripts there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from template_kit import Run, assemble


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return assemble(tmp_path / "work")


@pytest.fixture
def run(project: Path) -> Run:
    def call(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([sys.executable, *command], cwd=project, capture_output=True, text=True, timeout=900)
        assert not check or done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done

    return call
