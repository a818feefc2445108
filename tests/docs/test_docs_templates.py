"""The commands of docs/templates.md, as they stand there but for the minutes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_template_by_hand(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
    block = re.search(r"^```sh\n(.+?)^```", page, re.MULTILINE | re.DOTALL)
    assert block
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    commands = block.group(1).replace("--minutes 20", "--minutes 0.5").replace("python ", f"{sys.executable} ")
    done = subprocess.run(["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (answer,) = json.loads((tmp_path / "project" / "predictions.json").read_text())
    assert set(answer["volumes_ml"]) == {"box", "ball"}
    assert (tmp_path / "project" / answer["mask"]).is_file()
