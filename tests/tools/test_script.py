from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.errors import SandboxError
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import jobs as jobs_module
from m3b.tools import script
from m3b.tools.text import clean_terminal_output, clip, find_nonfinite_loss, last_traceback

CHAINED = """start
Traceback (most recent call last):
  File "a.py", line 2, in <module>
    int("x")
ValueError: bad

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
    raise KeyError("y")
KeyError: 'y'"""


def test_runs_in_the_working_folder(desk) -> None:
    result = desk.use("run_script", command="pwd; ls -d data/chest; echo done > made.txt")
    assert not result.is_error
    assert result.text.startswith("Exit code 0 after ")
    assert str(desk.work) in result.text
    assert (desk.work / "made.txt").read_text() == "done\n"
    assert result.data["exit_code"] == 0
    assert result.data["output"] == "Logout/jobs/001.log"
    assert not result.data["running"]


def test_a_failed_script_shows_its_traceback_apart(desk) -> None:
    (desk.work / "a.py").write_text("for i in range(3000): print('line', i)\nint('x')\n")
    result = desk.use("run_script", command="python a.py")
    assert result.is_error
    assert result.data["exit_code"] == 1
    assert "line 0\n" in result.text
    assert "line 2999" in result.text
    assert "left out" in result.text
    assert len(result.text) < 9000
    error = result.text.split("--- last traceback ---\n")[1]
    assert error.startswith("Traceback")
    assert error.endswith("ValueError: invalid literal for int() with base 10: 'x'")
    assert result.data["error"] == error


def test_a_long_command_becomes_a_job(desk) -> None:
    result = desk.use("run_script", command="echo begun; sleep 1.2; echo over", wait_s=0)
    assert result.data["running"]
    assert "run_script(job=1)" in result.text
    result = desk.use("run_script", job=1, wait_s=20)
    assert result.data["exit_code"] == 0
    assert "begun\nover" in result.text
    assert [job.command for job in desk.box.jobs] == ["echo begun; sleep 1.2; echo over"]


def test_stop_and_unknown_job(desk) -> None:
    desk.use("run_script", command="sleep 100", wait_s=0)
    assert "Jobs: 1 (running)" in desk.use("run_script", job=7).text
    stopped = desk.use("run_script", job="1", stop="true")
    assert stopped.data["reason"] == "stopped"
    assert "stopped on request" in stopped.text
    assert desk.use("run_script", command="ls", job=1).is_error
    assert desk.use("run_script").is_error


def test_a_veto_and_the_most_running(make_desk, monkeypatch) -> None:
    desk = make_desk(approve=lambda command: "rm" not in command)
    assert "did not approve" in desk.use("run_script", command="rm -r .").text
    monkeypatch.setattr(jobs_module, "MAX_RUNNING_SCRIPTS", 1)
    desk.use("run_script", command="sleep 50", wait_s=0)
    assert "run_script(job=1, stop=true)" in desk.use("run_script", command="ls").text


def test_close_leaves_nothing_running(make_desk) -> None:
    desk = make_desk()
    desk.use("run_script", command="echo $$ > pid; sleep 200", wait_s=1)
    pid = int((desk.work / "pid").read_text())
    desk.box.close()
    end = time.monotonic() + 120
    while time.monotonic() < end and os.path.exists(f"/proc/{pid}"):
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
    assert "no script can be started" in desk.use("run_script", command="ls").text


def test_a_hand_over_stops_every_script_with_all_that_it_started(make_desk) -> None:
    desk = make_desk(sandbox=choose_sandbox("off"))
    desk.use("run_script", command="(setsid sleep 311 & echo $! > daemon); echo $$ > pid; sleep 310", wait_s=1)
    desk.use("run_script", command="true")
    messages = desk.box.stop_running_scripts()
    assert len(messages) == 1
    assert messages[0].startswith("Job 1 (`(setsid sleep 311 &")
    for name in ("pid", "daemon"):
        assert not os.path.exists(f"/proc/{(desk.work / name).read_text().strip()}")
    assert "stopped by m3b: the work was handed over" in desk.use("run_script", job=1).text
    assert desk.box.stop_running_scripts() == []
    assert not desk.use("run_script", command="echo more").is_error


def test_cancelling_stops_what_is_waited_for(make_desk) -> None:
    start = time.monotonic()
    desk = make_desk(is_cancelled=lambda: time.monotonic() - start > 0.5)
    result = desk.use("run_script", command="sleep 100")
    assert result.data["reason"] == "stopped"
    assert "because the run was cancelled" in result.text


def test_output_is_shown_while_waiting(make_desk) -> None:
    outputs: list[tuple[int, str]] = []
    desk = make_desk(on_output=lambda number, tail: outputs.append((number, tail)))
    desk.use("run_script", command="echo first; sleep 1.5; echo second")
    assert outputs
    assert len(outputs) <= 5
    assert outputs[-1][0] == 1
    assert "first" in outputs[-1][1]


def test_silence_and_bad_losses_are_said(desk, monkeypatch) -> None:
    monkeypatch.setattr(script, "MIN_NOTED_SILENCE_S", 0.4)
    result = desk.use("run_script", command="echo 'epoch 1 loss=nan'; sleep 30", wait_s=2)
    assert "The loss is not a number: epoch 1 loss=nan" in result.text
    assert "No output for" in result.text


def test_output_links_are_not_written_through(desk, tmp_path) -> None:
    (tmp_path / "outside").mkdir()
    (desk.work / "Logout").mkdir()
    (desk.work / "Logout/jobs").symlink_to(tmp_path / "outside")
    result = desk.box.call(ToolCall("1", "run_script", {"command": "echo hi"}), ("run_script",))
    assert "hi" in result.text
    assert "not copied to Logout/jobs/001.log: the path contains a link" in result.text
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.confined
def test_confined_where_this_machine_allows_it(make_desk) -> None:
    try:
        sandbox = choose_sandbox("auto")
    except SandboxError as error:
        pytest.skip(str(error))
    desk = make_desk(sandbox=sandbox)
    (desk.data / "a.txt").write_text("raw")
    result = desk.use("run_script", command="cat data/chest/a.txt && echo ok > new.txt; echo x > data/chest/b.txt")
    assert "raw" in result.text
    assert (desk.work / "new.txt").exists()
    assert not (desk.data / "b.txt").exists()
    assert result.is_error


def test_progress_bars_and_colours() -> None:
    raw = "\x1b[31mred\x1b[0m\n 10%|#   | 1/10\r 50%|##  | 5/10\r100%|####| 10/10\nnext\r\n"
    assert clean_terminal_output(raw) == "red\n100%|####| 10/10\nnext\n"
    assert clean_terminal_output("a\n 10%|# | 1/9\n 20%|# | 2/9\nb") == "a\n 20%|# | 2/9\nb"


def test_tracebacks() -> None:
    assert last_traceback(CHAINED) == CHAINED.split("\n", 1)[1]
    assert last_traceback(CHAINED + "\nmore output") == CHAINED.split("\n", 1)[1]
    assert last_traceback("fine") == ""
    two = CHAINED + '\nother\nTraceback (most recent call last):\n  File "b.py", line 1\nTypeError: t'
    assert last_traceback(two).endswith("TypeError: t")
    assert "KeyError" not in last_traceback(two)


@pytest.mark.parametrize(
    "line", ["loss: nan", "train_loss=nan", "{'loss': nan, 'lr': 1}", "Loss inf", "loss tensor(nan)"]
)
def test_bad_losses(line: str) -> None:
    assert find_nonfinite_loss(f"ok\n{line}\n") == line


@pytest.mark.parametrize("line", ["loss: 0.31", "nan values replaced", "no loss, banana", "loss of information"])
def test_good_losses(line: str) -> None:
    assert find_nonfinite_loss(line) == ""


@given(text=st.text(max_size=400), limit=st.integers(20, 200))
def test_clip_keeps_both_ends(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    if len(text) <= limit:
        assert clipped == text
    else:
        head, tail = clipped.split("\n[... ")[0], clipped.rsplit(" ...]\n", 1)[1]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) <= limit


@given(text=st.text(alphabet="ab\r\n\x1b[31m |%0123", max_size=100))
def test_tidy_leaves_no_control_codes(text: str) -> None:
    assert "\r" not in clean_terminal_output(text)
