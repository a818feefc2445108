"""In m3b's own process, files of a data folder, a work folder or a model are opened by `m3b.isolation.untrusted` alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("open_watch.py")
LIMIT_S = 1800
SCENARIOS = ("played", "rules", "layouts", "stages")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whole_runs_and_commands_open_files_by_one_module(tmp_path: Path, scenario: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), scenario, str(tmp_path)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["noticed"], "the watch itself does not work"
    assert report["foreign"] == {}
    assert not [step for step in report["steps"] if step["code"]]
