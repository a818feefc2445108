"""Run folders that somebody else made, or changed: found by no name of the user's, and never confined less than the user's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline_kit import REQUEST, actor, copy_run, journal, make_spots, of_kind, play, script

from m3b import Pipeline, resume
from m3b.errors import Authentication, SandboxError, UsageError
from m3b.run.folder import RunFolder, find_model_folder, list_runs
from m3b.run.registry import RegisteredRun, register, state_file
from m3b.testing.scripted_model import llm_error

FUTURE = 9e9
PREDICT = "from pathlib import Path\nPath({stolen!r}).write_text('code of the data set ran')\n"


def plant(folder: Path, stolen: Path, **changes: object) -> Path:
    """Write what a hostile data set may hold: a finished run of the future, with a model of its own."""
    (folder / "model").mkdir(parents=True)
    record = {"format": 2, "id": "x", "request": "r", "status": "completed", "started": FUTURE, "result": {}, **changes}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "predict.py").write_text(PREDICT.format(stolen=str(stolen)))
    return folder


def own_run(folder: Path, data: Path | None = None) -> Path:
    """Make a run that this user began."""
    run = RunFolder.create(folder)
    run.model.mkdir()
    (run.model / "predict.py").write_text("")
    run.save_record({"status": "completed", "request": "mine", "started": 1000.0, "run_dir": str(run.path)})
    assert register(run.path, "bubblewrap", [data] if data else []) == ""
    return run.path


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("M3B_RUNS", raising=False)
    return tmp_path


# --- planted beside the user's runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["ds", "demo-new/run", "runs/20990101-000000-abcd"])
def test_a_planted_run_is_not_the_last_one(working_folder: Path, place: str) -> None:
    plant(working_folder / place, working_folder / "STOLEN")
    with pytest.raises(UsageError):
        RunFolder.open("last")
    user_run = own_run(working_folder / "runs" / "20250101-000000-abcd")
    assert RunFolder.open("last").path == user_run
    assert find_model_folder("last") == user_run / "model"
    assert [run.path for run in list_runs()] == [user_run]
    with pytest.raises(UsageError):
        RunFolder.open("20990101-000000-abcd")


def test_predict_last_runs_no_code_of_a_data_set(working_folder: Path) -> None:
    stolen = plant(working_folder / "ds", working_folder / "STOLEN").parent / "STOLEN"
    (working_folder / "img.png").write_bytes(b"")
    for command in (["predict", "last", "img.png"], ["resume", "last", "-q"]):
        ended = subprocess.run([sys.executable, "-m", "m3b", *command], capture_output=True, text=True, timeout=300)
        assert ended.returncode == 2, ended.stderr
    assert not stolen.exists()


# --- planted inside the data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "sub/folder"])
def test_what_lies_in_the_data_of_a_run_is_not_run(working_folder: Path, place: str) -> None:
    planted = plant(working_folder / "ds" / place, working_folder / "STOLEN")
    own_run(working_folder / "runs" / "20250101-000000-abcd", working_folder / "ds")
    opens: list[Callable[[Path], object]] = [RunFolder.open, find_model_folder, lambda folder: resume(folder, "rules")]
    for attempt in opens:
        with pytest.raises(UsageError, match="inside the data folder"):
            attempt(planted)
    for attempt in (find_model_folder, RunFolder.open):
        with pytest.raises(UsageError, match="inside the data folder"):
            attempt(planted / "model")
    (working_folder / "link").symlink_to(planted)
    with pytest.raises(UsageError, match="inside the data folder"):
        find_model_folder(working_folder / "link")
    assert list_runs(planted.parent) == []
    assert list_runs(planted) == []


def test_a_run_that_names_a_data_folder_around_itself_is_refused(working_folder: Path) -> None:
    """Of data that no run of this user had yet."""
    card = {"name": "ds", "path": str(working_folder / "ds")}
    planted = plant(working_folder / "ds" / "run", working_folder / "STOLEN", status="failed", data=[card])
    outer = plant(
        working_folder / "set" / "run",
        working_folder / "STOLEN",
        external={"elsewhere": [str(working_folder / "set"), None]},
    )
    for folder in (planted, outer):
        for attempt in (RunFolder.open, find_model_folder):
            with pytest.raises(UsageError, match="inside the data folder"):
                attempt(folder)


def test_a_run_beside_its_data_is_not_refused(working_folder: Path) -> None:
    card = {"name": "ds", "path": str(working_folder / "ds")}
    (working_folder / "ds").mkdir()
    run = plant(working_folder / "ds-run", working_folder / "STOLEN", data=[card])
    assert RunFolder.open(run).path == run
    assert find_model_folder(run) == run / "model"


def test_a_new_run_inside_the_data_is_refused(working_folder: Path) -> None:
    data = make_spots(working_folder / "ds", patients=4)
    with pytest.raises(UsageError, match="inside the data"):
        Pipeline("rules", data=[data], out=data / "run").run(REQUEST)
    assert not (data / "run").exists()


# --- a record that was edited --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose trainer has not begun."""
    place = tmp_path_factory.mktemp("halfway")
    acts = play(model=[llm_error(Authentication, "The key is refused.")])
    result = Pipeline(actor(acts), data=[make_spots(place / "spots")], out=place / "run").run(REQUEST)
    return Path(result.run_dir)


def edited(halfway: Path, target: Path) -> Path:
    """A copy of the run whose record asks for no confinement."""
    run = copy_run(halfway, target)
    record = json.loads((run / "run.json").read_text())
    record["options"]["sandbox"] = "off"
    (run / "run.json").write_text(json.dumps(record))
    return run


@pytest.mark.parametrize("registered", [True, False])
def test_a_record_that_says_off_is_not_obeyed(halfway: Path, tmp_path: Path, registered: bool) -> None:
    run = edited(halfway, tmp_path / "run")
    if registered:
        assert register(run, "bubblewrap") == ""
    secret = tmp_path / "host_secret"
    secret.write_text("hunter2-CANARY")
    try:
        resume(run, actor(play(model=[script(f"cat {secret}; echo ran"), llm_error(Authentication, "Enough.")])))
    except SandboxError:  # no bubblewrap here: then nothing is run at all
        return
    results_text = "\n".join(event["text"] for event in of_kind(run, "result"))
    assert "ran" in results_text
    assert "hunter2-CANARY" not in results_text
    record = json.loads((run / "run.json").read_text())
    sessions = [event["data"]["sandbox"]["name"] for event in journal(run) if event["kind"] == "run_started"]
    assert "off" not in [*sessions, record["sandbox"]["name"], *record["sandboxes"]]
    assert record["options"]["sandbox"] != "off"


def test_a_list_behind_a_link_allows_nothing(halfway: Path, tmp_path: Path) -> None:
    """The attacker's own list says that the run was unconfined."""
    run = edited(halfway, tmp_path / "run")
    token = "0" * 32
    (run / ".registered").write_text(token)
    entry = RegisteredRun(run, token, FUTURE, "off")
    (tmp_path / "theirs.jsonl").write_bytes(entry.to_line())
    state_file().parent.mkdir(mode=0o700, parents=True)
    state_file().symlink_to(tmp_path / "theirs.jsonl")
    with pytest.raises(UsageError, match="link"):
        RunFolder.open("last")
    resume(run, actor(play(model=[llm_error(Authentication, "Enough.")])))
    assert json.loads((run / "run.json").read_text())["sandbox"]["name"] != "off"
    assert (tmp_path / "theirs.jsonl").read_bytes() == entry.to_line()
    assert os.path.islink(state_file())
