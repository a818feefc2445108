"""Commands on files of the user's own: m3b's process loads no parser, and a file that ends the reader costs itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.errors import DataError
from m3b.isolation.reader import inprocess
from m3b.isolation.reader.inprocess import InProcessReader, file_of_reader_path, open_reader, to_reader_path
from m3b.isolation.reader.self_test import TRIAL_JOB, EscapeTrial
from m3b.models import ModelInfo, Prediction
from m3b.models.image_jobs import PAINT_OVERLAY_JOB, PaintOverlayRequest, find_images_confined

INDEX = {"Datapath/train.json", "Datapath/test.json", "Datapath/label_dict.json"}
"""What m3b's own process may open: JSON in its own format, up to a size."""
PREDICT = """
import json, sys
from pathlib import Path
import nibabel as nib, numpy as np
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
paths, out = json.loads(Path(option("--list")).read_text()), Path(option("-o"))
folder = Path(option("--masks")); folder.mkdir(exist_ok=True)
done = []
for number, path in enumerate(paths):
    image = nib.load(path); array = (np.asarray(image.dataobj) > 50).astype(np.uint8)
    nib.save(nib.Nifti1Image(array, image.affine), folder / f"{number}.nii.gz")
    done.append({"image": path, "mask": f"masks/{number}.nii.gz", "volumes_ml": {"ball": 1.0}})
out.write_text(json.dumps(done))
"""


def volumes(folder: Path, count: int = 4) -> list[dict[str, Any]]:
    """Scans with a ball and their masks, and the records of an index of them."""
    (folder / "scans").mkdir(parents=True)
    (folder / "masks").mkdir()
    records = []
    for number in range(count):
        array = np.random.default_rng(number).integers(0, 9, (12, 12, 8)).astype(np.int16)
        array[3:7, 3 : 6 + number % 3, 2:6] = 100
        for name, content in (("scans", array), ("masks", (array > 50).astype(np.uint8))):
            nib.save(nib.Nifti1Image(content, np.eye(4)), folder / name / f"{number}.nii.gz")
        records.append(
            {"image_path": f"scans/{number}.nii.gz", "mask_path": f"masks/{number}.nii.gz", "patient": str(number)}
        )
    return records


def model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "predict.py").write_text(PREDICT)
    config = {"task": "segmentation", "classes": ["ball"], "labels": {"ball": 1}, "plan": {"dims": 3}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def command(cwd: Path, *words: str | Path) -> dict[str, Any]:
    script = Path(__file__).with_name("commands.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(cwd / "set"), *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    report: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert report["noticed"] == ["PIL", "opened"], "the watch itself does not work"
    return report


def test_predicting_scoring_and_auditing_load_no_parser(tmp_path: Path) -> None:
    records = volumes(tmp_path / "set")
    model_folder = model(tmp_path / "model")
    (tmp_path / "set/Datapath").mkdir()
    for name, part_records in (("train", records[:2]), ("test", records[2:])):
        (tmp_path / f"set/Datapath/{name}.json").write_text(json.dumps(part_records))
    (tmp_path / "set/Datapath/label_dict.json").write_text('{"ball": 1}')
    for words, expected in (
        (("predict", model_folder, "set/scans", "-o", "out", "--overlay"), "4 in overlays/"),
        (("score", model_folder, "set/Datapath/test.json"), "dice"),
        (("data", "audit", "set"), "Opened 4 of 4"),
        (("data", "survey", "set"), "nii.gz"),
    ):
        report = command(tmp_path, *words)
        assert report["imported"] == {}, words
        assert set(report["opened"]) <= INDEX, (words, report["opened"])
        assert expected in report["said"], report
    overlays = sorted((tmp_path / "out/overlays").iterdir())
    assert [entry.name for entry in overlays] == ["0001_0.png", "0002_1.png", "0003_2.png", "0004_3.png"]
    assert Image.open(overlays[0]).width > 300
    answers = json.loads((tmp_path / "out/predictions.json").read_text())
    assert [entry["image"] for entry in answers] == [f"set/scans/{n}.nii.gz" for n in range(4)]


def test_writing_croissant_loads_no_parser(tmp_path: Path) -> None:
    pytest.importorskip("mlcroissant")
    (tmp_path / "set/img").mkdir(parents=True)
    rows = ["file,dx"]
    for number in range(8):
        Image.new("L", (8, 8), number).save(tmp_path / f"set/img/{number}.png")
        rows.append(f"{number}.png,{('normal', 'ill')[number % 2]}")
    (tmp_path / "set/labels.csv").write_text("\n".join(rows))
    tables = {"labels": {"files": "labels.csv", "key": "{file}", "image": "{name}"}}
    spec = {"task": "diagnosis", "images": {"files": "img/{case}.png"}, "tables": tables,
            "labels": {"value": "{labels.dx}", "classes": {"normal": [], "ill": []}}}  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(spec))
    report = command(tmp_path, "data", "croissant", tmp_path / "manifest.json", "--data", "set", "-o", "croissant.json")
    assert (report["imported"], report["opened"]) == ({}, {})
    assert "labels.csv" in (tmp_path / "croissant.json").read_text()


def test_folders_are_told_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store/b").mkdir(parents=True)
    for name in ("b/1.png", "b/2.png", "notes.txt"):
        (tmp_path / "store" / name).write_bytes(b"x")
    (tmp_path / "led").symlink_to(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    result = find_images_confined(["led/", "x.npz#images[3]"], is_2d=True)
    assert result.images == ["led/b/1.png", "led/b/2.png", "x.npz#images[3]"]
    assert result.notes == ["led: 1 file(s) skipped that are not images: notes.txt"]
    assert find_images_confined(["store"], is_2d=True, group_views=True).images == [["store/b/1.png", "store/b/2.png"]]


def test_paths_as_a_reader_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a.npz").write_bytes(b"x")
    (tmp_path / "store/odd#name.png").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    assert to_reader_path("link/a.npz#k/e[1]") == f"{tmp_path}/store/a.npz#k/e[1]"
    assert file_of_reader_path(to_reader_path("link/a.npz#k/e[1]")) == tmp_path / "store/a.npz"
    assert file_of_reader_path(to_reader_path("link/odd#name.png")) == tmp_path / "store/odd#name.png"


def test_a_link_to_a_store_without_endings_is_seen(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "store/0f3a").write_bytes(b"x")
    (tmp_path / "data/a.png").symlink_to(tmp_path / "store/0f3a")
    with open_reader([tmp_path / "data/a.png"]) as reader:
        result = reader.run_job(TRIAL_JOB, EscapeTrial(files=(tmp_path / "data/a.png",)))
    assert result.readable_files == (tmp_path / "data/a.png",)


def test_many_folders_are_seen_by_what_they_have_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "MAX_MOUNTED_FOLDERS", 2)
    files = [tmp_path / f"{n}/a.png" for n in range(4)]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(b"x")
    with open_reader(files) as reader:
        assert reader.run_job(TRIAL_JOB, EscapeTrial(files=tuple(files))).readable_files == tuple(files)


def test_elsewhere_than_on_linux_the_process_itself_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (tmp_path / "a").write_bytes(b"bad")
    with open_reader([tmp_path]) as reader:
        assert isinstance(reader, InProcessReader)
        assert reader.run_job(TRIAL_JOB, EscapeTrial(files=(tmp_path / "a",))).readable_files == (tmp_path / "a",)
        with pytest.raises(DataError):
            reader.run_job(
                PAINT_OVERLAY_JOB,
                PaintOverlayRequest(Prediction(str(tmp_path / "a")), ModelInfo("diagnosis", ("a", "b")), None),
            )
