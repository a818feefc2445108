"""What a person at a terminal sees and may answer."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_kit import clean_environment, m3b_command
from rich.console import Console
from terminal_kit import ESCAPES, terminal
from typer.testing import CliRunner

from m3b.cli.live import LiveView
from m3b.cli.status_line import StatusLine
from m3b.events import (
    ArtifactChecked,
    Event,
    IndexAudited,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunStarted,
    ScriptOutput,
    StepStarted,
    ToolCalled,
    ToolReturned,
    WaitingForModel,
)  # fmt: skip
from m3b.messages import Usage
from m3b.progress import RunProgress, read_figures
from m3b.run.registry import register
from warm.commands import run_m3b

PROMPT = "Your answer (empty for none):"
OFF = "Detect brain tumours on MRI"
"""A request that the drawn spots do not serve."""
LEAKS = ("Reply with one JSON object", '{"data_card"', "Decide again", "data_card")


def unserved(tmp_path: Path, spots: Path) -> list[str]:
    """A run of the rules on data that says of itself to be something else; its budget ends after the selection."""
    data = tmp_path / "xrays"
    data.mkdir()
    for folder in spots.iterdir():
        (data / folder.name).symlink_to(folder)
    (data / "README.md").write_text("Chest X-rays, with and without spots.")
    return m3b_command("run", OFF, "--llm", "rules", "--data", data, "--out", "run", "--max-actions", "1")


@pytest.mark.parametrize("answer", ["xrays", "yes"])
def test_the_name_of_the_data_set_is_an_answer(tmp_path: Path, spots: Path, answer: str) -> None:
    """The name is taken: the run goes on to its data."""
    with terminal(unserved(tmp_path, spots), env=clean_environment(), cwd=tmp_path) as screen:
        screen.wait_for(PROMPT)
        screen.type(answer)
        status, output = screen.end()
    assert status == 1
    assert "Which data set should be used? (xrays)" in output
    assert "Data Engineer" in output
    assert not [leak for leak in LEAKS if leak in output], output


def test_an_answer_that_is_none(tmp_path: Path, spots: Path) -> None:
    """A wrong name is said in plain words and asked again; no answer is the end, with the reason."""
    with terminal(unserved(tmp_path, spots), env=clean_environment(), cwd=tmp_path) as screen:
        screen.wait_for(PROMPT)
        screen.type("knees")
        screen.wait_for("'knees'")
        while screen.text.count(PROMPT) < 2:
            screen.read()
        screen.type("")
        status, output = screen.end()
    assert status == 1
    assert "no_dataset: " in output
    assert "Data here: xrays" in output
    assert "Data Engineer" not in output
    assert not [leak for leak in LEAKS if leak in output], output


def test_the_prompt_stands_still_while_somebody_types(tmp_path: Path, spots: Path) -> None:
    """The moving line is off between question and answer: what is typed stays behind its prompt."""
    with terminal(unserved(tmp_path, spots), env=clean_environment(), cwd=tmp_path) as screen:
        screen.wait_for(PROMPT)
        before = screen.output
        screen.type("xrays")
        screen.wait_for(f"{PROMPT} xrays")
        typed = screen.output[len(before) :].split(b"xrays")[0]
        screen.end()
    assert b"\x1b" not in typed
    assert before.decode().rstrip().endswith(PROMPT)


TRAINING_LINE = (
    "fold0 epoch 9: loss 0.823, valid loss 0.671, auroc 0.693, balanced accuracy 0.542, lr 0.001, "
    "8 of 57 s, about 684 steps left"
)


def render_lines(progress: RunProgress, columns: int) -> list[str]:
    """The moving lines on a terminal of this width."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=columns)
    console.print(StatusLine(console, progress).render())
    return [line.rstrip() for line in ESCAPES.sub("", screen.getvalue()).splitlines()]


def training(at: float, *outputs: str) -> RunProgress:
    progress = RunProgress()
    progress.update(RunStarted("tell spots", "a-run", {"name": "bubblewrap"}, (), 1.0, at=at - 40))
    progress.update(RoleStarted("Model Trainer", "rules", at=at - 30))
    progress.update(ToolCalled("a", "run_script", {"command": "python train.py"}, at=at - 20))
    for output in outputs:
        progress.update(ScriptOutput(1, output, at=at))
    return progress


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_loss_metric_and_time_left_are_seen_at_every_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds pass between two lines of the script."""
    progress = training(1000.0, TRAINING_LINE)
    monkeypatch.setattr("m3b.cli.status_line.time", SimpleNamespace(time=lambda: 1015.0))
    activity, whole_run = render_lines(progress, columns)
    for words in ("Model Trainer", "loss 0.823", "auroc 0.693", "0:34 left"):
        assert words in activity
    assert whole_run.strip().startswith("0:55 so far, about 2 min left")
    assert max(len(activity), len(whole_run)) < columns


def test_after_the_time_is_over_nothing_says_that_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scoring and export take their own time after the minutes of the training."""
    progress = training(1000.0, TRAINING_LINE)
    monkeypatch.setattr("m3b.cli.status_line.time", SimpleNamespace(time=lambda: 1060.0))
    assert "left" not in render_lines(progress, 80)[0]
    progress.update(ScriptOutput(1, "fold0: best auroc 0.983 at epoch 20 of 67.1, 872 steps", at=1061.0))
    assert "best auroc 0.983" in render_lines(progress, 80)[0]


def test_counts_say_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = RunProgress()
    progress.update(StepStarted("running the model on cases that it has not seen", at=1000.0))
    for done, at in ((0, 1000.0), (6, 1012.0), (12, 1024.0)):  # up to the first answer it starts
        progress.update(ScriptOutput(0, f"test: {done} of 24 cases", at=at))
    monkeypatch.setattr("m3b.cli.status_line.time", SimpleNamespace(time=lambda: 1024.0))
    activity = render_lines(progress, 80)[0]
    assert "12 of 24 cases" in activity
    assert "0:24 left" in activity


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (TRAINING_LINE, {"loss": "0.823", "valid loss": "0.671", "auroc": "0.693", "balanced accuracy": "0.542"}),
        ("fold2 epoch 1.4: loss 1.2e, 3 of 60 s", {}),
        ("epoch 3: loss=0.5 dice=0.71", {"loss": "0.5", "dice": "0.71"}),
        ("17 of 20 images", {}),
    ],
)
def test_figures_of_a_line_of_a_training(line: str, figures: dict[str, str]) -> None:
    assert read_figures(line) == figures


@given(st.text(max_size=40) | st.from_regex(r"\d{1,4} of \d{1,4} (s|images|cases|files)", fullmatch=True))
def test_any_line_of_output_may_be_shown(line: str) -> None:
    progress = RunProgress()
    progress.update(ScriptOutput(1, line))
    assert render_lines(progress, 80)


@pytest.mark.parametrize("words", [["-h"], ["run", "-h"], ["data", "make", "-h"], ["bench", "-h"], ["show", "-h"]])
def test_h_is_help_everywhere(words: list[str]) -> None:
    from m3b.cli.app import app

    result = CliRunner().invoke(app, words)
    assert (result.exit_code, "Usage: " in result.output) == (0, True)


def test_the_shell_completes_runs_and_tasks(tmp_path: Path) -> None:
    """As bash asks for it: the words so far in, one offer a line out."""
    for name in ("20260101-000000-aaaa", "20260102-000000-bbbb"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
        assert register(tmp_path / "runs" / name, "bubblewrap") == ""
    offers = {}
    for words in ("m3b show 2026", "m3b show l", "m3b data audit x --task s", "m3b data make ch", "m3b sc"):
        env = {**clean_environment(), "M3B_RUNS": str(tmp_path / "runs"), "_M3B_COMPLETE": "complete_bash"}
        env |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        process = run_m3b(cwd=tmp_path, env=env)
        offers[words] = set(process.stdout.split())
    assert offers["m3b show 2026"] == {"20260101-000000-aaaa", "20260102-000000-bbbb"}
    assert offers["m3b show l"] == {"last"}
    assert offers["m3b data audit x --task s"] == {"segmentation", "survival"}
    assert offers["m3b data make ch"] == {"chest"}
    assert offers["m3b sc"] == {"score"}


def test_json_keeps_the_progress_on_standard_error(tmp_path: Path, spots: Path) -> None:
    request = "Tell pictures with a spot from plain ones on X-rays"
    command = ("run", request, "--llm", "rules", "--data", spots, "--out", "run", "--json", "--max-actions", "1")
    process = run_m3b(*command, cwd=tmp_path, env=clean_environment())
    assert json.loads(process.stdout)["status"] == "out_of_budget"
    assert "Task Manager (rules)" in process.stderr


def long_run() -> list[Event]:
    """A role at work for ten minutes: two calls, a fault, an audit, a rejected and an accepted hand-over, a training."""
    outputs = [ScriptOutput(0, f"fold0 epoch {n}: loss 0.5\n") for n in range(60)]
    return [
        RunStarted("tell spots", "a-run", {"name": "bubblewrap"}),
        RoleStarted("Data Engineer", "rules"),
        ToolCalled("a", "run_script", {"command": "python build_index.py"}),
        ToolReturned("a", "run_script", "no such column", True),
        StepStarted("auditing the data"),
        IndexAudited("train: clear 142"),
        ArtifactChecked(
            False,
            ("Datapath/train.json is missing. Write it.",),
            ("few cases",),
            ("No index of the data was written.",),
        ),
        RoleEnded("done"),
        RoleStarted("Model Trainer", "rules"),
        ToolCalled("b", "run_script", {"command": "python train.py"}),
        *outputs,
    ]


def test_a_log_file_has_a_line_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten seconds pass between two events: of the ten minutes of training a log file hears four times."""
    with LiveView() as live:
        for number, event in enumerate(long_run()):
            live(replace(event, at=1000.0 + 10 * number))
    assert capsys.readouterr().err.splitlines() == [
        " 0:00 run a-run  sandbox: bubblewrap",
        " 0:10 Data Engineer (rules)",
        " 0:40        auditing the data",
        " 1:20 Model Trainer (rules)",
        " 3:30        fold0 epoch 11: loss 0.5",
        " 5:40        fold0 epoch 24: loss 0.5",
        " 7:50        fold0 epoch 37: loss 0.5",
        "10:00        fold0 epoch 50: loss 0.5",
    ]


def test_a_log_file_hears_once_that_a_server_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveView() as live:
        for number in range(20):
            live(WaitingForModel("unreachable", 10.0, at=1000.0 + 10 * number))
        live(ReplyReceived("", usage=Usage(input_tokens=1, output_tokens=1), at=1200.0))
        live(WaitingForModel("overloaded", 2.0, at=1201.0))
    assert [line[5:].strip() for line in capsys.readouterr().err.splitlines()] == [
        "waiting 10 s: unreachable",
        "waiting 10 s: unreachable",
        "waiting 2 s: overloaded",
    ]


def test_a_terminal_hears_in_the_users_voice_what_was_not_accepted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with LiveView() as live:
        assert live.is_interactive
        for event in long_run():
            live(event)
    output = ESCAPES.sub("", capsys.readouterr().err)
    assert "not accepted: No index of the data was written." in output
    assert "Datapath/train.json" not in output
    for detail in (
        "run_script python build_index.py",
        "failed: no such column",
        "train: clear 142",
        "noted: few cases",
    ):
        assert detail in output


LONG_NOTE = (
    "4 validation cases of the rarer class: " + "their figures are noisy, and the choice of the best epoch is too " * 3
)


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_a_note_is_said_whole_and_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """Two checks of one artifact have the same note; a long one is wrapped between words."""
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm-256color"), ("COLUMNS", columns)):
        monkeypatch.setenv(name, value)
    with LiveView() as live:
        for _ in range(2):
            live(ArtifactChecked(True, warnings=(LONG_NOTE,)))
    output = ESCAPES.sub("", capsys.readouterr().err)
    lines = [line.strip() for line in output.splitlines()]
    assert " ".join(" ".join(lines).split()).count(LONG_NOTE.strip()) == 1
    assert max(len(line) for line in output.splitlines()) <= int(columns)
