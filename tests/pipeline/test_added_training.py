"""`m3b train`: a finished run trains on, and the better model is delivered."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pipeline_kit import TRAIN, actor, check_end, combine_calls, copy_run, journal, of_kind, play, say, script, write
from typer.testing import CliRunner

from m3b import Pipeline, Result, resume, train_more, verify
from m3b.cli.app import app
from m3b.errors import OptionError, UsageError
from m3b.events import ArtifactAccepted, Event, ToolCalled
from m3b.models.checksums import hash_files
from m3b.run.added_training import restore_results, set_results_aside
from m3b.run.folder import RunFolder
from project_kit import EXPORT

BETTER, WORSE, BROKEN = 5.0, 6.0, 7.0
"""Minutes that let the train.py of these tests make a better model, a worse one, or fail."""
TRAIN_PY = """
import argparse, json, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file, save_file
from features import features
parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
parser.add_argument("--minutes", type=float, default=5.0)
parser.add_argument("--start-from", type=Path)
options = parser.parse_args()
rows = json.load(open("Datapath/train.json"))
names = list(json.load(open("Datapath/label_dict.json")))
x = np.stack([features(row["image_path"]) for row in rows])
x = np.hstack([x, np.ones((len(x), 1), np.float32)])
y = np.array([names.index(row["labels"][0]) for row in rows], np.float32)
train = np.arange(len(x)) % 2 == 0
out = Path("Logout/fold0")
out.mkdir(parents=True, exist_ok=True)
if options.start_from:
    w = load_file(options.start_from / "fold0/best.safetensors")["w"]
    Path("Logout/start_from.json").write_text("{}")
    if options.minutes == 7.0:
        sys.exit("the loss is no number")
    for _ in range(400):
        p = 1 / (1 + np.exp(-x[train] @ w))
        w -= 0.3 * (x[train].T @ (p - y[train]) / train.sum() + 0.001 * w)
    w = -w if options.minutes == 6.0 else w
else:
    w = np.random.default_rng(0).normal(0, 1, x.shape[1]).astype(np.float32)
save_file({"w": w.astype(np.float32)}, out / "best.safetensors")
json.dump([{"image": row["image_path"]} for row, seen in zip(rows, train) if not seen],
          open("Logout/valid_predictions.json", "w"))
print("trained")
"""
EXPORT_PY = EXPORT.replace("Logout/best", "Logout/fold0/best")


@pytest.fixture(scope="session")
def trained_run(halfway_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a model of random weights, whose project goes on from weights."""
    run = copy_run(halfway_run, tmp_path_factory.mktemp("trained") / "run")
    files = write({"train.py": TRAIN_PY, "export.py": EXPORT_PY.replace("TITLE", "Spots")})
    result = resume(run, actor(play(model=[combine_calls(files, script(TRAIN)), say("Done.")])))
    assert result.has_verdict
    assert result.test_looks == 1
    return run


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    return copy_run(trained_run, tmp_path / "run")


def hash_model(folder: Path) -> dict[str, str]:
    return {
        **hash_files(folder),
        "provenance.json": hashlib.sha256((folder / "provenance.json").read_bytes()).hexdigest(),
    }


def test_a_better_model_is_delivered_and_the_earlier_one_kept(run: Path) -> None:
    before = RunFolder(run).load_record()["result"]
    earlier_files = hash_model(run / "model")
    result = train_more(run, BETTER)
    check_end(result, result.status, "model-1/")
    assert result.primary is not None
    assert result.primary.value > before["primary"]["value"]
    comparison = of_kind(run, "models_compared")[-1]
    assert comparison["kept"] == "new"
    assert comparison["new"]["value"] > comparison["earlier"]["value"]
    assert hash_model(run / "model-1") == earlier_files
    assert sorted(path.name for path in (run / "work").glob("*-of-model-1")) == ["Logout-of-model-1"]
    assert result.test_looks == json.loads((run / "model/provenance.json").read_text())["test_looks"] == 2
    for text in ((run / "model/README.md").read_text(), (run / "report.html").read_text()):
        assert "look 2 at the locked test cases" in text
    assert verify(run).ok
    assert verify(run / "model-1").ok
    assert {entry.subject: entry.state for entry in verify(run).comparisons}["the earlier model model-1"] == "same"
    commands = [call["arguments"]["command"] for call in of_kind(run, "call", "added_training")]
    assert len(commands) == 1
    assert "--start-from Logout-of-model-1 --minutes 5" in commands[0]
    again = train_more(run, BETTER)  # from the second model: the third, or none that is better
    assert again.test_looks == 2 + (of_kind(run, "models_compared")[-1]["kept"] == "new")
    assert verify(run).ok


def test_a_worse_model_changes_nothing_and_does_not_look_at_the_test_cases(run: Path) -> None:
    before, files = RunFolder(run).load_record()["result"], hash_model(run / "model")
    weights = (run / "work/Logout/fold0/best.safetensors").read_bytes()
    result = train_more(run, WORSE)
    check_end(result, before["status"])
    assert of_kind(run, "models_compared")[-1]["kept"] == "earlier"
    assert result.test_looks == 1
    assert result.to_json()["metrics"] == before["metrics"]
    assert hash_model(run / "model") == files
    assert not (run / "model-1").exists()
    assert (run / "work/Logout/fold0/best.safetensors").read_bytes() == weights
    assert not list((run / "work").glob("*-of-model-*"))
    assert not (run / "locked/candidate").exists()
    assert [event["kind"] for event in journal(run)].count("delivered") == 1
    assert verify(run).ok


def test_a_training_that_fails_can_be_tried_again_or_dropped(run: Path) -> None:
    before, files = RunFolder(run).load_record()["result"], hash_model(run / "model")
    result = train_more(run, BROKEN)
    check_end(result, "failed", "the loss is no number")
    assert result.primary is not None, "the figures of the delivered model stay"
    assert hash_model(run / "model") == files
    assert verify(run).ok
    assert resume(run, "rules").status == "failed", "tried again"
    with pytest.raises(UsageError, match="--discard"):
        train_more(run, BETTER)
    dropped = train_more(run, discard=True)
    assert dropped.status == before["status"]
    assert dropped.to_json()["metrics"] == before["metrics"]
    assert verify(run).ok
    with pytest.raises(UsageError, match="no interrupted training"):
        train_more(run, discard=True)
    assert train_more(run, BETTER).test_looks == 2


@pytest.mark.parametrize(
    "go_on",
    [
        pytest.param(train_more, id="again"),
        pytest.param(partial(resume, llm="rules"), id="resume", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_training_goes_on(run: Path, go_on: Callable[[Path], Result]) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, ToolCalled):
            raise KeyboardInterrupt

    result = train_more(run, BETTER, on_event=interrupt)
    check_end(result, "cancelled")
    assert result.primary is not None
    assert verify(run).ok
    ended = go_on(run)
    assert ended.test_looks == 2
    assert [event["kind"] for event in journal(run)].count("training_added") == 1
    assert verify(run).ok


def test_a_crash_after_the_new_model_was_accepted(run: Path) -> None:
    """It lies beside the earlier one then, and takes its place when the run goes on."""

    def interrupt(event: Event) -> None:
        if isinstance(event, ArtifactAccepted):
            raise KeyboardInterrupt

    check_end(train_more(run, BETTER, on_event=interrupt), "cancelled")
    assert (run / "locked/candidate/model").is_dir()
    assert resume(run, "rules").test_looks == 2
    assert not (run / "locked/candidate").exists()
    assert (run / "model-1").is_dir()
    assert verify(run).ok


def test_checks_of_the_user_apply_to_the_added_training(run: Path) -> None:
    refused = Pipeline.train_more(run, BETTER, checks={"model_trainer": lambda artifact, work: ["not like this"]})
    check_end(refused, "failed", "not like this")


@pytest.mark.parametrize("minutes", [0, -3, float("nan"), float("inf"), "ten", True])
def test_minutes_that_no_training_can_take(run: Path, minutes: object) -> None:
    before = (run / "journal.jsonl").read_bytes()
    with pytest.raises(OptionError, match="minutes must be"):
        train_more(run, minutes)  # type: ignore[arg-type]
    assert (run / "journal.jsonl").read_bytes() == before


def spoil_plan(run: Path) -> None:
    (run / "work/plan.json").write_text('{"seed": 1}')


def spoil_weights(run: Path) -> None:
    (run / "work/Logout/fold0/best.safetensors").unlink()


def name_other_weights(run: Path) -> None:
    """As if the model, which stores the common part of its networks once, came from other weights than those of the project."""
    file = run / "locked/model/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "trained_weights": ["0" * 64]}))


def change_data(run: Path) -> None:
    """As if the data folder had been another one when the run began."""
    (run / "locked/raw.json").write_text('{"fingerprint": "0", "change_times": false}')


def remove_project(run: Path) -> None:
    (run / "work/train.py").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_plan, "plan.json"),
        (spoil_weights, "weight files"),
        (name_other_weights, "weight files"),
        (remove_project, "train.py is missing"),
        (change_data, "are not those of the run"),
    ],
)
def test_a_project_or_data_that_are_not_those_of_the_run(run: Path, spoil: Callable[[Path], None], words: str) -> None:
    spoil(run)
    before = (run / "journal.jsonl").read_bytes()
    with pytest.raises(UsageError, match=words):
        train_more(run, BETTER)
    assert (run / "journal.jsonl").read_bytes() == before
    assert not RunFolder(run).is_busy


def test_runs_that_cannot_train_on(run: Path, halfway_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has delivered no model"):
        Pipeline.train_more(copy_run(halfway_run, tmp_path / "unfinished"), BETTER)
    with pytest.raises(UsageError, match="Say how long"):
        train_more(run)
    shutil.copytree(run / "model", tmp_path / "alone")
    with pytest.raises(UsageError, match="model without its run"):
        train_more(tmp_path / "alone", BETTER)
    with pytest.raises(UsageError, match="m3b run REQUEST"):
        train_more("Tell spots from tissue", BETTER)
    with pytest.raises(UsageError, match="There is no run"):
        train_more("nowhere", BETTER)


def test_the_command(run: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["train", str(run), "--minutes", "5", "--json"])
    result = json.loads(done.stdout)
    assert done.exit_code == (0 if result["status"] == "completed" else 1)
    assert result["test_looks"] == 2
    show_text = runner.invoke(app, ["show", str(run)]).stdout
    assert "look 2 at the locked test cases" in show_text
    assert "[compared]" in show_text
    assert isinstance(runner.invoke(app, ["train", str(run), "--minutes", "0"]).exception, OptionError)


def test_preprocessed_cases_go_on_to_the_added_training_and_back(tmp_path: Path) -> None:
    """The added training preprocessed all cases again, and both copies stayed on the disk."""
    run = RunFolder(tmp_path)
    for folder in ("Logout/cache", "Logout/fold0", "Deliver"):
        (run.work / folder).mkdir(parents=True)
    (run.work / "Logout/cache/entry.npy").write_bytes(b"case")
    for _ in range(2):  # again after a crash
        set_results_aside(run.work, 1)
        assert (run.work / "Logout/cache/entry.npy").read_bytes() == b"case"
        assert not (run.work / "Logout-of-model-1/cache").exists()
        assert not (run.work / "Logout/fold0").exists()
    restore_results(run, 1)
    assert (run.work / "Logout/cache/entry.npy").read_bytes() == b"case"
    assert (run.work / "Logout/fold0").is_dir()
    assert not (run.work / "Logout-of-model-1").exists()
