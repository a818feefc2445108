"""Scoring of every family on hidden cases, with small hand-made deliverables whose worth is known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from m3b.bench.carve_out import carve
from m3b.bench.exam import derange
from m3b.bench.scoring import Score, score_hidden_cases
from m3b.sandbox import choose_sandbox

HEAD = """
import argparse, json
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("images", nargs="*")
parser.add_argument("--list")
parser.add_argument("-o")
parser.add_argument("--masks")
given = parser.parse_args()
paths = given.images + (json.loads(Path(given.list).read_text()) if given.list else [])
config = json.loads((Path(__file__).resolve().parent / "config.json").read_text())
answers = []
for number, path in enumerate(paths):
    answers.append({"image": path, **answer(number, path)})
Path(given.o).write_text(json.dumps(answers))
"""

NIFTI = """
import nibabel as nib
import numpy as np
def save(number, array, like, name=""):
    folder = Path(given.masks)
    folder.mkdir(exist_ok=True)
    file = folder / f"{number:04d}{name}.nii.gz"
    nib.save(nib.Nifti1Image(array.astype(np.uint8), like.affine), file)
    return f"{folder.name}/{file.name}"
"""

BLEED = (
    NIFTI
    + """
def answer(number, path):
    image = nib.load(path)
    hu = np.asarray(image.dataobj)
    from scipy.ndimage import median_filter
    found = (median_filter(hu, 3) > 44) & (median_filter(hu, 3) < 75)
    name = config["classes"][0]
    return {"masks": {name: save(number, found, image, "_" + name)}, "boxes": [], "anomaly_score": float(found.any())}
"""
)

ORGANS = (
    NIFTI
    + """
def answer(number, path):
    image = nib.load(path)
    hu = np.asarray(image.dataobj)
    from scipy.ndimage import median_filter
    mask = np.zeros(hu.shape, np.uint8)
    smooth = median_filter(hu, 3)
    mask[(smooth > 95) & (smooth < 115)] = config["labels"]["Liver"]
    return {"mask": save(number, mask, image), "volumes_ml": {}}
"""
)

NORMAL = """
def answer(number, path):
    return {"findings": "Heart size is normal. Lungs are clear.", "impression": "Normal."}
"""


def model(folder: Path, task: str, code: str, classes: list[str], labels: dict[str, int] | None = None) -> Path:
    folder.mkdir()
    (folder / "predict.py").write_text("from pathlib import Path\n" + code + HEAD)
    config = {"task": task, "classes": classes, "multi_label": task == "detection"}
    (folder / "config.json").write_text(json.dumps({**config, **({"labels": labels} if labels else {})}))
    save_file({"w": np.zeros(1, np.float32)}, folder / "model.safetensors")
    (folder / "README.md").write_text("# made by hand\n")
    (folder / "requirements.txt").write_text("numpy\n")
    return folder


def test_detection_with_another_name_for_the_class(stand_in, tmp_path: Path) -> None:
    spec, made, _ = stand_in("INSTANCE22")
    hidden = carve(spec, made.folder, tmp_path / "carved", stand_in=True)
    by_hand = model(tmp_path / "model", "detection", BLEED, ["bleed"], {"bleed": 1})
    found = score_hidden_cases(hidden, spec, by_hand, sandbox=choose_sandbox())
    assert found.error == "", found.error
    assert found.names == {"bleed": next(iter(spec.values.values()))}
    assert found.primary is not None
    assert found.primary["name"] == "dice"
    assert found.primary["value"] > 0.3, "the spots are bright"
    assert found.primary["n"] == len(hidden.cases)
    assert found.control["value"] < found.primary["value"] / 2, "somebody else's masks do not fit"
    assert not found.constant
    assert Score.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_carving_and_scoring_load_no_parser(stand_in, tmp_path: Path) -> None:
    _, made, _ = stand_in("INSTANCE22")
    by_hand = model(tmp_path / "model", "detection", BLEED, ["bleed"], {"bleed": 1})
    script = Path(__file__).with_name("watched_score.py")
    ran = subprocess.run(
        [sys.executable, str(script), "INSTANCE22", str(made.folder), str(tmp_path / "carved"), str(by_hand)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["noticed"] == ["PIL", "opened"], "the watch itself does not work"
    assert found["error"] == ""
    assert found["primary"]["value"] > 0.3
    assert found["imported"] == {}
    assert {by.partition(" <- ")[0] for by in found["opened"].values()} <= {"m3b/writing.py:replace_text"}


def test_segmentation_with_some_of_the_classes_and_other_numbers(stand_in, tmp_path: Path) -> None:
    spec, made, _ = stand_in("BTCV")
    hidden = carve(spec, made.folder, tmp_path / "carved", stand_in=True)
    by_hand = model(tmp_path / "model", "segmentation", ORGANS, ["Liver"], {"Liver": 1})
    found = score_hidden_cases(hidden, spec, by_hand, sandbox=choose_sandbox())
    assert found.error == "", found.error
    assert found.names == {"Liver": "liver"}, "by its name, not by its number, which means the spleen here"
    assert found.primary is not None
    assert not found.ok, "one organ of thirteen"
    assert 0.03 < found.primary["value"] < 0.2
    assert found.primary["baseline"] > 0.1, "the mean shape of the agent's cases"


@pytest.mark.slow
def test_reports_that_are_always_the_same(stand_in, tmp_path: Path) -> None:
    spec, made, _ = stand_in("IU-Xray")
    hidden = carve(spec, made.folder, tmp_path / "carved", stand_in=True)
    found = score_hidden_cases(hidden, spec, model(tmp_path / "model", "report", NORMAL, []), sandbox=choose_sandbox())
    assert found.error == "", found.error
    assert found.constant
    assert not found.ok
    assert found.control["value"] == pytest.approx(found.primary["value"])


def test_a_model_for_another_task_and_a_broken_one(stand_in, tmp_path: Path) -> None:
    spec, made, _ = stand_in("CT-Kidney")
    hidden = carve(spec, made.folder, tmp_path / "carved", stand_in=True)
    found = score_hidden_cases(hidden, spec, model(tmp_path / "one", "report", NORMAL, []), sandbox=choose_sandbox())
    assert "is a model for report" in found.error
    broken = model(
        tmp_path / "two", "diagnosis", "\ndef answer(number, path):\n    raise SystemExit(3)\n", list(spec.classes)
    )
    found = score_hidden_cases(hidden, spec, broken, sandbox=choose_sandbox())
    assert "status 3" in found.error
    assert not found.ok


def test_everybody_gets_somebody_elses_answer() -> None:
    random = np.random.default_rng(0)
    for patients in (["a", "a", "b", "b", "c"], list("abcdefgh"), ["a"] * 3 + ["b"] * 3):
        for _ in range(20):
            order = derange(patients, random)
            assert sorted(order) == list(range(len(patients)))
            assert all(patients[place] != patients[other] for place, other in enumerate(order))
