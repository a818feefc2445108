"""Where the documentation's examples run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))  # for `refresh`


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory that is the home folder, too; no keys, no runs of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("M3B_RUNS", "M3B_MODELS", "M3B_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
