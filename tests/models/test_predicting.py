"""Delivered folders: loading, running predict.py in its own process, and refusing nonsense."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.errors import ModelError
from m3b.models import load_model, parse_predictions, run_predict, run_unconfined, stage_cases
from m3b.models.confinement import run_confined

PREDICT = """
import argparse, json, os, sys
from pathlib import Path
import numpy as np
from PIL import Image
ARGS = argparse.ArgumentParser()
ARGS.add_argument("images", nargs="*"); ARGS.add_argument("--list"); ARGS.add_argument("-o")
args = ARGS.parse_args()
assert json.loads((Path(__file__).parent / "config.json").read_text())["classes"] == ["dark", "light"]
paths = args.images + (json.loads(Path(args.list).read_text()) if args.list else [])
done, failed = [], 0
for path in paths:
    files = path if isinstance(path, list) else [path]
    try:
        p = float(np.mean([np.asarray(Image.open(f)) / 255 for f in files]))
        chosen = "light" if p > 0.5 else "dark"
        done.append({"image": path, "probabilities": {"light": p, "dark": 1 - p}, "prediction": chosen})
    except OSError as error:
        failed = 1
        done.append({"image": path, "error": str(error)})
print("keys", sorted(k for k in os.environ if "KEY" in k))
Path(args.o).write_text(json.dumps(done))
sys.exit(failed)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "predict.py").write_text(PREDICT)
    (folder / "config.json").write_text(
        json.dumps({"plan": {"classes": ["dark", "light"], "multi_label": False}, "classes": ["dark", "light"]})
    )
    (folder / "README.md").write_text("# A card\n")
    return folder


@pytest.fixture
def images(tmp_path: Path) -> list[str]:
    for i in range(5):
        Image.fromarray(np.full((4, 4), 50 * i, np.uint8)).save(tmp_path / f"i{i}.png")
    return [str(tmp_path / f"i{i}.png") for i in range(5)]


def test_load_and_predict(model: Path, images: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    loaded = load_model("model")
    assert loaded.classes == ("dark", "light")
    assert loaded.card.startswith("# A card")
    got = loaded.predict(["i4.png", Path("i0.png"), ["i1.png", "i3.png"]])
    assert [item.image for item in got] == ["i4.png", "i0.png", ("i1.png", "i3.png")]
    assert [round(item.probabilities["light"] * 255) for item in got] == [200, 0, 100]
    assert got[0].prediction == ("light",)
    assert list(got[0].probabilities) == ["dark", "light"]
    assert loaded.predict([]) == []
    assert not list(model.rglob("__pycache__"))


def test_unreadable_image(model: Path, images: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no image")
    paths = [images[0], str(tmp_path / "bad.png"), images[4]]
    with pytest.raises(ModelError, match=r"bad\.png") as error:
        load_model(model).predict(paths)
    assert error.value.code == "not_predicted"
    got = load_model(model).predict(paths, strict=False)
    assert [bool(item.error) for item in got] == [False, True, False]
    assert got[1].to_dict()["error"]


def test_staged_predictions_come_back_in_order(model: Path, images: list[str], tmp_path: Path) -> None:
    staged = stage_cases(images, tmp_path / "staged", False)
    commands: list[list[str]] = []

    def run(argv: list[str], cwd: Path, out: Path) -> tuple[int, str]:
        commands.append(argv)
        assert cwd == staged.folder.resolve()
        return run_unconfined(argv, cwd, out)

    got = staged.restore_order(run_predict(model, staged.folder, staged.paths, run))
    assert [round(item.probabilities["light"] * 255) for item in got] == [0, 50, 100, 150, 200]
    assert commands[0][0] == sys.executable
    assert "--list" in commands[0]


def test_no_keys_reach_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    code = "import os; print([k for k in os.environ if 'KEY' in k], os.environ['HF_HUB_OFFLINE'])"
    assert run_unconfined([sys.executable, "-c", code], tmp_path, tmp_path / "o") == (0, "[] 1\n")


@pytest.mark.confined
def test_threads_of_a_prediction_sleep_while_they_wait(tmp_path: Path) -> None:
    """Beside other programs, two threads that spin took 14 times the processor time of one."""
    command = [sys.executable, "-c", "import os; print(os.environ['OMP_WAIT_POLICY'])"]
    assert run_unconfined(command, tmp_path, tmp_path / "o") == (0, "PASSIVE\n")
    assert run_confined(command, read=[], place=tmp_path) == (0, "PASSIVE\n")


def test_a_slow_model_is_ended_with_its_children(tmp_path: Path) -> None:
    code = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    code += "open('pid', 'w').write(str(p.pid)); time.sleep(60)"
    with pytest.raises(ModelError, match=r"still running after 3 s"):
        run_unconfined([sys.executable, "-c", code], tmp_path, tmp_path / "o", timeout_s=3)
    child = Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    until = time.monotonic() + 120  # the kill is sent; on a busy machine the death takes a moment
    while _lives(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _lives(child)


def _lives(stat: Path) -> bool:
    try:
        return stat.read_text().split()[2] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("raise SystemExit(3)", "status 3"),
        ("1 / 0", "ZeroDivisionError"),
        ("pass", "printed: nothing"),
        ("import sys; open(sys.argv[-1], 'w').write('[')", "no JSON"),
        ("import sys; open(sys.argv[-1], 'w').write('{}')", "must be a JSON list"),
        ("import sys; open(sys.argv[-1], 'w').write('[]')", "0 predictions for 5"),
        ("import os, sys; os.symlink('/etc/hostname', sys.argv[-1])", "no output file"),
    ],
)
def test_a_script_that_fails(model: Path, images: list[str], script: str, words: str) -> None:
    (model / "predict.py").write_text(script)
    with pytest.raises(ModelError, match=words):
        load_model(model).predict(images)


GOOD: dict[str, Any] = {"image": "a.png", "probabilities": {"x": 0.25, "y": 0.75}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "b.png"}, "keep the order"),
        ({"probabilities": None}, "must be an object"),
        ({"probabilities": {"x": 1.0}}, "the classes are"),
        ({"probabilities": {"x": 0.5, "z": 0.5}}, "the classes are"),
        ({"probabilities": {"x": float("nan"), "y": 0.5}}, "not a number from 0 to 1"),
        ({"probabilities": {"x": True, "y": 0.0}}, "not a number from 0 to 1"),
        ({"probabilities": {"x": "1", "y": 0.0}}, "not a number from 0 to 1"),
        ({"probabilities": {"x": 0.9, "y": 0.9}}, "sum to 1.8"),
        ({"prediction": "z"}, "the classes are"),
        ({"prediction": ["x", "y"]}, "exactly one"),
    ],
)
def test_nonsense_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_predictions([GOOD | change], ["a.png"], ["x", "y"], False)


def test_decisions() -> None:
    assert parse_predictions([GOOD], ["a.png"], ["x", "y"], False)[0].prediction == ("y",)
    several = {"image": "a.png", "probabilities": {"x": 0.6, "y": 0.75}}
    assert parse_predictions([several], ["a.png"], ["x", "y"], True)[0].prediction == ("x", "y")
    none = several | {"prediction": []}
    assert parse_predictions([none], ["a.png"], ["x", "y"], True)[0].prediction == ()
    multi_view = GOOD | {"image": "s1.png|s2.png"}
    assert parse_predictions([multi_view], [["s1.png", "s2.png"]], ["x", "y"], False)[0].image == ("s1.png", "s2.png")


@pytest.mark.parametrize(
    "config", ["", "[]", "{}", '{"classes": "x"}', '{"classes": ["x", "x"]}', '{"classes": [1, 2]}']
)
def test_a_config_without_classes(model: Path, config: str) -> None:
    (model / "config.json").write_text(config)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_model(model)


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no folder"):
        load_model(tmp_path / "absent")
    with pytest.raises(ModelError, match=r"no predict\.py"):
        load_model(tmp_path)
    assert os.listdir(tmp_path) == []
