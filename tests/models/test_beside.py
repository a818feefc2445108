"""A delivered model that is given covariates beside the image, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from m3b.cli.app import app
from m3b.errors import ModelError, UsageError
from m3b.models import load_model

PREDICT = """
import json, sys
from pathlib import Path
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
done = []
for case in json.loads(Path(option("--list")).read_text()):
    p = 0.5 if case["age"] is None else case["age"] / 100 + 0.1 * (case["sex"] == "M")
    done.append({"image": case["image"], "probabilities": {"clear": 1 - p, "ill": p}, "prediction": "ill" if p >= 0.5 else "clear"})
Path(option("-o")).write_text(json.dumps(done))
"""
RULES = [
    {"name": "age", "kind": "number", "centre": 61, "scale": 10, "unknown": 0},
    {"name": "sex", "kind": "category", "values": ["F", "M"], "unknown": 0},
]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ill with the chance of the age in percent, a tenth more for men; two pictures beside it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "predict.py").write_text(PREDICT)
    (folder / "config.json").write_text(json.dumps({"classes": ["clear", "ill"], "plan": {"covariates": RULES}}))
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return folder


def test_each_case_is_answered_with_its_own_covariates(model: Path) -> None:
    loaded = load_model(model)
    assert [rule["name"] for rule in loaded.covariates] == ["age", "sex"]
    assert "given beside the image" in loaded._repr_html_()
    old, unknown = loaded.predict(
        [{"image": "a.png", "age": 70, "sex": "M"}, {"image": Path("b.png"), "age": None, "sex": None}]
    )
    assert (old.image, unknown.image) == ("a.png", "b.png")
    assert old.probabilities["ill"] == pytest.approx(0.8)
    assert unknown.probabilities["ill"] == 0.5
    [alone] = loaded.predict({"image": "a.png", "age": 20, "sex": "F"})
    assert alone.probabilities["ill"] == pytest.approx(0.2)
    with pytest.raises(ModelError, match="case 1: it has no age; it has no sex"):
        loaded.predict("a.png")


def test_the_command_line_takes_them_by_name(model: Path) -> None:
    def call(*words: str) -> str:
        done = CliRunner().invoke(app, ["predict", str(model), "a.png", *words], catch_exceptions=False)
        assert done.exit_code == 0
        return " ".join(done.output.split())

    assert "ill: 0.700" in call("--with", "age=70", "--with", "sex=F")
    assert "ill: 0.500" in call("--with", "age=", "--with", "sex=F")
    for words, message in (
        (["--with", "age=70"], "it has no sex"),
        (["--with", "age=old", "--with", "sex=F"], "age is a number"),
        (["--with", "weight=70"], "name one of age, sex"),
        ([], "it has no age"),
    ):
        with pytest.raises(UsageError, match=message):
            call(*words)


def test_a_model_of_images_alone_is_given_nothing(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({"classes": ["clear", "ill"], "plan": {}}))
    with pytest.raises(UsageError, match="this model takes images only"):
        CliRunner().invoke(app, ["predict", str(model), "a.png", "--with", "age=3"], catch_exceptions=False)


def test_scoring_gives_each_case_its_covariates(model: Path, tmp_path: Path) -> None:
    records = [
        {"image_path": name, "labels": [("clear", "ill")[ill]], "patient": f"p{at}",
         "covariates": {"age": 80 if ill else 20, "sex": "F"}}
        for at, (name, ill) in enumerate([("a.png", 1), ("b.png", 0)])
    ]  # fmt: skip
    (tmp_path / "cases.json").write_text(json.dumps(records))
    done = CliRunner().invoke(
        app, ["score", str(model), str(tmp_path / "cases.json"), "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["metrics"]["accuracy"]["value"] == 1.0
