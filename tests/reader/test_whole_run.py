"""During a run m3b's own process loads no parser of foreign formats and opens no file of the data: the reader does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COPIED = {"isolation/untrusted/paths.py:step"}
"""Who may open a file of the data: whoever copies it byte by byte, where it cannot be linked."""
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("sandbox", ["auto", pytest.param("off", marks=pytest.mark.slow)])
def test_a_whole_run_loads_no_parser(tmp_path: Path, sandbox: str) -> None:
    script = [sys.executable, str(TESTS / "reader" / "whole_run.py"), str(TESTS)]
    ran = subprocess.run(
        [*script, str(tmp_path / "spots"), str(tmp_path / "run"), sandbox],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["status"] == "completed"
    assert report["noticed"] == ["PIL", "opened"], "the watch itself does not work"
    assert report["imported"] == {}
    assert {by.partition(" <- ")[0] for by in report["opened"].values()} <= COPIED
    kinds = ["" if name.startswith(".staged-") else name for name in report["started"]]
    assert kinds.count("survey work") == 1, "one reader surveys, executes and compares"
    assert len(kinds) <= 6, (
        f"for tools, readings, checks, and after training for staging (a first try, tests) and checks: {kinds}"
    )
