"""`m3b data survey`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from survey_kit import mask, picture

from m3b.data.survey import Survey


def test_the_command_says_what_is_there_as_text_and_as_json(tmp_path: Path) -> None:
    for at in range(3):
        picture(tmp_path / "images" / f"{at}.png", seed=at)
        mask(tmp_path / "masks" / f"{at}.png", seed=at)
    command = [sys.executable, "-m", "m3b", "data", "survey", str(tmp_path), "--seconds", "600"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "one to one: 3 of 3 with 3 of 3" in text
    found = Survey.model_validate(
        json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
    )
    assert found.pairings[0].role == "mask"


def test_the_command_refuses_what_is_no_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "m3b", "data", "survey", str(tmp_path / "none")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "is no folder that can be read. Name a folder of data" in ran.stderr
    assert "Traceback" not in ran.stderr
