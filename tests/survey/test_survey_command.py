"""`m3b data survey`."""

from __future__ import annotations

import json
from pathlib import Path

from survey_kit import mask, picture

from m3b.data.survey import Survey
from warm.commands import run_m3b


def test_the_command_says_what_is_there_as_text_and_as_json(tmp_path: Path) -> None:
    for at in range(3):
        picture(tmp_path / "images" / f"{at}.png", seed=at)
        mask(tmp_path / "masks" / f"{at}.png", seed=at)
    command = ("data", "survey", tmp_path, "--seconds", "600")
    text = run_m3b(*command).stdout
    assert "one to one: 3 of 3 with 3 of 3" in text
    found = Survey.model_validate(json.loads(run_m3b(*command, "--json").stdout))
    assert found.pairings[0].role == "mask"


def test_the_command_refuses_what_is_no_folder(tmp_path: Path) -> None:
    ran = run_m3b("data", "survey", tmp_path / "none")
    assert ran.returncode != 0
    assert "is no folder that can be read. Name a folder of data" in ran.stderr
    assert "Traceback" not in ran.stderr
