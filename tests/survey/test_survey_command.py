"""`m3b data survey`, and the real sets where somebody has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from survey_kit import mask, picture

from m3b.data.survey import Survey, survey
from m3b.data.survey.facts import SurveyLimits

FIELD = os.environ.get("M3B_FIELD_DATA", "")


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


@pytest.mark.skipif(not FIELD, reason="M3B_FIELD_DATA names no folder of real data sets")
@pytest.mark.parametrize(
    "folder", sorted(one.name for one in Path(FIELD or ".").iterdir() if one.is_dir()) if FIELD else []
)
def test_real_sets_are_surveyed_and_come_back_from_json(folder: str) -> None:
    found = survey(Path(FIELD) / folder, limits=SurveyLimits(seconds=600))
    assert found.groups
    assert any(one.content or one.kind in ("array", "hdf5") for one in found.groups)
    assert "damaged" not in {note.code for note in found.notes}
    assert Survey.model_validate_json(found.model_dump_json()) == found
