"""Saliency of answers: asked for only if a model can give it, checked, kept beside the predictions, and drawn for a report."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from m3b.cli.app import app
from m3b.data.index import write_records
from m3b.data.records import Record
from m3b.errors import ModelError, UsageError
from m3b.models import Saliency, load_model, parse_predictions
from m3b.models.case_saliency import explain_cases
from m3b.report import write_report

PREDICT = """
import argparse, json
from pathlib import Path
import numpy as np
from PIL import Image
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("-o")
SALIENCY_OPTION
call = parser.parse_args()
answers = []
for number, path in enumerate(json.loads(Path(call.list).read_text()), start=1):
    pixels = np.asarray(Image.open(path))
    share = float(pixels.max()) / 255
    answer = {"image": path, "probabilities": {"a": 1 - share, "b": share}, "prediction": "b" if share > 0.5 else "a"}
    if getattr(call, "saliency", None):
        Path(call.saliency).mkdir(exist_ok=True)
        levels = np.where(pixels == pixels.max(), 255, 0).astype(np.uint8)
        Image.fromarray(levels).save(Path(call.saliency) / f"{number:04d}_map.png")
        scores = {"score": share, "score_hidden": share / 2, "score_elsewhere": share}
        answer["saliency"] = {"map": f"saliency/{number:04d}_map.png", "method": "hirescam", "class": "b", "outline": 200, **scores}
    answers.append(answer)
Path(call.o).write_text(json.dumps(answers))
"""
INFO = {"task": "diagnosis", "classes": ["a", "b"]}
SALIENCY = {"map": "m.png", "method": "occlusion", "class": "b", "outline": 9, "score": 0.9, "score_hidden": 0.2,
            "score_elsewhere": 0.8}  # fmt: skip


def make_model(folder: Path, *, can_explain: bool = True) -> Path:
    folder.mkdir(parents=True)
    option = 'parser.add_argument("--saliency")' if can_explain else ""
    (folder / "predict.py").write_text(PREDICT.replace("SALIENCY_OPTION", option))
    (folder / "config.json").write_text(
        json.dumps({**INFO, "plan": {"dims": 2}, **({"saliency": True} if can_explain else {})})
    )
    return folder


def draw_case(file: Path, row: int, grey: int) -> Path:
    pixels = np.full((40, 60), 20, np.uint8)
    pixels[row : row + 6, 45:51] = grey
    Image.fromarray(pixels).save(file)
    return file


def parse(answer: dict[str, Any], folder: Path, *, with_saliency: bool = True) -> Saliency | None:
    raw = {"image": "x.png", "probabilities": {"a": 0.1, "b": 0.9}, "saliency": answer}
    return parse_predictions([raw], ["x.png"], ["a", "b"], folder=folder, with_saliency=with_saliency)[0].saliency


def test_an_invalid_saliency_is_refused_and_one_that_nobody_asked_for_ignored(tmp_path: Path) -> None:
    draw_case(tmp_path / "m.png", 1, 99)
    assert parse(SALIENCY, tmp_path) == Saliency(tmp_path / "m.png", "occlusion", "b", 9, 0.9, 0.2, 0.8)
    assert parse({"error": "out of memory"}, tmp_path) is None
    assert parse({"map": "../../etc/passwd"}, tmp_path, with_saliency=False) is None
    for change in ({"map": "../m.png"}, {"map": None}, {"method": "x"}, {"class": "c"}, {"class": ["b"]}, {"outline": "9"},
                   {"score": float("nan")}, {"score_hidden": None}):  # fmt: skip
        with pytest.raises(ModelError):
            parse({**SALIENCY, **change}, tmp_path)


def test_the_command_writes_maps_and_draws_them(tmp_path: Path) -> None:
    model, image = make_model(tmp_path / "m"), draw_case(tmp_path / "x.png", 10, 220)
    options = ["predict", str(model), str(image), "-o", str(tmp_path / "out"), "--saliency", "--overlay"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    (entry,) = json.loads((tmp_path / "out/predictions.json").read_text())
    levels = np.asarray(Image.open(tmp_path / "out" / entry["saliency"]["map"]))
    assert np.argwhere(levels == 255).mean(axis=0) == pytest.approx([12.5, 47.5])
    assert (tmp_path / "out" / entry["overlay"]).is_file()
    old_folder = make_model(tmp_path / "old", can_explain=False)
    refused = CliRunner().invoke(app, ["predict", str(old_folder), str(image), "-o", str(tmp_path / "o"), "--saliency"])
    assert isinstance(refused.exception, UsageError)
    with load_model(old_folder) as old_model, pytest.raises(ModelError) as raised:
        old_model.predict(image, out=tmp_path / "o", saliency=True)
    assert raised.value.code == "no_saliency"


def make_run(folder: Path, *, can_explain: bool) -> Path:
    """A run of a diagnosis with eight test cases, as far as the report reads it."""
    locked = folder / "locked"
    make_model(locked / "model", can_explain=can_explain)
    records, rows = [], []
    for n in range(9):
        grey = 80 + 20 * n
        draw_case(locked / f"{n}.png", n, grey)
        records.append(Record(f"{n}.png", ("b",) if n > 2 else ("a",), patient=f"p{n}"))
        share = grey / 255
        rows.append({"image": f"{n}.png", "labels": list(records[n].labels), "decided": ["b" if share > 0.5 else "a"],
                     "probabilities": {"a": 1 - share, "b": share}})  # fmt: skip
    (locked / "Datapath").mkdir()
    write_records(locked / "Datapath/train.json", records[:1], "diagnosis")
    write_records(locked / "Datapath/test.json", records[1:], "diagnosis")
    (locked / "Datapath/label_dict.json").write_text(json.dumps({"a": 0, "b": 1}))
    (locked / "predictions.json").write_text(json.dumps(rows[1:]))
    (folder / "run.json").write_text(json.dumps({"id": "r", "result": {"task": "diagnosis", "status": "completed"}}))
    return folder


def test_a_report_shows_what_answers_depend_on(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path / "run", can_explain=True)).read_text(encoding="utf-8")
    assert 3 <= page.count("without the outlined part") <= 9
    pictures = json.loads((tmp_path / "run/pictures.json").read_text())["pictures"]["tests"]
    explained = [picture for picture in pictures if picture["saliency"]]
    assert {Path(picture["saliency"]["map_file"]).parent.name for picture in explained} == {""}, (
        "no path of this machine"
    )
    assert json.loads((tmp_path / "run/pictures.json").read_text())["version"] == 5
    heated = Image.open(io.BytesIO(_decode(explained[0]["jpeg"])))
    image_half, map_half = (
        np.asarray(heated.crop((x, 0, x + heated.width // 2, heated.height))).astype(int)
        for x in (0, heated.width // 2)
    )
    assert (map_half[..., 0] - map_half[..., 2]).max() > 100 > (image_half[..., 0] - image_half[..., 2]).max(), (
        "the map is red, the image grey"
    )
    assert write_report(tmp_path / "run").read_text(encoding="utf-8") == page


def _decode(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


def test_a_model_that_cannot_explain_is_not_asked(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", can_explain=False)
    page = write_report(run).read_text(encoding="utf-8")
    assert "without the outlined part" not in page
    assert page.count("data:image/jpeg") > 8
    assert explain_cases(run / "locked", "diagnosis", ["1.png"]) == {}
    (run / "locked/model/config.json").write_text(json.dumps({**INFO, "saliency": True}))
    with pytest.raises(ModelError):
        explain_cases(run / "locked", "diagnosis", ["1.png"])
