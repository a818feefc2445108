"""Runs that an earlier m3b began, taken up by this one."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from pipeline_kit import REQUEST, actor, check_end, journal, play, say

from m3b import resume
from m3b.agents.checks.index_lock import fingerprint_folder
from m3b.errors import UsageError
from m3b.run.accepted_manifest import load_accepted_manifest
from m3b.run.folder import RunFolder
from m3b.run.index_validation import MANIFEST_FILE, PROPOSED_MANIFEST_FILE

OLD = Path(__file__).parents[1] / "run" / "journals" / "format-1-stopped"


def test_a_run_of_format_1_is_resumed(tmp_path: Path, spots: Path) -> None:
    """Written while the journal had format 1: the second role had run three scripts, and its model was then away."""
    run = tmp_path / "stopped"
    run.mkdir()
    for name in ("run.json", "journal.jsonl"):
        text = (OLD / name).read_text(encoding="utf-8")
        (run / name).write_text(text.replace("@DATA@", str(spots)).replace("@RUN@", str(run)), encoding="utf-8")
    halt = [say(json.dumps({"given_up": "Enough."}))]
    model = actor(play(index=[None, None, None, None, *play()["index"]], module=halt))
    result = resume(run, model)
    check_end(result, "failed", "Enough.")
    assert result.request == REQUEST
    assert list(result.roles) == ["task_manager", "data_engineer", "module_architect"]
    message_texts = [message.text for message in model.requests[0][0]]
    assert any("first" in text for text in message_texts)
    assert any("second" in text for text in message_texts)
    lines = journal(run)
    assert sum("n" not in line for line in lines) == len((OLD / "journal.jsonl").read_text("utf-8").splitlines())
    assert json.loads((run / "run.json").read_text())["format"] == 2
    assert result.roles["data_engineer"]["iterations"] == 2


# --- runs that called a manifest a reading ----------------------------------------------------------------------

EARLIER_RUN = Path(__file__).parent / "earlier_run"
"""Made by the rules, and declined at the question whether the data is read rightly."""


@pytest.fixture
def earlier_run(tmp_path: Path) -> RunFolder:
    """The run and its data, moved below `tmp_path`."""
    data, run = tmp_path / "spots", tmp_path / "run"
    with tarfile.open(EARLIER_RUN / "data.tar.gz") as archive:
        archive.extractall(data, filter="data")
    shutil.copytree(EARLIER_RUN / "run", run)
    (run / "locked" / "data").mkdir()
    (run / "locked" / "data" / "spots").symlink_to(data)
    fingerprint = json.loads((run / "locked" / "raw.json").read_text())["fingerprint"]  # of the paths as they were
    replacements = {"@RUN@": str(run), "@DATA@": str(data), fingerprint: fingerprint_folder(data, change_times=False)}
    for file in (*run.glob("*.json"), *run.glob("readings/*.json"), *run.glob("locked/*.json")):
        text = file.read_text(encoding="utf-8")
        for old, new in replacements.items():
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    (run / "work" / "data").mkdir()
    return RunFolder(run)


def test_a_manifest_in_the_form_of_earlier_versions_is_refused_with_what_to_do(earlier_run: RunFolder) -> None:
    with pytest.raises(UsageError, match="m3b look"):
        load_accepted_manifest(earlier_run)


def test_newer_files_stand_before_earlier_ones(earlier_run: RunFolder) -> None:
    assert earlier_run.get_path(MANIFEST_FILE).name == "reading.json"
    (earlier_run.path / MANIFEST_FILE).write_text("{}")
    assert earlier_run.get_path(MANIFEST_FILE) == earlier_run.path / MANIFEST_FILE
    assert earlier_run.get_path(PROPOSED_MANIFEST_FILE) == earlier_run.path / PROPOSED_MANIFEST_FILE


def test_an_earlier_run_goes_on_to_its_model(earlier_run: RunFolder) -> None:
    questions: list[str] = []

    def agree(question: str) -> str:
        questions.append(question)
        return "yes"

    result = resume(earlier_run.path, ask=agree)
    assert result.status == "below_range", result.reason  # its ten test images are too few
    assert str(earlier_run.path / "reading.json") in questions[0]
