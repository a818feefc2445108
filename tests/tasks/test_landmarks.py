"""A fifth task family from outside the package: registered, run from data to a measured model, used by entry point."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from warm.commands import run_m3b, run_python

EXAMPLE = Path(__file__).parents[2] / "examples" / "landmarks"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole run of the example, as its own process."""
    folder = tmp_path_factory.mktemp("landmarks") / "made"
    run_python(EXAMPLE / "run.py", "--folder", folder, check=True, server="m3b")
    return folder


def test_a_family_of_ones_own_is_audited_trained_measured_and_delivered(finished: Path) -> None:
    result = json.loads((finished / "run" / "run.json").read_text())["result"]
    assert result["status"] == "completed", result["reason"]
    assert result["task"] == "landmarks"
    primary = result["primary"]
    assert primary["name"] == "mean_distance"
    assert primary["high"] < primary["baseline"], "better than the mean point of the training cases, with its interval"
    card = (finished / "run" / "model" / "README.md").read_text()
    assert "Image-blind baseline: the mean point of the training cases." in card
    assert "Lower is better for mean\\_distance." in card
    assert '"point": [x, y]' in card
    report = (finished / "run" / "report.html").read_text()
    assert "Landmark finder, made from points" in report


def test_agents_get_the_schema_of_its_index() -> None:
    script = """
import json, landmarks
from m3b import register_task
from m3b.data.schemas import json_schema
register_task(landmarks.FAMILY)
print(json.dumps(json_schema("landmarks")["items"]["required"]))
"""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE)}
    printed = run_python("-c", script, env=environment, check=True, server="m3b").stdout
    assert json.loads(printed) == ["image_path", "point", "patient"]


def test_the_locked_index_keeps_the_points_and_training_sees_no_test_case(finished: Path) -> None:
    locked = json.loads((finished / "run" / "locked" / "Datapath" / "test.json").read_text())
    assert all(len(record["point"]) == 2 for record in locked)
    visible_images = (
        {path.name for path in (finished / "run" / "view" / "points").iterdir()}
        if (finished / "run" / "view").is_dir()
        else set()
    )
    assert not visible_images & {Path(record["image_path"]).name for record in locked}


def test_an_installed_plug_in_is_found_by_the_command_line(finished: Path, tmp_path: Path) -> None:
    info = tmp_path / "m3b_landmarks-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: m3b-landmarks\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[m3b.tasks]\nlandmarks = landmarks:FAMILY\n")
    image = str(next((finished / "points").glob("*.png")))
    command = ("predict", finished / "run" / "model", image)
    path = os.pathsep.join([str(tmp_path), str(EXAMPLE)])
    ran = run_m3b(*command, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == 0, ran.stderr
    assert "point [" in ran.stdout
    ran = run_m3b(*command)
    assert ran.returncode != 0
    assert "has the `task` 'landmarks'; known are diagnosis" in ran.stderr
