"""A run seen from another process, and the estimate of when it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from m3b.cli.app import app
from m3b.events import (
    ArtifactChecked,
    Event,
    IndexAudited,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    ScriptOutput,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from m3b.journal import Journal
from m3b.progress import RunProgress
from m3b.run.folder import RunFolder
from m3b.run.result import Result
from m3b.run.watching import STEP_LOG, StepLog, follow_events, load_progress

LINE = "fold0 epoch 9: loss 0.823, valid loss 0.671, auroc 0.693, lr 0.001, 8 of 57 s, about 684 steps left\n"
START = [
    RunStarted("tell spots", "a-run", {"name": "bubblewrap"}, (), 1.0, at=1000.0),
    RoleStarted("Model Trainer", "rules", at=1010.0),
    ToolCalled("a", "run_script", {"command": "python train.py"}, at=1020.0),
]


@contextmanager
def at_work(tmp_path: Path, *events: Event) -> Iterator[tuple[RunFolder, Journal]]:
    """A run that another process works on: its lock is held."""
    run = RunFolder.create(tmp_path / "run")
    run.save_record({"id": run.id, "request": "tell spots", "status": "working", "started": 1000.0})
    (run.path / "logs/jobs").mkdir(parents=True)
    journal = Journal(run.journal_file)
    for event in events:
        journal.write(event)
    run.lock()
    try:
        yield run, journal
    finally:
        run.unlock()
        journal.close()


def write_log(run: RunFolder, name: str, text: str, at: float) -> None:
    (run.path / name).write_text(text)
    os.utime(run.path / name, (at, at))


def show(run: RunFolder, *options: str) -> str:
    outcome = CliRunner().invoke(app, ["show", str(run.path), *options])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_a_run_at_work_says_what_it_is_doing(tmp_path: Path) -> None:
    with at_work(tmp_path, *START) as (run, _):
        write_log(run, "logs/jobs/001.log", LINE, 1030.0)
        text = show(run)
        now = json.loads(show(run, "--json"))["now"]
    for words in ("at work", "Model Trainer", "loss 0.823, auroc 0.693", "--watch"):
        assert words in text
    assert "resume" not in text
    assert now["stage"] == "Model Trainer"
    assert now["figures"] == {"loss": 0.823, "valid loss": 0.671, "auroc": 0.693}


def test_a_run_whose_process_is_gone_says_how_to_go_on(tmp_path: Path) -> None:
    with at_work(tmp_path, *START) as (run, _):
        pass
    text = show(run)
    assert "resume" in text
    assert "at work" not in text
    assert json.loads(show(run, "--json"))["now"] is None


def test_the_output_of_a_script_that_has_ended_is_not_the_present(tmp_path: Path) -> None:
    with at_work(tmp_path, *START, ToolReturned("a", "run_script", "done", at=1090.0)) as (run, _):
        write_log(run, "logs/jobs/001.log", LINE, 1080.0)
        assert load_progress(run).describe_figures() == ""
    with at_work(tmp_path / "two", *START) as (run, _):
        write_log(run, "logs/jobs/001.log", LINE, 1000.0)
        assert load_progress(run).describe_figures() == "", "of an earlier script"


def test_the_progress_of_m3bs_own_steps_is_seen_too(tmp_path: Path) -> None:
    with at_work(tmp_path, *START, StepStarted("testing", at=1100.0)) as (run, _):
        log = StepLog(run)
        log.write("test: 3 of 24 cases", 1101.0)
        log.write("test: 4 of 24 cases", 1101.5)
        os.utime(run.path / STEP_LOG, (1101.0, 1101.0))
        count = load_progress(run).count
    assert count is not None
    assert (count.done, count.total, count.unit) == (3, 24, "cases")


def test_the_start_of_a_process_is_not_the_time_of_its_first_case() -> None:
    progress = RunProgress()
    for done, at in ((0, 1020.0), (1, 1040.0), (3, 1042.0)):
        progress.update(ScriptOutput(0, f"predicted {done} of 21 cases\n", at=at))
    assert progress.count is not None
    assert progress.count.estimate_left_s(1042.0) == 18.0


def test_a_check_is_not_a_wait_for_the_language_model() -> None:
    progress = RunProgress()
    for event in (*START[:2], ReplyReceived("done", at=1030.0)):
        progress.update(event)
    assert "check" in progress.describe_now(1060.0)[0]
    progress.update(ArtifactChecked(True, at=1070.0))
    assert "language model" not in progress.describe_now(1071.0)[0], "rules are none"


def test_watching_ends_with_the_run(tmp_path: Path) -> None:
    ended = RunEnded(Result("completed", "good", "tell spots").to_json(), at=1100.0)
    with at_work(tmp_path, *START) as (run, journal):

        def sleep(seconds: float) -> None:
            if not (run.path / "logs/jobs/001.log").exists():
                write_log(run, "logs/jobs/001.log", LINE, 1030.0)
            else:
                journal.write(ended)

        kinds = [event.kind for event in follow_events(run, sleep)]
    assert kinds == ["run_started", "role_started", "call", "output", "run_ended"]


def test_watching_ends_if_the_process_is_gone(tmp_path: Path) -> None:
    with at_work(tmp_path, *START) as (run, _):
        kinds = [event.kind for event in follow_events(run, lambda seconds: run.unlock())]
    assert kinds == ["run_started", "role_started", "call"]


@pytest.mark.parametrize(("factor", "min_left_s", "max_left_s"), [(1, 60, 150), (5, 150, 400)])
def test_a_busy_machine_is_noticed_before_training(factor: int, min_left_s: float, max_left_s: float) -> None:
    """One minute of training and 62 test cases: 134 s in all on two quiet cores, 331 s on the same ones when busy."""
    progress = RunProgress()
    progress.update(RunStarted("x", "y", {"name": "bubblewrap"}, (), 1.0, at=0.0))
    at = 0.0
    for title, seconds in (("Task Manager", 5.0), ("Data Engineer", 10.0), ("Module Architect", 15.0)):
        progress.update(RoleStarted(title, "rules", at=at))
        at += seconds * factor
        if title == "Data Engineer":
            progress.update(IndexAudited("", [], {"split": {"train": 244, "test": 62}}, at=at))
        progress.update(RoleEnded("done", at=at))
    left_s = progress.estimate_run_left_s(at)
    assert left_s is not None
    assert min_left_s < left_s < max_left_s


def test_no_time_left_is_named_once_the_estimate_was_wrong() -> None:
    progress = RunProgress()
    for event in (*START, ScriptOutput(1, LINE, at=1030.0), StepStarted("testing", at=1090.0)):
        progress.update(event)
    assert progress.estimate_run_left_s(1091.0) is not None
    assert progress.estimate_run_left_s(2000.0) is None
    assert "left" not in " ".join(progress.format_totals(2000.0))


def test_a_busy_machine_is_recognised_by_the_first_stages() -> None:
    """A run measured on two shared processors: 7 seconds for each of the first stages, 246 s from there to the end."""
    progress = RunProgress()
    for event in (
        RunStarted("grade", "a-run", {"name": "bubblewrap"}, (), 0.3, at=1000.0),
        RoleStarted("Task Manager", "rules", at=1000.0),
        RoleEnded("done", at=1007.0),
        RoleStarted("Data Engineer", "rules", at=1007.0),
        RoleEnded("done", at=1014.0),
    ):
        progress.update(event)
    estimated_s = progress.estimate_run_left_s(1014.0)
    assert estimated_s is not None
    assert 246 / 2 < estimated_s < 246 * 2
