"""`m3b predict`, `score` and `export` of models of one's own runs and from elsewhere, confined and not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from m3b.cli.app import app
from m3b.run.folder import is_own_model
from m3b.run.registry import register

pytestmark = pytest.mark.confined

PREDICT = """
import json, os, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
try:
    read = bool(open(SECRET).read())
except OSError:
    read = False
cases = json.loads(open(arguments["--list"]).read())
answers = [{"image": c, "probabilities": {"stole": float(read), "behaved": float(not read)}} for c in cases]
json.dump(answers, open(arguments["-o"], "w"))
"""


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run with a model that reads a file of the user's if it can."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.png").write_bytes(b"not looked at")
    folder = tmp_path / "run"
    (folder / "model").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    register(folder, "bubblewrap")
    (folder / "model/predict.py").write_text(PREDICT.replace("SECRET", repr(str(tmp_path / "secret"))))
    (folder / "model/config.json").write_text(json.dumps({"classes": ["stole", "behaved"]}))
    return folder


def predict(model: Path, *words: str) -> Result:
    image = model.parent / "data/a.png"
    image = image if image.exists() else model.parents[1] / "data/a.png"
    return CliRunner().invoke(app, ["predict", str(model), str(image), "--json", *words], catch_exceptions=False)


def answer_of(done: Result) -> str:
    assert done.exit_code == 0, done.output
    [prediction] = json.loads(done.stdout)["predictions"]
    return str(prediction["prediction"][0])


def test_a_model_of_ones_own_is_confined_without_a_word(run_folder: Path) -> None:
    done = predict(run_folder / "model")
    assert answer_of(done) == "behaved"
    assert done.stderr == ""


def test_a_model_from_elsewhere_is_named_and_confined(run_folder: Path) -> None:
    elsewhere = (run_folder / "model").rename(run_folder.parent / "downloaded")
    done = predict(elsewhere)
    assert answer_of(done) == "behaved"
    assert f"{elsewhere} is a model from elsewhere" in done.stderr


def test_unconfined_warns_and_is_so(run_folder: Path) -> None:
    done = predict(run_folder / "model", "--unconfined")
    assert answer_of(done) == "stole"
    own_warning = done.stderr
    elsewhere = (run_folder / "model").rename(run_folder.parent / "downloaded")
    done = predict(elsewhere, "--unconfined")
    assert answer_of(done) == "stole"
    assert "WARNING" in own_warning
    assert "elsewhere" not in own_warning
    assert "WARNING" in done.stderr
    assert "elsewhere" in done.stderr


def test_scoring_is_confined(run_folder: Path) -> None:
    index = run_folder.parent / "test.json"
    index.write_text(json.dumps([{"image_path": "data/a.png", "labels": ["behaved"], "patient": "p"}]))
    accuracies = {}
    for words in ((), ("--unconfined",)):
        call = ["score", str(run_folder / "model"), str(index), "--json", "--metric", "accuracy", *words]
        done = CliRunner().invoke(app, call, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        accuracies[words] = json.loads(done.stdout)["metrics"]["accuracy"]["value"]
    assert accuracies == {(): 1.0, ("--unconfined",): 0.0}


def test_whose_a_model_is(run_folder: Path) -> None:
    assert is_own_model(run_folder / "model")
    link = run_folder.parent / "link"
    link.symlink_to(run_folder / "model")
    assert is_own_model(link)
    assert not is_own_model(run_folder)
    copy = run_folder.parent / "copy"
    shutil.copytree(run_folder, copy)
    assert not is_own_model(copy / "model"), "a run.json beside a model says nothing"
