"""`m3b predict` and `m3b score` with models of each task, made by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from m3b.cli.app import app
from m3b.dataset.reading import read_mask
from m3b.errors import UsageError

PREDICT = """
import json, sys
from pathlib import Path
import nibabel as nib, numpy as np
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
paths, out, task = json.loads(Path(option("--list")).read_text()), Path(option("-o")), {task!r}
done, failed = [], 0
for number, path in enumerate(paths):
    if "bad" in str(path):
        failed = 1
        done.append({{"image": path, "error": "it is bad"}})
    elif task == "segmentation":
        folder = Path(option("--masks")); folder.mkdir(exist_ok=True)
        image = nib.load(path); array = (np.asarray(image.dataobj) > 50).astype(np.uint8) * 3
        nib.save(nib.Nifti1Image(array, image.affine), folder / f"{{number}}.nii.gz")
        voxel = float(abs(np.linalg.det(image.affine[:3, :3]))) / 1000
        done.append({{"image": path, "mask": f"masks/{{number}}.nii.gz", "volumes_ml": {{"ball": (array > 0).sum() * voxel}}}})
    elif task == "detection":
        boxes = [{{"label": "spot", "box": [1, 1, 4, 5], "score": 0.8}}, {{"label": "spot", "box": [0, 0, 2, 2], "score": 0.1}}]
        done.append({{"image": path, "boxes": boxes, "anomaly_score": 0.75}})
    else:
        done.append({{"image": path, "findings": f"{{len(path) if isinstance(path, list) else 1}} views", "impression": ""}})
out.write_text(json.dumps(done))
sys.exit(failed)
"""


def make_model(folder: Path, task: str, **config: Any) -> Path:
    folder.mkdir()
    (folder / "predict.py").write_text(PREDICT.format(task=task))
    (folder / "config.json").write_text(json.dumps({"task": task, **config}))
    return folder


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    folder.mkdir()
    affine = np.array([[0, -2.0, 0, 5], [1.5, 0, 0, -7], [0, 0, 3, 2], [0, 0, 0, 1]])  # turned and anisotropic
    for number in (10, 2):
        array = np.zeros((8, 9, 6), np.int16)
        array[2:5, 3:7, 1:4] = 100
        nib.save(nib.Nifti1Image(array, affine), folder / f"s{number}.nii.gz")
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_masks_of_a_folder_keep_their_geometry(tmp_path: Path, volumes: Path) -> None:
    model = make_model(tmp_path / "m", "segmentation", classes=["ball"], labels={"ball": 3}, plan={"dims": 3})
    result = run("predict", model, volumes, "-o", tmp_path / "out", "--overlay")
    assert result.exit_code == 0, result.output
    assert "notes.txt" in result.stderr
    answers = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [Path(answer["image"]).name for answer in answers] == ["s2.nii.gz", "s10.nii.gz"]
    for answer in answers:
        image, mask = nib.load(answer["image"]), nib.load(tmp_path / "out" / answer["mask"])
        assert np.array_equal(image.affine, mask.affine)
        assert read_mask(answer["mask"], str(tmp_path / "out")).array.max() == 3
        assert answer["volumes_ml"]["ball"] == pytest.approx(36 * 9 / 1000)
        assert Image.open(tmp_path / "out" / answer["overlay"]).width > 900
    assert "ball: 0.32 ml" in result.stdout
    assert "2 in masks/, 2 in overlays/" in result.stderr


def test_boxes_to_a_table(tmp_path: Path) -> None:
    model = make_model(tmp_path / "m", "detection", classes=["spot"], plan={"dims": 2})
    for name in ("a.png", "bad.png"):
        Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / name)
    table_result = run("predict", model, tmp_path / "a.png", tmp_path / "bad.png", "-o", tmp_path / "t.csv")
    assert table_result.exit_code == 1
    assert "it is bad" in table_result.stdout
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    columns = ("class", "score", "x0", "y0", "x1", "y1", "anomaly_score", "error")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("spot", "0.8", "1.0", "1.0", "4.0", "5.0", "0.75", ""),
        ("", "", "", "", "", "", "", "it is bad"),
    ]
    assert "spot: 1 (1 below" in table_result.stdout
    overlay_result = run(
        "predict", model, tmp_path / "a.png", tmp_path / "bad.png", "-o", tmp_path / "d", "--overlay", "--json"
    )
    predictions = json.loads(overlay_result.stdout)["predictions"]
    assert [("overlay" in item) for item in predictions] == [True, False]
    assert predictions[0]["boxes"][0] == {"label": "spot", "box": [1.0, 1.0, 4.0, 5.0], "score": 0.8}


def test_studies_of_several_views(tmp_path: Path) -> None:
    model = make_model(tmp_path / "m", "report", classes=[], plan={"dims": 2, "views": 2})
    for name in ("x/1.png", "x/2.png", "y/1.png"):
        (tmp_path / "s" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "s" / name)
    result = run("predict", model, tmp_path / "s", "-o", tmp_path / "out", "--overlay", "--json")
    assert result.exit_code == 0, result.output
    assert [item["findings"] for item in json.loads(result.stdout)["predictions"]] == ["2 views", "1 views"]
    assert len(list((tmp_path / "out" / "overlays").iterdir())) == 2


def test_refused_images_and_broken_links_are_named(tmp_path: Path, volumes: Path) -> None:
    model = make_model(tmp_path / "m", "segmentation", classes=["ball"], labels={"ball": 3}, plan={"dims": 3})
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(volumes / "film.png")
    (volumes / "gone.nii.gz").symlink_to(tmp_path / "nowhere")
    result = run("predict", model, volumes, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "gone.nii.gz" in result.stderr
    answers = {
        Path(entry["image"]).name: entry for entry in json.loads((tmp_path / "out/predictions.json").read_text())
    }
    assert answers["film.png"]["error_code"] == "image_for_3d_model"
    assert ["mask" in answers[name] for name in ("s2.nii.gz", "s10.nii.gz")] == [True, True]


def test_wrong_use(tmp_path: Path, volumes: Path) -> None:
    model = make_model(tmp_path / "m", "segmentation", classes=["ball"], labels={"ball": 3})
    boxes = make_model(tmp_path / "b", "detection", classes=["spot"])
    (tmp_path / "file").write_text("x")
    (tmp_path / "bare").mkdir()
    for words, message in (
        ([model, volumes], "name a folder for them"),
        ([model, volumes, "-o", tmp_path / "x.json"], "name a folder for them"),
        ([boxes, volumes, "--overlay"], "name a folder for them"),
        ([boxes, volumes, "-o", tmp_path / "file"], "this is a file"),
        ([boxes, tmp_path / "bare"], "No image was found"),
        ([boxes, tmp_path / "gone"], "There is no"),
    ):
        result = run("predict", *words)
        assert isinstance(result.exception, UsageError), result.output
        assert message in str(result.exception)


def test_score_measures_masks(tmp_path: Path, volumes: Path) -> None:
    """The model marks what is brighter than 50; the truth of one case is one slice larger."""
    model = make_model(tmp_path / "m", "segmentation", classes=["ball"], labels={"ball": 3}, plan={"dims": 3})
    records = []
    for name, last in (("s2", 4), ("s10", 5)):
        image = nib.load(volumes / f"{name}.nii.gz")
        truth = np.zeros(image.shape, np.uint8)
        truth[2:5, 3:7, 1:last] = 3
        nib.save(nib.Nifti1Image(truth, image.affine), tmp_path / f"{name}_truth.nii.gz")
        records.append({"image_path": f"scans/{name}.nii.gz", "mask_path": f"{name}_truth.nii.gz", "patient": name})
    (tmp_path / "test.json").write_text(json.dumps(records))
    (tmp_path / "label_dict.json").write_text('{"ball": 3}')
    result = run("score", model, tmp_path / "test.json", "--json")
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout)
    assert scores["primary"]["name"] == "dice"
    assert scores["primary"]["value"] == pytest.approx((1 + 2 * 36 / (36 + 48)) / 2)
    assert scores["n_patients"] == 2
    (tmp_path / "label_dict.json").write_text('{"ball": 7}')
    wrong = run("score", model, tmp_path / "test.json")
    assert isinstance(wrong.exception, UsageError)
    assert "{'ball': 3}" in str(wrong.exception)
    assert "{'ball': 7}" in str(wrong.exception)


def test_score_measures_boxes(tmp_path: Path) -> None:
    model = make_model(tmp_path / "m", "detection", classes=["spot"], plan={"dims": 2})
    records = []
    for number in range(4):
        Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / f"{number}.png")
        boxes = [{"label": "spot", "box": [1, 1, 4, 5]}] if number % 2 else []
        records.append({"image_path": f"{number}.png", "boxes": boxes, "patient": f"p{number}"})
    (tmp_path / "test.json").write_text(json.dumps(records))
    result = run("score", model, tmp_path / "test.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split()[0] in ("map_50", "map")
    assert "image_auroc 0.500" in result.stdout
