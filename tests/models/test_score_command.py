"""`m3b score` on cases of another place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from grey_model_kit import make_grey_model
from PIL import Image

from warm.commands import run_m3b

PREDICT_VALUE = """
import argparse, json
from pathlib import Path
from PIL import Image
parser = argparse.ArgumentParser()
parser.add_argument("images", nargs="*")
parser.add_argument("--list")
parser.add_argument("-o")
given = parser.parse_args()
paths = given.images + (json.loads(Path(given.list).read_text()) if given.list else [])
Path(given.o).write_text(json.dumps([{"image": path, "value": float(Image.open(path).getpixel((0, 0)))} for path in paths]))
"""

PREDICT_MASK = """
import argparse, json
from pathlib import Path
import numpy as np
from PIL import Image
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("-o")
parser.add_argument("--masks")
given = parser.parse_args()
Path(given.masks).mkdir(exist_ok=True)
answers = []
for number, path in enumerate(json.loads(Path(given.list).read_text())):
    Image.fromarray((np.asarray(Image.open(path)) > 100).astype(np.uint8)).save(Path(given.masks) / f"{number}.png")
    answers.append({"image": path, "mask": f"masks/{number}.png", "volumes_ml": {"spot": None}})
Path(given.o).write_text(json.dumps(answers))
"""


def write_cases(folder: Path, greys: list[int], index: Path) -> list[int]:
    """Write pictures of these grey values, which are also their true numbers, and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    index.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, grey in enumerate(greys):
        Image.new("L", (4, 4), grey).save(folder / f"{number}.png")
        rows.append({"image_path": f"{number}.png", "value": float(grey), "patient": f"p{number}"})
    index.write_text(json.dumps(rows))
    return greys


@pytest.mark.parametrize("has_run", [True, False])
def test_the_baseline_is_that_of_the_training_cases_of_the_run(tmp_path: Path, has_run: bool) -> None:
    """Without train.json beside the index there was none, so that any model seemed far above it."""
    model = make_grey_model(tmp_path / "run/model")
    (model / "predict.py").write_text(PREDICT_VALUE)
    config = {"task": "regression", "classes": ["age"], "multi_label": False, "weights": ["model.safetensors"]}
    (model / "config.json").write_text(json.dumps(config))
    if has_run:
        locked = tmp_path / "run/locked"
        write_cases(locked, list(range(60, 81)), locked / "Datapath/train.json")
    site = tmp_path / "site"
    greys = write_cases(site, list(range(100, 140, 2)), site / "site.json")
    done = run_m3b("score", model, site / "site.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    primary = json.loads(done.stdout)["primary"]
    assert primary["name"] == "mae"
    expected = float(np.abs(np.array(greys) - 70).mean())
    assert (primary["baseline"] == pytest.approx(expected)) == has_run


def test_ignored_pixels_count_neither_for_the_model_nor_for_the_baseline(tmp_path: Path) -> None:
    model, site = make_grey_model(tmp_path / "model"), tmp_path / "site"
    (model / "predict.py").write_text(PREDICT_MASK)
    config = {"task": "segmentation", "classes": ["spot"], "labels": {"spot": 1}, "weights": ["model.safetensors"]}
    (model / "config.json").write_text(json.dumps(config))
    site.mkdir()
    for split, count in (("train", 6), ("test", 12)):
        rows = []
        for number in range(count):
            mask, ignored = np.zeros((2, 16, 16), np.uint8)
            mask[2:8, 2:8], ignored[:, 8:] = 1, 1
            picture = np.where(
                mask | (ignored & (number % 2)), 200, 20
            )  # every other model's mask fills the ignored half
            names = {name: f"{split}{number}_{name}.png" for name in ("image", "mask", "ignored")}
            for name, array in (("image", picture), ("mask", mask), ("ignored", ignored)):
                Image.fromarray(array.astype(np.uint8)).save(site / names[name])
            rows.append({"image_path": names["image"], "mask_path": names["mask"], "ignore_path": names["ignored"],
                         "patient": f"{split}{number}"})  # fmt: skip
        (site / f"{split}.json").write_text(json.dumps(rows))
    done = run_m3b("score", model, site / "test.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    assert scores["details"]["ignored_share"] == 0.5
    assert all(scores["metrics"][name]["value"] == 1 for name in ("dice", "nsd"))
    assert scores["metrics"]["dice"]["baseline"] == 1
    text = run_m3b("score", model, site / "test.json", cwd=tmp_path)
    assert "50.0% of the test pixels" in text.stdout
