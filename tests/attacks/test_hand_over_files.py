"""Files that a script leaves for the checks of a hand-over: pipes, endless devices, patterns that take for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from m3b.agents.checks.model import read_validation_records
from m3b.agents.checks.module import RECIPE_FILES, REQUIRED_FILES, CommandResult, check_module
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.models import read_model_info
from m3b.models.deliverable_check import check_deliverable
from m3b.report.run_files import read_run_files

HUNG_S = 120
"""Far more than any of this takes on a busy machine: what takes longer grows with the square of its input."""


def in_child(source: str, *arguments: object) -> str:
    """Run Python in a process of its own, so that a hang fails one test instead of stopping them all."""
    command = [sys.executable, "-c", source, *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG_S, check=False)
    except subprocess.TimeoutExpired:
        raise AssertionError("it hangs") from None
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_special_file(work: Path, name: str, kind: str) -> None:
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(work / name)
    else:
        (work / name).symlink_to({"zero": "/dev/zero", "link": work.parent / "secret.json"}[kind])


READ_VALIDATION_RECORDS = """
import sys
from pathlib import Path
from m3b.agents.checks.model import read_validation_records
from m3b.data.index import Index
from m3b.data.records import Record
record = Record("data/x/a.png", labels=("a",), patient="p")
print(len(read_validation_records(Path(sys.argv[1]), Index((record,), (), ("a",)))))
"""


@pytest.mark.parametrize("kind", ["pipe", "zero", "link"])
def test_validation_predictions_that_are_no_file(tmp_path: Path, kind: str) -> None:
    work = tmp_path / "work"
    (tmp_path / "secret.json").write_text(json.dumps([{"image": "data/x/a.png"}]))
    make_special_file(work, "Logout/valid_predictions.json", kind)
    assert in_child(READ_VALIDATION_RECORDS, work) == "0\n"


def test_validation_predictions_that_are_a_file(tmp_path: Path) -> None:
    record = Record("data/x/a.png", labels=("a",), patient="p")
    (tmp_path / "Logout").mkdir()
    (tmp_path / "Logout/valid_predictions.json").write_text(json.dumps([{"image": "data/x/a.png"}]))
    assert read_validation_records(tmp_path, Index((record,), (), ("a",))) == [record]


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "{", "\udcff"])
def test_a_plan_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    for name in (*REQUIRED_FILES, *RECIPE_FILES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "plan.json").write_text(content, errors="surrogateescape")
    report = {"step": "all", "shape": [1, 1], "dtype": "float32", "label_width": 2, "finite": True, "range": [0, 1],
              "parameters": 1, "outputs": 2, "same_outputs": False, "loss_before": 1.0, "loss_after": 0.1,
              "steps": 200, "loss_finite": True}  # fmt: skip
    verdict = check_module(tmp_path, ("a", "b"), lambda *_: CommandResult(0, "exit", "M3B-PROBE " + json.dumps(report)))
    assert "plan.json" in verdict.agent_messages[0]


READ_RUN_FILES = """
import sys
from pathlib import Path
from m3b.report.run_files import read_run_files
run_files = read_run_files(Path(sys.argv[1]))
print(run_files.training_log, run_files.audit)
"""


@pytest.mark.parametrize("kind", ["pipe", "zero", "link"])
def test_the_report_of_a_run_with_odd_files(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    make_special_file(tmp_path / "work", "Logout/log.csv", kind)
    make_special_file(tmp_path / "work", "data_audit.json", kind)
    assert in_child(READ_RUN_FILES, tmp_path) == "[] {}\n"


def test_a_log_that_is_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "work/Logout").mkdir(parents=True)
    (tmp_path / "work/Logout/log.csv").write_text("epoch,loss\n1,0.5\n")
    assert read_run_files(tmp_path).training_log == [{"epoch": "1", "loss": "0.5"}]


# --- deliverables -------------------------------------------------------------------------------------------------

CHECK = """
import sys
from pathlib import Path
from m3b.models.deliverable_check import check_deliverable
print(check_deliverable(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("unit", ["a", "a.", "a/", "a.png", "/a.png", "/home/", "\n", "a.b#", "a.b#c["])
@pytest.mark.parametrize("name", ["words.json", "words.py"])
def test_long_texts_in_a_deliverable_are_read_in_linear_time(tmp_path: Path, unit: str, name: str) -> None:
    (tmp_path / name).write_text(unit * (800_000 // len(unit)))
    assert "predict.py is missing" in in_child(CHECK, tmp_path)


def test_a_text_of_gigabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    with (tmp_path / "words.json").open("wb") as file:
        file.truncate(2**40)
    assert any("words.json" in message and "more than" in message for message in check_deliverable(tmp_path))


def test_a_deep_configuration_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        read_model_info(tmp_path)
