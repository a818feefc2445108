"""`m3b predict MODEL FOLDER`: separate images, or the slices of one volume?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from m3b.cli.app import app

PREDICT = """
import json, sys
asked, out = sys.argv[sys.argv.index("--list") + 1], sys.argv[sys.argv.index("-o") + 1]
paths = json.load(open(asked))
json.dump([{"image": path, "probabilities": {"a": 0.25, "b": 0.75}} for path in paths], open(out, "w"))
"""


def make_model(folder: Path, dims: int) -> Path:
    folder.mkdir()
    (folder / "predict.py").write_text(PREDICT)
    (folder / "config.json").write_text(json.dumps({"classes": ["a", "b"], "plan": {"dims": dims}}))
    return folder


@pytest.fixture
def slices(elsewhere: Path) -> Path:
    folder = elsewhere / "pictures"
    folder.mkdir()
    for name in ("1.png", "2.png", "10.JPG", "notes.txt", ".DS_Store"):
        (folder / name).write_bytes(b"x")
    return folder


def predicted(model: Path, folder: Path) -> list[str]:
    result = CliRunner().invoke(app, ["predict", str(model), str(folder), "--json"])
    assert result.exit_code == 0, result.output
    return [Path(item["image"]).name for item in json.loads(result.stdout)["predictions"]]


def test_a_2d_model_takes_a_folder_as_separate_images(slices: Path, elsewhere: Path) -> None:
    """It once took the folder for one stack and gave a single, meaningless prediction."""
    assert sorted(predicted(make_model(elsewhere / "m", 2), slices)) == ["1.png", "10.JPG", "2.png"]


def test_a_3d_model_takes_it_as_one_volume(slices: Path, elsewhere: Path) -> None:
    assert predicted(make_model(elsewhere / "m", 3), slices) == ["pictures"]
