"""`m3b runs rm`, and what is removed by itself when a run ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from m3b.cli.app import COMMAND_OF_SYNONYM
from m3b.errors import UsageError
from m3b.run.folder import RunFolder
from m3b.run.removal import remove_caches, remove_run
from warm.commands import run_m3b

M3b = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def m3b_(tmp_path: Path) -> M3b:
    environment = {**os.environ, "M3B_RUNS": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path / "state")}
    return lambda *arguments: run_m3b(*arguments, cwd=tmp_path, env=environment)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that has ended, with a link to data of the user."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/image.png").write_text("image")
    folder = RunFolder.create(tmp_path / "runs/first")
    folder.save_record({"status": "failed", "request": "Tell pneumonia from normal"})
    (folder.work / "data").symlink_to(tmp_path / "data")
    return folder


def test_nothing_is_removed_without_an_answer(m3b_: M3b, run: RunFolder) -> None:
    refusal = m3b_("runs", "rm", run.path)
    assert refusal.returncode == 2
    assert "--yes" in refusal.stderr
    assert run.path.name in refusal.stdout
    assert (run.path / "run.json").is_file()


def test_yes_removes_the_runs_and_follows_no_link(m3b_: M3b, run: RunFolder, tmp_path: Path) -> None:
    other_run = RunFolder.create(tmp_path / "runs/second")
    other_run.save_record({"status": "completed", "request": "Tell pneumonia from normal"})
    assert m3b_("runs", "rm", "--yes", run.path, other_run.path, run.path).returncode == 0
    assert list((tmp_path / "runs").iterdir()) == []
    assert (tmp_path / "data/image.png").read_text() == "image"
    assert m3b_("runs", "rm", "--yes", run.path).returncode == 2


def test_a_run_at_work_is_not_removed_and_neither_are_those_named_with_it(
    m3b_: M3b, run: RunFolder, tmp_path: Path
) -> None:
    working_run = RunFolder.create(tmp_path / "runs/working")
    working_run.save_record({"status": "working", "request": "Tell pneumonia from normal"})
    working_run.lock()
    try:
        refusal = m3b_("runs", "rm", "--yes", run.path, working_run.path)
        assert refusal.returncode == 2
        assert "working" in refusal.stderr
        assert run.path.is_dir()
        assert working_run.path.is_dir()
    finally:
        working_run.unlock()
    remove_run(working_run)
    assert not working_run.path.exists()


def test_other_folders_are_not_removed(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run.path)
    for folder in (tmp_path / "data", tmp_path / "link"):
        with pytest.raises(UsageError):
            remove_run(RunFolder(folder))
    assert (run.path / "run.json").is_file()
    assert (tmp_path / "data/image.png").is_file()


def test_caches_are_removed_and_links_in_their_place_are_not_followed(run: RunFolder, tmp_path: Path) -> None:
    kept_files = [run.work / "Logout/log.csv", run.work / "train.py"]
    removed_files = [run.work / "Logout/cache/0001.npy", run.resources / "templates/train.py"]
    for path in (*kept_files, *removed_files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (run.work / "resources").symlink_to(run.resources)
    remove_caches(run)
    assert [path for path in kept_files if not path.is_file()] == []
    assert not (run.work / "Logout/cache").exists()
    assert not run.resources.exists()
    assert not (run.work / "resources").is_symlink()
    (run.work / "Logout/cache").symlink_to(tmp_path / "data")
    remove_caches(run)
    assert (tmp_path / "data/image.png").is_file()


@pytest.mark.parametrize(("word", "command"), sorted(COMMAND_OF_SYNONYM.items()))
def test_words_of_other_programs_name_the_command(m3b_: M3b, word: str, command: str) -> None:
    refusal = m3b_(word, "x", "--epochs", "3")
    assert refusal.returncode == 2
    assert f"m3b {command}" in refusal.stderr
    assert m3b_(*command.split(), "--help").returncode == 0
