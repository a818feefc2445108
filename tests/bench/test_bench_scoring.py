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
from m3b.bench.scoring import HiddenExam, Score, score_hidden_cases
from m3b.isolation.sandbox import choose_sandbox

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
    spec, generated, _ = stand_in("INSTANCE22")
    hidden = carve(spec, generated.folder, tmp_path / "carved", stand_in=True)
    by_hand = model(tmp_path / "model", "detection", BLEED, ["bleed"], {"bleed": 1})
    score = score_hidden_cases(HiddenExam.from_carve_out(hidden, spec, None), by_hand, sandbox=choose_sandbox())
    assert score.error == "", score.error
    assert score.names == {"bleed": next(iter(spec.values.values()))}
    assert score.primary is not None
    assert score.primary["name"] == "dice"
    assert score.primary["value"] > 0.3, "the spots are bright"
    assert score.primary["n"] == len(hidden.cases)
    assert score.control["value"] < score.primary["value"] / 2, "somebody else's masks do not fit"
    assert not score.constant
    assert Score.from_json(json.loads(json.dumps(score.to_json()))) == score


def test_carving_and_scoring_load_no_parser(stand_in, tmp_path: Path) -> None:
    _, generated, _ = stand_in("INSTANCE22")
    by_hand = model(tmp_path / "model", "detection", BLEED, ["bleed"], {"bleed": 1})
    script = Path(__file__).with_name("watched_score.py")
    ran = subprocess.run(
        [sys.executable, str(script), "INSTANCE22", str(generated.folder), str(tmp_path / "carved"), str(by_hand)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["noticed"] == ["PIL", "opened"], "the watch itself does not work"
    assert report["error"] == ""
    assert report["primary"]["value"] > 0.3
    assert report["imported"] == {}
    assert {by.partition(" <- ")[0] for by in report["opened"].values()} <= {"m3b/writing.py:_write_atomically"}


def test_segmentation_with_some_of_the_classes_and_other_numbers(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("BTCV")
    hidden = carve(spec, generated.folder, tmp_path / "carved", stand_in=True)
    by_hand = model(tmp_path / "model", "segmentation", ORGANS, ["Liver"], {"Liver": 1})
    score = score_hidden_cases(HiddenExam.from_carve_out(hidden, spec, None), by_hand, sandbox=choose_sandbox())
    assert score.error == "", score.error
    assert score.names == {"Liver": "liver"}, "by its name, not by its number, which means the spleen here"
    assert score.primary is not None
    assert not score.ok, "one organ of thirteen"
    assert 0.03 < score.primary["value"] < 0.2
    assert score.primary["baseline"] > 0.1, "the mean shape of the agent's cases"


@pytest.mark.slow
def test_reports_that_are_always_the_same(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("IU-Xray")
    hidden = carve(spec, generated.folder, tmp_path / "carved", stand_in=True)
    score = score_hidden_cases(
        HiddenExam.from_carve_out(hidden, spec, None),
        model(tmp_path / "model", "report", NORMAL, []),
        sandbox=choose_sandbox(),
    )
    assert score.error == "", score.error
    assert score.constant
    assert not score.ok
    assert score.control["value"] == pytest.approx(score.primary["value"])


def test_a_segmentation_model_is_measured_where_detection_is_judged_by_masks(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("INSTANCE22")
    hidden = carve(spec, generated.folder, tmp_path / "carved", stand_in=True)
    code = BLEED.rpartition("    return")[0] + '    return {"mask": save(number, found, image), "volumes_ml": {}}\n'
    by_hand = model(tmp_path / "model", "segmentation", code, ["bleed"], {"bleed": 1})
    score = score_hidden_cases(HiddenExam.from_carve_out(hidden, spec, None), by_hand, sandbox=choose_sandbox())
    assert score.error == "", score.error
    assert score.primary is not None
    assert score.primary["name"] == "dice"
    assert score.primary["value"] > 0.3


def test_a_model_for_another_task_and_a_broken_one(stand_in, tmp_path: Path) -> None:
    spec, generated, _ = stand_in("CT-Kidney")
    hidden = carve(spec, generated.folder, tmp_path / "carved", stand_in=True)
    score = score_hidden_cases(
        HiddenExam.from_carve_out(hidden, spec, None),
        model(tmp_path / "one", "report", NORMAL, []),
        sandbox=choose_sandbox(),
    )
    assert "is a model for report" in score.error
    broken = model(
        tmp_path / "two", "diagnosis", "\ndef answer(number, path):\n    raise SystemExit(3)\n", list(spec.classes)
    )
    score = score_hidden_cases(HiddenExam.from_carve_out(hidden, spec, None), broken, sandbox=choose_sandbox())
    assert "status 3" in score.error
    assert not score.ok


def test_everybody_gets_somebody_elses_answer() -> None:
    random = np.random.default_rng(0)
    for patients in (["a", "a", "b", "b", "c"], list("abcdefgh"), ["a"] * 3 + ["b"] * 3):
        for _ in range(20):
            order = derange(patients, random)
            assert sorted(order) == list(range(len(patients)))
            assert all(patients[place] != patients[donor] for place, donor in enumerate(order))
