"""The `m3b` command as a process: what it prints where, and what it exits with."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline_kit import (
    REQUEST,
    check_left,
    clean_environment,
    copy_run,
    draw,
    left_running,
    m3b_command,
    plugin,
    wait_until,
)  # fmt: skip
from rich.cells import cell_len

import m3b
from m3b.config import read_config
from m3b.run.registry import register
from m3b.run.result import Result
from warm.commands import run_m3b

M3b = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def m3b_(tmp_path: Path) -> M3b:
    """Run the command in an empty folder with nobody's keys."""

    def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**(env or clean_environment()), "M3B_RUNS": str(tmp_path / "runs")}
        return run_m3b(*arguments, cwd=tmp_path, env=environment)

    return run


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, halfway_run: Path
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run that `m3b resume` has completed, and what that printed."""
    place = tmp_path_factory.mktemp("cli")
    run = copy_run(halfway_run, place / "runs" / "20260101-000000-abcd")
    env = {**plugin(place / "plugin", "acts = play()"), "XDG_STATE_HOME": str(place / "state")}
    return run, run_m3b("resume", run, "--llm", "played:x", cwd=place, env=env)


def refused(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    """Wrong use: exit code 2, nothing on standard output, and one clear line instead of a traceback."""
    assert ended.returncode == 2, (ended.stdout, ended.stderr)
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    assert 1 <= len(lines) <= 5, ended.stderr
    for word in words:
        assert word in ended.stderr, ended.stderr


# --- wrong use ---------------------------------------------------------------------------------------------------


def test_version_and_help(m3b_: M3b) -> None:
    assert m3b_("--version").stdout.strip() == f"m3b {m3b.__version__}"
    help_page = m3b_("--help")
    assert help_page.returncode == 0
    for name in ("demo", "run", "resume", "runs", "show", "predict", "score", "data", "doctor"):
        assert re.search(rf"^\s*{name}\b", help_page.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "x", "--no-such-option"], ["--no-such-option"]),
        (["run"], ["request"]),
        (["fly"], ["fly"]),
        (["run", "x", "--llm", "acme:large"], ["acme", "openai"]),
        (["run", "x", "--llm", "openai"], ["OPENAI_API_KEY"]),
        (["run", "x", "--llm", "openai:m@notaurl"], ["notaurl", "no address", "@http://"]),
        (["run", "x", "--llm", "anthropic:some-model"], ["ANTHROPIC_API_KEY"]),
        (["run", "x", "--data", "not/here"], ["not/here", "--data"]),
        (["run", "x", "--data", "cards.json"], ["cards.json"]),
        (["run", " "], ["empty"]),
        (["run", "x", "--max-actions", "0"], ["--max-actions", "from 1 to"]),
        (["run", "x", "--seed", "-1"], ["--seed", "-1"]),
        (["run", "x", "--max-wall", "-1"], ["--max-wall must be", "-1 minutes"]),
        (["run", "x", "--train-minutes", "nan"], ["--train-minutes", "nan"]),
        (["run", "x", "--train-minutes", "100000"], ["--train-minutes", "at most 20,160"]),
        (["run", "x", "--train-minutes", "5", "--max-wall", "4"], ["--train-minutes", "--max-wall"]),
        (["demo", "--train-minutes", "-1"], ["--train-minutes"]),
        (["data", "make", "chest", "here", "--seed", "-1"], ["--seed"]),
        (["data", "make", "chest", "here", "--cases", "-1"], ["--cases"]),
        (["data", "make", "ADNI", "here", "--seed", "-1"], ["--seed"]),
        (["data", "audit", ".", "--task", "surgery"], ["surgery", "diagnosis"]),
        (["data", "audit", ".", "--seconds", "-1"], ["--seconds"]),
        (["bench", "run", "--jobs", "-1"], ["--jobs"]),
        (["bench", "run", "--engine", "pbs"], ["pbs", "local, slurm or ray"]),
        (["bench", "run", "--engine", "slurm", "--llm", "rules", "--llm", "anthropic"], ["anthropic", "no keys"]),
        (["run", "x", "--engine", "ray", "--slurm-option", "qos=long"], ["--slurm-option", "--partition"]),
        (["run", "x", "--max-actions", "many"], ["--max-actions", "integer"]),
        (["run", "x", "--sandbox", "paper"], ["paper", "bubblewrap"]),
        (["run", "x", "--phi", "show"], ["phi"]),
        (["resume", "nowhere"], ["nowhere", "m3b runs"]),
        (["resume"], ["no runs"]),
        (["show", "nowhere"], ["nowhere"]),
        (["predict", "nowhere", "also-not.png"], ["also-not.png"]),
        (["score", "nowhere", "index.json"], ["index.json"]),
        (["data", "make", "teeth", "here"], ["teeth", "chest"]),
        (["data", "card", "not/here"], ["not/here"]),
        (["data", "card", ".", "-o", "not/here.json"], ["m3b: not/here.json: No such file or directory."]),
        (["demo", "--train-minutes", "99999999"], ["it is 99,999,999 minutes"]),
        (["data", "audit", "not/here"], ["not/here"]),
        (["data", "audit", "."], ["no index", "Datapath/train.json", "m3b data survey ."]),
    ],
    ids=" ".join,
)
def test_wrong_use(m3b_: M3b, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    refused(m3b_(*arguments), *words)
    assert os.listdir(tmp_path) == [], "nothing is made for a command that was wrong"


def test_a_run_folder_that_is_taken(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    refused(m3b_("run", "x", "--llm", "rules", "--data", spots, "--out", "mine"), "mine", "--out")


def test_a_broken_card(m3b_: M3b, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"name": "x"}')
    refused(m3b_("run", "x", "--data", "card.json"), "'x'", "description")


# --- runs --------------------------------------------------------------------------------------------------------


def test_a_completed_run(finished) -> None:
    run, ended = finished
    assert ended.returncode == 0, ended.stderr
    check_left(run, "completed")
    assert ended.stdout.startswith("completed: ")
    assert "test auroc" in ended.stdout
    assert "95 % CI" in ended.stdout
    assert f"m3b predict {run}/model" in ended.stdout or str(run / "model") in ended.stdout


def test_the_live_view_in_a_log_file(finished) -> None:
    """Standard error is no terminal here: one plain line a stage, each with its time, none of them moving."""
    _, ended = finished
    log = ended.stderr
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", log), "control characters"
    lines = log.splitlines()
    assert all(re.match(r"( ?\d+:\d\d )", line) for line in lines), log
    assert any("Model Trainer (played:x)" in line for line in lines)
    assert any("running the model on cases that it has not seen" in line for line in lines)
    assert not any("run_script" in line for line in lines), "no line a call"
    assert max(map(len, lines)) <= 200


def test_json_and_quiet(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    env = plugin(
        tmp_path / "plugin", "acts = play(selection=[choice('spots', data_card=None, reason='No such card.')])"
    )
    ended = m3b_("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", "one", "--json", env=env)
    assert ended.returncode == 1
    result = Result.from_json(json.loads(ended.stdout))
    assert result.status == "no_dataset"
    assert any("Task Manager (played:x)" in line for line in ended.stderr.splitlines())
    check_left(tmp_path / "one", "no_dataset")
    ended = m3b_("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", "two", "--quiet", env=env)
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert ended.stdout.startswith("no_dataset: No such card.")


def test_flags_reach_the_run(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    env = plugin(tmp_path / "plugin", "acts = play(selection=[choice('spots', data_card=None, reason='No.')])")
    ended = m3b_(
        "run", REQUEST, "--llm", "played:x", "--data", spots, "--out", "one", "-q", "--max-actions", 7, "--max-tokens",
        99999, "--max-cost", 1.5, "--max-wall", 2, "--train-minutes", 0.5, "--seed", 3, "--single-agent", "--no-reflect",
        "--no-examples", "--no-debug", "--phi", "allow", env=env,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    options = json.loads((tmp_path / "one" / "run.json").read_text())["options"]
    expected = {
        "max_actions": 7, "max_tokens": 99999, "max_cost": 1.5, "max_wall": 120.0, "train_minutes": 0.5, "seed": 3,
        "roles": "single", "reflect": False, "examples": False, "debug": False, "phi": "allow",
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected


def test_a_server_that_is_down(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    """Named with its address, in the view, the result and `show`, and not taken for an emoji (`openai:m:`)."""
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        spec = f"openai:m@http://127.0.0.1:{bound_socket.getsockname()[1]}/v1"
        ended = m3b_("run", REQUEST, "--llm", spec, "--data", spots, "--out", "one")
    assert ended.returncode == 1
    message = f"openai:m: no connection to {spec.partition('@')[2]} (Connection refused)"
    assert ended.stdout.startswith(f"failed: {message}")
    assert f"unreachable: {message}" in ended.stderr
    assert f"failed: {message}" in m3b_("show", "last").stdout


def test_a_run_out_of_budget_names_the_option_to_raise(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    env = plugin(tmp_path / "plugin", "acts = play()")
    ended = m3b_("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", "one", "--max-tokens", 9, env=env)
    assert ended.returncode == 1
    assert ended.stdout.startswith("out_of_budget: ")
    assert "Raise --max-tokens." in ended.stdout
    assert "Raise --max-tokens." in m3b_("show", "one").stdout
    assert "Raise max_tokens." in json.loads((tmp_path / "one" / "run.json").read_text())["reason"]


def test_the_sandbox_off_is_said_out_loud(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    env = plugin(tmp_path / "plugin", "acts = play(selection=[choice('spots', data_card=None, reason='No.')])")
    ended = m3b_("run", "x", "--llm", "played:x", "--data", spots, "--out", "one", "--sandbox", "off", env=env)
    assert "WARNING: scripts run unconfined" in ended.stderr
    assert json.loads((tmp_path / "one" / "run.json").read_text())["sandbox"]["name"] == "off"


def test_runs_and_show(finished) -> None:
    run, _ = finished
    env = {**clean_environment(), "XDG_STATE_HOME": str(run.parents[1] / "state")}

    def ask(*arguments: object) -> str:
        ended = run_m3b(*arguments, env=env)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        return ended.stdout

    run_list = ask("runs")
    assert run.name in run_list
    assert "completed" in run_list
    assert "auroc" in run_list
    (row,) = json.loads(ask("runs", "--json"))["runs"]
    assert row["id"] == run.name
    assert row["status"] == "completed"
    run_log = ask("show")
    for words in (
        REQUEST,
        "== Task Manager",
        "== Model Trainer",
        "[call] run_script",
        "[handed over] model",
        "completed:",
    ):
        assert words in run_log
    assert "... (" in run_log
    assert "... (" not in ask("show", run.name, "--full").replace("... (Logout", "")
    record = json.loads(ask("show", run, "--json"))
    assert record["status"] == "completed"
    assert record["events"][-1]["kind"] == "run_ended"
    assert ask("report", run).strip() == str(run / "report.html")


def test_no_runs(m3b_: M3b) -> None:
    ended = m3b_("runs")
    assert ended.returncode == 0
    assert "m3b run" in ended.stdout
    assert json.loads(m3b_("runs", "--json").stdout) == {"runs": []}


def test_runs_of_a_folder_without_any(m3b_: M3b, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = m3b_("runs", "empty")
    assert ended.returncode == 0
    assert "empty holds no run" in ended.stdout
    assert "run.json" in ended.stdout
    refused(m3b_("runs", "nowhere"), "no folder nowhere")


@pytest.mark.parametrize("columns", [None, 60, 160])
def test_the_list_of_runs_fits_its_terminal(m3b_: M3b, tmp_path: Path, columns: int | None) -> None:
    primary = {"name": "auroc", "value": 0.9623, "low": 0.946, "high": 0.976, "n": 624, "baseline": 0.5}
    for at, (name, request) in enumerate(
        [("20260102-101500-ab12", "Tell pneumonia from normal\non chest X-rays of children, please" * 3),
         ("20260101-101500-ab12", "肺炎を胸部X線写真で検出する" * 9), ("20260103-101500-ab12", "\x1b[31mred\x00")]
    ):  # fmt: skip
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        record = {"status": "out_of_budget", "request": request, "started": 1e9 + at, "result": {"primary": primary}}
        (folder / "run.json").write_text(json.dumps(record))
        assert register(folder, "bubblewrap") == ""
    env = {**clean_environment(), **({} if columns is None else {"COLUMNS": str(columns)})}
    env = {name: value for name, value in env.items() if columns is not None or name != "COLUMNS"}
    output = m3b_("runs", env=env).stdout
    lines = output.splitlines()
    names = ["run", "20260103-101500-ab12", "20260101-101500-ab12", "20260102-101500-ab12"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == names
    assert max(cell_len(line) for line in lines) <= (columns or 80)
    assert "Tell pneumonia from normal on" in output
    assert lines[-1].endswith("...")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", output), "control characters"
    if columns != 60:
        first_lines = [line for line in lines[1:] if line.startswith("2026")]
        assert all("auroc 0.962" in line and "out_of_budget" in line for line in first_lines)
    assert (len(lines) == len(names)) == (columns == 160)


def test_a_moved_run_and_its_model_by_every_name(finished, m3b_: M3b, pictures: list[Path], tmp_path: Path) -> None:
    old = finished[0]
    run = copy_run(old, tmp_path / "runs" / "20260105-000000-cdef")
    refused(m3b_("show", run.name), "by its path", f"runs/{run.name}")
    assert register(run, "bubblewrap") == ""
    run_log = m3b_("show", "last").stdout
    assert f"model: {run}/model" in run_log
    assert f"report: {run}/report.html" in run_log
    assert str(old) not in run_log[run_log.rindex("completed:") :]
    assert json.loads(m3b_("show", run.name, "--json").stdout)["result"]["model_dir"] == str(run / "model")
    again = json.loads(m3b_("resume", run, "--json").stdout)
    assert (again["run_dir"], again["report"]) == (str(run), str(run / "report.html"))
    predictions = [m3b_("predict", name, "new_0.png").stdout for name in ("last", run.name, run, run / "model")]
    assert len(set(predictions)) == 1
    assert predictions[0].startswith("new_0.png: ")
    scored = m3b_("score", "last", run / "work" / "Datapath" / "test.json")
    assert "auroc" in scored.stdout, scored.stderr
    assert "holds no parts.py" in m3b_("export", "last", "--to", "onnx", "-o", "there").stderr
    assert json.loads(m3b_("data", "audit", "last", "--json").stdout)["opened"] == 60


def test_a_broken_run_does_not_hide_the_others(finished, tmp_path: Path) -> None:
    run, _ = finished
    (tmp_path / "runs" / "good").mkdir(parents=True)
    shutil.copy(run / "run.json", tmp_path / "runs" / "good")
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "run.json").write_text("{")
    ended = run_m3b("runs", tmp_path / "runs")
    assert ended.returncode == 0, ended.stderr
    assert "completed" in ended.stdout
    assert "bad" in ended.stdout


def test_a_run_at_work_and_one_that_was_killed(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    env = {
        **plugin(tmp_path / "plugin", "acts = play(index=[script('sleep 987')])"),
        "M3B_RUNS": str(tmp_path / "runs"),
    }
    command = m3b_command("run", REQUEST, "--llm", "played:x", "--data", spots, "-q")
    process = subprocess.Popen(command, env=env, cwd=tmp_path, start_new_session=True)
    try:
        wait_until(lambda: any("sleep 987" in line for line in left_running(tmp_path / "runs")), 60, "the script runs")
        (row,) = json.loads(m3b_("runs", "--json").stdout)["runs"]
        assert row["status"] == "working"
        refused(m3b_("resume", "last", "--llm", "played:x", env=env), "another process")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: not left_running(tmp_path / "runs"), 10, "nothing is left running")
    (row,) = json.loads(m3b_("runs", "--json").stdout)["runs"]
    assert row["status"] == "interrupted"
    assert "m3b resume" in m3b_("show", "last").stdout


def test_a_reader_that_goes_away(finished) -> None:
    run, _ = finished
    words = " ".join(m3b_command("show", run, "--full"))
    ended = subprocess.run(["bash", "-c", f"{words} | head -1"], capture_output=True, text=True, timeout=900)
    assert ended.stdout.startswith(run.name)
    assert "Traceback" not in ended.stderr
    assert "Exception" not in ended.stderr


# --- using a model -----------------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    import numpy as np

    random = np.random.default_rng(5)
    for number in range(3):
        draw(number == 1, random).save(tmp_path / f"new_{number}.png")
    return [tmp_path / f"new_{number}.png" for number in range(3)]


@pytest.mark.confined
def test_predict(finished, m3b_: M3b, pictures: list[Path], tmp_path: Path) -> None:
    model = finished[0] / "model"
    ended = m3b_("predict", model, *pictures)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 3
    assert re.match(r".*new_0\.png: (plain|spot) \(plain: 0\.\d+, spot: 0\.\d+\)", ended.stdout.splitlines()[0])
    predictions = json.loads(m3b_("predict", model, "new_1.png", "--json").stdout)["predictions"]
    assert predictions[0]["image"] == "new_1.png"
    assert sum(predictions[0]["probabilities"].values()) == pytest.approx(1)
    assert m3b_("predict", model, *pictures, "-o", "out.csv").returncode == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [Path(row["image"]).name for row in rows] == ["new_0.png", "new_1.png", "new_2.png"]
    assert set(rows[0]) == {"image", "plain", "spot", "prediction", "error"}
    assert m3b_("predict", model, "new_0.png", "-o", "out.json").returncode == 0
    assert len(json.loads((tmp_path / "out.json").read_text())) == 1


@pytest.mark.parametrize("place", ["table.csv", "table.json", "found"])
def test_predict_overwrites_nothing_of_a_user(
    finished, m3b_: M3b, pictures: list[Path], tmp_path: Path, place: str
) -> None:
    user_file = tmp_path / place if "." in place else tmp_path / place / "predictions.json"
    user_file.parent.mkdir(exist_ok=True)
    user_file.write_text("a week of corrections")
    ended = m3b_("predict", finished[0] / "model", "new_0.png", "-o", place)
    refused(ended, str(Path(place)), "exists already", "-o", "--force")
    assert user_file.read_text() == "a week of corrections"
    ended = m3b_("predict", finished[0] / "model", "new_0.png", "-o", place, "--force")
    assert ended.returncode == 0, ended.stderr
    assert "new_0.png" in user_file.read_text()


@pytest.mark.parametrize("name", ["masks/mine.nii.gz", "overlays/mine.png"])
def test_masks_and_pictures_of_before_stay(
    finished, m3b_: M3b, pictures: list[Path], tmp_path: Path, name: str
) -> None:
    user_file = tmp_path / "found" / name
    user_file.parent.mkdir(parents=True)
    user_file.write_text("drawn by hand")
    refused(m3b_("predict", finished[0] / "model", "new_0.png", "-o", "found"), str(user_file.parent.name), "--force")
    assert m3b_("predict", finished[0] / "model", "new_0.png", "-o", "found", "--force").returncode == 0
    assert user_file.read_text() == "drawn by hand", "a file of another name stays even then"


def test_predict_into_a_folder_with_other_files(finished, m3b_: M3b, pictures: list[Path], tmp_path: Path) -> None:
    """Where the images lie, for instance; `cases.json` is a name that a user may have."""
    (tmp_path / "cases.json").write_text("[1, 2]")
    before = {file.name for file in tmp_path.iterdir()}
    assert m3b_("predict", finished[0] / "model", "new_0.png", "-o", ".").returncode == 0
    assert (tmp_path / "cases.json").read_text() == "[1, 2]"
    assert {file.name for file in tmp_path.iterdir()} == before | {"predictions.json"}


def test_predict_tells_which_image_does_not_open(finished, m3b_: M3b, pictures: list[Path], tmp_path: Path) -> None:
    """The others are predicted all the same."""
    (tmp_path / "bad.png").write_bytes(b"no picture")
    ended = m3b_("predict", finished[0] / "model", "new_0.png", "bad.png", "new_1.png")
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["new_0.png", "bad.png", "new_1.png"]
    assert "not predicted" in lines[1]
    assert "Traceback" not in ended.stderr


def test_predict_refuses_an_unknown_ending_before_it_works(finished, m3b_: M3b, pictures: list[Path]) -> None:
    refused(m3b_("predict", finished[0] / "model", "new_0.png", "-o", "out.xlsx"), "out.xlsx", ".csv")


def test_a_place_where_nothing_can_be_written(finished, m3b_: M3b, pictures: list[Path]) -> None:
    ended = m3b_("predict", finished[0] / "model", "new_0.png", "-o", "no/such/folder/out.csv")
    refused(ended, "no/such/folder/out.csv")


def test_predict_with_something_that_is_no_model(m3b_: M3b, pictures: list[Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = m3b_("predict", "empty", "new_0.png")
    assert ended.returncode == 2
    assert "predict.py" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_score(finished, m3b_: M3b) -> None:
    run, _ = finished
    result = json.loads((run / "run.json").read_text())["result"]
    ended = m3b_("score", run / "model", run / "locked" / "Datapath" / "test.json", "--base", run / "work", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["metrics"]["auroc"]["value"] == pytest.approx(result["primary"]["value"])
    text_result = m3b_("score", run / "model", run / "work" / "Datapath" / "test.json")
    assert text_result.returncode == 0, text_result.stderr
    assert "auroc" in text_result.stdout
    assert "95 % CI" in text_result.stdout


# --- data and doctor ---------------------------------------------------------------------------------------------


def test_data_list(m3b_: M3b, spots: Path) -> None:
    cards = json.loads(m3b_("data", "list", "--data", spots, "--json").stdout)["cards"]
    assert {"name": "spots", "path": str(spots)}.items() <= cards[0].items()
    assert len(cards) > 40
    assert "spots" in m3b_("data", "list", "--data", spots).stdout


def test_data_make_card_audit(m3b_: M3b, tmp_path: Path, halfway_run: Path) -> None:
    ended = m3b_("data", "make", "chest", "made", "--cases", 8)
    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "made" / "images").glob("*.png"))) >= 8
    refused(m3b_("data", "make", "chest", "made", "--cases", 8), "not empty")
    card = json.loads(m3b_("data", "card", "made").stdout)
    assert card["path"] == str(tmp_path / "made")
    assert "radiographs" in card["description"]
    assert m3b_("data", "card", "made", "-o", "card.json").returncode == 0
    assert m3b_("data", "list", "--data", "card.json").returncode == 0
    (tmp_path / "card.json").write_text("edited by hand")
    refused(m3b_("data", "card", "made", "-o", "card.json"), "card.json exists already", "--force")
    assert (tmp_path / "card.json").read_text() == "edited by hand"
    assert m3b_("data", "card", "made", "-o", "card.json", "--force").returncode == 0
    assert json.loads((tmp_path / "card.json").read_text()) == card
    refused(m3b_("data", "card", "made", "-o", "made"), "made", "folder", "name a file")
    audited = m3b_("data", "audit", halfway_run, "--json")
    assert audited.returncode == 0, audited.stderr
    assert json.loads(audited.stdout)["opened"] == 60


@pytest.mark.confined
def test_doctor(m3b_: M3b) -> None:
    ended = m3b_("doctor", "--json")
    state = json.loads(ended.stdout)
    assert state["sandbox"]["active"] in ("bubblewrap", "landlock", "none")
    assert (state["llm"], state["keys"]) == ("rules", {})
    assert all({"name", "works", "detail"} == set(probe) for probe in state["sandbox"]["probes"])
    reader = state["sandbox"]["probes"][-1]
    assert (reader["name"], reader["works"]) == ("reader", state["sandbox"]["active"] != "none")
    assert ended.returncode == (1 if state["problems"] else 0)
    assert bool(state["problems"]) == (state["sandbox"]["active"] == "none" or bool(state["missing"]))
    output = m3b_("doctor").stdout
    assert output.startswith("Not ready" if state["problems"] else "Everything fine")
    assert max(output.count(word) for word in ("no network, no other processes", "private /tmp")) <= 1, "said once"


def test_doctor_says_which_model_is_taken_and_why(m3b_: M3b, tmp_path: Path) -> None:
    env = {**clean_environment(), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    env |= {"DEEPSEEK_API_KEY": "sk-x-1234567", "GROQ_API_KEY": "sk-x-1234567"}
    ended = m3b_("doctor", "--json", env=env)
    state = json.loads(ended.stdout)
    assert state["llm"] == "rules"
    assert state["keys"] == {"deepseek": "DEEPSEEK_API_KEY", "groq": "GROQ_API_KEY"}
    ended = m3b_("doctor", env=env)
    assert "m3b config llm deepseek" in " ".join(ended.stdout.split())
    assert "sk-x-1234567" not in ended.stdout + ended.stderr
    m3b_("config", "llm", "deepseek", env=env)
    assert json.loads(m3b_("doctor", "--json", env=env).stdout)["llm"] == "deepseek"


def test_a_key_is_used_only_after_it_was_named(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{bound_socket.getsockname()[1]}"
        env = {**clean_environment(), "ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": address}
        ended = m3b_("run", REQUEST, "--data", spots, "--out", "one", "--max-actions", 1, "--json", env=env)
        record = json.loads((tmp_path / "one" / "run.json").read_text())
        assert record["llm"] == {"default": "rules"}
        assert "m3b config llm anthropic" in ended.stderr
        assert record["options"]["max_cost"] == 5


def test_config_shows_sets_and_unsets(m3b_: M3b, tmp_path: Path) -> None:
    env = {**clean_environment(), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    file = tmp_path / "config" / "m3b" / "m3b.toml"
    assert m3b_("config", "max-cost", "12", env=env).returncode == 0
    assert tomllib.loads(file.read_text()) == {"max_cost": 12.0}
    assert m3b_("config", "max_cost", "3", "--here", env=env).returncode == 0
    settings = json.loads(m3b_("config", "--json", env=env).stdout)
    assert settings["values"] == {"max_cost": 3.0}
    assert settings["sources"] == {"max_cost": str(tmp_path / "m3b.toml")}
    m3b_("config", "max_cost", "--unset", "--here", env=env)
    assert json.loads(m3b_("config", "max_cost", "--json", env=env).stdout)["value"] == 12.0
    refused(m3b_("config", "max_coat", "3", env=env), "Did you mean max-cost")
    refused(m3b_("config", "max_cost", "much", env=env), "a number")
    refused(m3b_("config", "max_cost", "0", env=env), "max-cost")
    refused(m3b_("config", "train-minutes", "nan", env=env), "train-minutes")
    refused(m3b_("config", "device", "tpu", env=env), "cuda")
    refused(m3b_("config", "gpus", "0", env=env), "gpus")
    refused(m3b_("config", "llm", "acme:large", env=env), "acme")
    refused(m3b_("config", "llm", f"sk-{'a1' * 12}", env=env), "looks like a key")
    refused(m3b_("config", "llm", "openai:m@http://u:secret@h/v1", env=env), "password")


def test_flags_win_over_the_configuration_of_the_folder(m3b_: M3b, tmp_path: Path, spots: Path) -> None:
    (tmp_path / "m3b.toml").write_text("max_cost = 2\nmax_actions = 30\ntrain_minutes = 0.5\n")
    env = plugin(tmp_path / "plugin", "acts = play(selection=[choice('spots', data_card=None, reason='No.')])")
    m3b_("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", "one", "-q", "--max-actions", 7, env=env)
    options = json.loads((tmp_path / "one" / "run.json").read_text())["options"]
    assert (options["max_cost"], options["max_actions"], options["train_minutes"]) == (2, 7, 0.5)


def test_a_configuration_that_came_with_the_data_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m3b.toml").write_text('llm = "openai"\n')
    monkeypatch.chdir(tmp_path)
    assert read_config().get("llm") == "openai"
    assert read_config([tmp_path]).get("llm") is None
    assert len(read_config([tmp_path]).warnings) == 1
