"""Predictions come, and are written, as they are made; an interrupted call goes on; thresholds hold everywhere."""

from __future__ import annotations

import csv
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from m3b.cli.app import app
from m3b.cli.prediction_output import format_entry, write_table
from m3b.errors import ModelError, UsageError
from m3b.models import DetectedBox, Model, Prediction, load_model
from m3b.models.prediction_store import OutputFolder, PredictionStore
from m3b.models.thresholds import make_decider
from m3b.models.worker import _next_batch_size

MODEL = """
import argparse, json, sys, time
from functools import lru_cache
from pathlib import Path
HERE = Path(__file__).parent

@lru_cache(maxsize=1)
def load():
    print("loaded", file=LOG, flush=True)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list"); parser.add_argument("-o"); parser.add_argument("--masks")
    call = parser.parse_args()
    answers = []
    for number, path in enumerate(json.loads(Path(call.list).read_text()), start=1):
        SLEEP
        if "broken" in path:
            sys.exit(3)
        TASK
    Path(call.o).write_text(json.dumps(answers))

if __name__ == "__main__":
    main()
"""
CLASSES = """
        answers.append({"image": path, "probabilities": {"a": 0.7, "b": 0.3}})
"""
MASKS = """
        file = Path(call.masks) / f"{number:04d}_case.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(Path(path).read_bytes())
        answers.append({"image": path, "mask": f"masks/{file.name}", "volumes_ml": {"a": None}})
"""


def make_model(folder: Path, task: str = "diagnosis", sleep: str = "") -> Path:
    folder.mkdir()
    classes = {"diagnosis": ["a", "b"], "segmentation": ["a"]}[task]
    script = MODEL.replace("TASK", (CLASSES if task == "diagnosis" else MASKS).strip()).replace(
        "SLEEP", sleep or "pass"
    )
    (folder / "predict.py").write_text(script.replace(", file=LOG, flush=True", ""))
    labels = {"a": 1} if task == "segmentation" else {}
    (folder / "config.json").write_text(
        json.dumps({"task": task, "classes": classes, "labels": labels, "plan": {"dims": 2}})
    )
    return folder


@pytest.fixture
def films(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "films"
    folder.mkdir()
    for number in range(20):
        Image.fromarray(np.full((6, 5), number, np.uint8)).save(folder / f"f{number:02d}.png")
    return sorted(folder.iterdir())


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_results_come_and_are_written_as_they_are_made(tmp_path: Path, films: list[Path]) -> None:
    progress_calls: list[tuple[int, int]] = []
    with load_model(make_model(tmp_path / "m")) as model:
        answers = model.predict_iter(
            films, out=tmp_path / "out", progress=lambda done, total: progress_calls.append((done, total))
        )
        first = next(answers)
        assert first.image == str(films[0])
        assert progress_calls == [(1, 20)]
        answers.close()  # type: ignore[attr-defined]  # a generator
        entries = json.loads((tmp_path / "out/predictions.json").read_text())
        assert [entry["image"] for entry in entries] == [str(films[0])]
        assert len(model.predict(films, out=tmp_path / "out")) == 20
        assert model.worker.starts == 1
    assert len(json.loads((tmp_path / "out/predictions.json").read_text())) == 20
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["predictions.json"]


def test_another_model_starts_anew_and_overwrites_no_mask_of_a_case(tmp_path: Path, films: list[Path]) -> None:
    model_folder = make_model(tmp_path / "m", "segmentation")
    broken = films[12].with_name("f12_broken.png")
    films[12].rename(broken)
    films[12] = broken
    out = tmp_path / "out"
    with load_model(model_folder) as model:
        with pytest.raises(ModelError):
            model.predict(films, out=out)
        n_done = len(json.loads((out / "predictions.json").read_text()))
        assert 0 < n_done <= 12
        times = {file: file.stat().st_mtime_ns for file in (out / "masks").iterdir()}
        model_folder.joinpath("predict.py").write_text(
            model_folder.joinpath("predict.py").read_text().replace('"broken"', '"nothing"')
        )
    assert (out / "predictions.json.partial").exists()
    with load_model(model_folder) as model:  # another predict.py is another model
        assert len(model.predict(films, out=out)) == 20
    predictions = json.loads((out / "predictions.json").read_text())
    for film, prediction in zip(films, predictions, strict=True):
        assert prediction["image"] == str(film)
        assert (out / prediction["mask"]).read_bytes() == film.read_bytes()
    assert len({prediction["mask"] for prediction in predictions}) == 20
    assert len(times) == n_done


@pytest.mark.confined
def test_ctrl_c_leaves_what_is_done_and_the_same_command_goes_on(tmp_path: Path, films: list[Path]) -> None:
    model = make_model(tmp_path / "m", "segmentation", sleep="time.sleep(0.4)")
    out = tmp_path / "out"
    words = [sys.executable, "-m", "m3b", "predict", str(model), str(films[0].parent), "-o", str(out)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    done = json.loads((out / "predictions.json").read_text())
    assert 3 <= len(done) < 20
    assert f"{len(done)} of 20" in errors
    times = {entry["mask"]: (out / entry["mask"]).stat().st_mtime_ns for entry in done}
    again = run("predict", model, films[0].parent, "-o", out)
    assert again.exit_code == 0, again.output
    assert f"going on: {len(done)} of 20" in again.stderr
    assert len(again.stdout.splitlines()) == 20
    predictions = json.loads((out / "predictions.json").read_text())
    assert [Path(entry["image"]).name for entry in predictions] == [film.name for film in films]
    assert {mask: (out / mask).stat().st_mtime_ns for mask in times} == times, "not predicted again"
    assert not (out / "predictions.json.partial").exists()


def test_another_prediction_does_not_go_on(tmp_path: Path, films: list[Path]) -> None:
    model = make_model(tmp_path / "m")
    with load_model(model) as loaded:
        answers = loaded.predict_iter(films, out=tmp_path / "out")
        next(answers)
        answers.close()  # type: ignore[attr-defined]  # a generator
    os.utime(films[0], (1, 1))
    changed = run("predict", model, films[0].parent, "-o", tmp_path / "out")
    assert isinstance(changed.exception, UsageError)
    forced = run("predict", model, films[0].parent, "-o", tmp_path / "out", "--force")
    assert forced.exit_code == 0
    assert len(json.loads((tmp_path / "out/predictions.json").read_text())) == 20
    finished = run("predict", model, films[0].parent, "-o", tmp_path / "out")
    assert isinstance(finished.exception, UsageError)


def test_a_second_interruption_loses_nothing(tmp_path: Path, films: list[Path]) -> None:
    model, out = make_model(tmp_path / "m"), tmp_path / "out"
    films[9].rename(films[9].with_name("f09_broken.png"))
    for _ in range(2):
        failed = run("predict", model, films[0].parent, "-o", out)
        assert isinstance(failed.exception, ModelError)
        assert [Path(entry["image"]).name for entry in json.loads((out / "predictions.json").read_text())] == [
            film.name for film in films[:8]
        ]
        assert len((out / "predictions.json.partial").read_text().splitlines()) == 9


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, films: list[Path]) -> None:
    model, table = make_model(tmp_path / "m"), tmp_path / "t.csv"
    store = PredictionStore(table, model, write_table)
    store.begin({})
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match=r"t\.csv") as error:
            store.add(0, "", {}, {"image": 200 * "x"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert error.value.errno == errno.EFBIG
    assert error.value.filename == str(table)


def test_a_table_goes_on_too(tmp_path: Path, films: list[Path]) -> None:
    model, table = make_model(tmp_path / "m"), tmp_path / "t.csv"
    films[3].rename(broken := films[3].with_name("f03_broken.png"))
    failed = run("predict", model, films[0].parent, "-o", table)
    assert isinstance(failed.exception, ModelError)
    broken.rename(films[3])
    assert run("predict", model, films[0].parent, "-o", table).exit_code == 0
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(Path(row["image"]).name, row["a"], row["prediction"]) for row in rows] == [
        (film.name, "0.7", "a") for film in films
    ]


def test_requests_grow_until_they_take_two_seconds() -> None:
    assert _next_batch_size(8, 0.01, smallest=8) == 32
    assert _next_batch_size(512, 2.0, smallest=8) == 512
    assert _next_batch_size(64, 8.0, smallest=8) == 16
    assert _next_batch_size(8, 60.0, smallest=8) == 8
    assert _next_batch_size(4, 8.0, smallest=1) == 1


def scores(*values: float) -> Prediction:
    return Prediction("x", boxes=tuple(DetectedBox("spot", (0, 0, 1, 1), value) for value in values))


def test_a_threshold_selects_boxes_and_classes() -> None:
    by_score = make_decider(0.4, ("spot",), False)(scores(0.9, 0.4, 0.3))
    assert [box.score for box in by_score.boxes or ()] == [0.9, 0.4]
    of_another_class = make_decider({"other": 0.7}, ("spot", "other"), False)(scores(0.9, 0.4, 0.2))
    assert [box.score for box in of_another_class.boxes or ()] == [0.9, 0.4]
    single = Prediction("x", {"a": 0.7, "b": 0.3}, ("a",), prediction_set=("a", "b"), set_level=0.9, abstains=True)
    assert make_decider({"b": 0.2}, ("a", "b"), False)(single).prediction == ("b",)
    assert make_decider(0.8, ("a", "b"), False)(single).prediction == ()
    assert make_decider(0.5, ("a", "b"), False)(single).prediction == ("a",)
    several = Prediction("x", {"a": 0.7, "b": 0.3}, ("b",))
    assert make_decider(0.6, ("a", "b"), True)(several).prediction == ("a",)
    assert make_decider({"a": 0.5}, ("a", "b"), True)(several).prediction == ("a", "b")
    for wrong in (1.5, {"c": 0.5}, {"a": -1.0}):
        with pytest.raises(UsageError):
            make_decider(wrong, ("a", "b"), True)


def test_thresholds_of_the_command(tmp_path: Path, films: list[Path]) -> None:
    model = make_model(tmp_path / "m")
    table = tmp_path / "t.csv"
    assert run("predict", model, films[0], "-o", table, "--threshold", "b=0.3").exit_code == 0
    with table.open() as stream:
        assert [row["prediction"] for row in csv.DictReader(stream)] == ["b"]
    for words in (["0.5", "a=0.5"], ["c=0.5"], ["2"], ["low"]):
        options = [option for word in words for option in ("--threshold", word)]
        assert isinstance(run("predict", model, films[0], *options).exception, UsageError)


def test_a_script_that_loads_anew_gets_two_requests(tmp_path: Path, films: list[Path]) -> None:
    """Weights that do not stay loaded would be loaded for every request."""
    folder = make_model(tmp_path / "m")
    text = (folder / "predict.py").read_text()
    (folder / "predict.py").write_text(text.replace('if __name__ == "__main__":\n    main()', "main()"))
    calls: list[int] = []
    with load_model(folder) as model:
        request = type(model.worker)._predict_batch

        def count(self: Any, *arguments: Any) -> list[Prediction]:
            answers = request(self, *arguments)
            calls.append(len(answers))
            return answers

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(model.worker), "_predict_batch", count)
            assert len(model.predict(films)) == 20
    assert calls == [8, 12]


def test_unconfined_models_stay_loaded_too(tmp_path: Path, films: list[Path]) -> None:
    model: Model = load_model(make_model(tmp_path / "m"), unconfined=True)
    for _ in range(2):
        assert len(model.predict(films)) == 20
    assert model.worker.starts == 1
    began = time.monotonic()
    model.close()
    assert time.monotonic() - began < 30


def test_a_file_that_takes_long_is_written_less_often(tmp_path: Path) -> None:
    n_writes = 0

    def write_slowly(entries: list[dict[str, Any]], file: Path) -> None:
        nonlocal n_writes
        n_writes += 1
        time.sleep(0.1)

    model = make_model(tmp_path / "m")
    store = PredictionStore(tmp_path / "out.json", model, write_slowly)
    store.begin({})
    store.add(0, "a", {}, {})
    time.sleep(1.1)
    store.add(1, "b", {}, {})
    assert n_writes == 1
    store.finish()


def test_the_line_of_a_failed_image_names_it_once() -> None:
    line = format_entry({"image": "films/bad.png", "error": "films/bad.png: cannot be read: no picture"}, 0, {})
    assert line.count("films/bad.png") == 1


class CountingPath(type(Path())):  # type: ignore[misc]
    """A path that counts the names that are tried for it."""

    tried = 0

    def with_name(self, name: str) -> Path:
        CountingPath.tried += 1
        return Path(super().with_name(name))


def test_names_of_many_masks_are_found_at_the_first_or_second_try(tmp_path: Path) -> None:
    """All names that might be free were made for each mask: 10,000 masks took 50,000,000 names."""
    output = OutputFolder(tmp_path, 2000)
    names = set()
    for position in range(2000):
        name = output._free_name(CountingPath("masks/mask.png"), 1, position)
        output._used_files.add(output.folder / name)
        names.add(name)
    assert len(names) == 2000
    assert CountingPath.tried <= 4000
