"""The opponents of `benchmarks/recipes.py`: the docs name them all, and those without packages of their own answer for every case."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starts_kit import assemble

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"opponent_{name}", BENCHMARKS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_docs_name_every_opponent_and_its_script_is_there() -> None:
    opponents = _load("recipes").OPPONENTS
    table = (ROOT / "docs/templates.md").read_text().partition("| opponent |")[2].partition("\n\n")[0]
    documented = [name for row in table.splitlines()[2:] for name in re.findall("`([^`]+)`", row.split("|")[1])]
    assert sorted(documented) == sorted(opponents)
    assert all((BENCHMARKS / opponent.script).is_file() for opponent in opponents.values())


@pytest.mark.slow
def test_classical_features_answer_for_every_test_case(tmp_path: Path) -> None:
    project = assemble("diagnosis", tmp_path / "work")

    def run(*command: str) -> None:
        done = subprocess.run([sys.executable, *command], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    run("example/make_example.py", "--cases", "36", "--size", "32")
    test = json.loads((project / "Datapath/test.json").read_text())
    (project / "test.json").write_text(json.dumps(test))
    run("plan.py", "--minutes", "1", "--set", "max_steps=1", "threads=1")
    (project / "found").mkdir()
    run(str(BENCHMARKS / "opponent_arrays.py"), ".", "found/arrays.npz")
    run(str(BENCHMARKS / "classical.py"), ".", "1", "found/classical.npz")
    arrays, scores = np.load(project / "found/arrays.npz"), np.load(project / "found/classical.npz")["scores"]
    assert arrays["images_train"].shape[1:] == (256, 256, 3)
    assert len(arrays["images_train"]) + len(arrays["images_valid"]) == len(
        json.loads((project / "Datapath/train.json").read_text())
    )
    assert scores.shape == (len(test), 2)
    assert scores.sum(axis=1) == pytest.approx(1.0)


def test_nnunet_gets_images_and_numbered_masks_of_the_grid_of_the_image(tmp_path: Path) -> None:
    import nibabel
    from PIL import Image

    pixels, marks = np.zeros((20, 30, 3), np.uint8), np.zeros((20, 30), np.uint8)
    pixels[..., 1], marks[4:9, 5:12], marks[12:15, 20:28] = 7, 1, 2
    Image.fromarray(pixels).save(tmp_path / "image.png")
    Image.fromarray(marks).save(tmp_path / "mask.png")
    plan = {
        "dims": 2,
        "channels": 3,
        "channel_names": None,
        "classes": ["a", "b"],
        "labels": {"a": 1, "b": 2},
        "overlap": False,
    }
    record = {"image_path": str(tmp_path / "image.png"), "mask_path": str(tmp_path / "mask.png")}
    nnunet_plain = _load("nnunet_plain")
    raw = nnunet_plain.make_raw_folders(tmp_path / "nnunet")
    assert nnunet_plain.write_case(raw, "Tr", 3, record, plan) == 3
    channels = [np.asarray(nibabel.load(raw / f"imagesTr/case_0003_000{k}.nii.gz").dataobj) for k in range(3)]
    assert [float(channel.max()) for channel in channels] == [0, 7, 0]
    assert np.array_equal(np.asarray(nibabel.load(raw / "labelsTr/case_0003.nii.gz").dataobj), marks)
