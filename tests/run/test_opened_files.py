"""In m3b's own process, files of a data folder, a work folder or a model are opened by `m3b.isolation.untrusted` alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warm.commands import run_python

SCRIPT = Path(__file__).with_name("open_watch.py")
SCENARIOS = (pytest.param("played", marks=pytest.mark.confined), "rules", "layouts", "stages")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whole_runs_and_commands_open_files_by_one_module(tmp_path: Path, scenario: str) -> None:
    ran = run_python(SCRIPT, scenario, tmp_path, cwd=tmp_path, check=True, server="m3b")
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["noticed"], "the watch itself does not work"
    assert report["foreign"] == {}
    assert not [step for step in report["steps"] if step["code"]]
