"""What a killed process left in a run's folder is gone when the run is taken up, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from m3b.errors import UsageError
from m3b.run.folder import RunFolder
from m3b.run.provisioning import remove_leftovers

LEFTOVERS = (
    ".staged-ab12/cases/case_0001.png",
    ".output-x1",
    ".model.part/weights.bin",
    ".resources.part/a",
    ".view.part/spots/1.png",
    ".work.part/Datapath/train.json",
    ".frozen/Datapath/train.json",
    ".run.json.4711",
    ".report.html.4711",
    "locked/.raw.json.4711",
    "readings/.asked.json.4711",
    "locked/.model.part/weights.bin",
    "work/.train.py.0123456789ab.tmp",
    "work/Datapath/.train.json.0123456789ab.tmp",
)
REGULAR_FILES = ("run.json", "locked/raw.json", "locked/model/predict.py", "view/spots/1.png", "work/.hidden", "work/a.tmp",
        ".lock", "work/deep/.x.tmp")  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    for name in (*LEFTOVERS, *REGULAR_FILES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return RunFolder(tmp_path)


def test_what_a_kill_left_is_gone(run: RunFolder) -> None:
    remove_leftovers(run)
    assert {name for name in LEFTOVERS if (run.path / name).exists()} == set()
    assert {name for name in REGULAR_FILES if not (run.path / name).exists()} == set()


def test_a_working_directory_about_to_take_its_place_stays(run: RunFolder) -> None:
    """Once the Data Engineer's is moved away, it is whole, and the only one there is."""
    (run.path / "scratch").mkdir()
    remove_leftovers(run)
    assert (run.path / ".work.part/Datapath/train.json").is_file()


def test_links_in_place_of_leftovers_lead_nowhere(tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.mkdir()
    (target / ".x.py.0123456789ab.tmp").write_text("kept")
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    (run.path / ".frozen").symlink_to(target)
    run.work.symlink_to(target)
    remove_leftovers(run)
    assert not (run.path / ".frozen").is_symlink()
    assert (target / ".x.py.0123456789ab.tmp").read_text() == "kept"


def test_a_folder_in_which_a_run_was_killed_before_its_record_can_be_used(tmp_path: Path) -> None:
    """It could neither be resumed nor started again."""
    RunFolder.create(tmp_path / "run").lock()
    with pytest.raises(UsageError, match="not an empty folder"):
        RunFolder.create(tmp_path / "run")  # that process is still there
    (tmp_path / "killed/work").mkdir(parents=True)
    (tmp_path / "killed/.lock").write_text("4711 host")
    RunFolder.create(tmp_path / "killed").lock()
    (tmp_path / "mine/work").mkdir(parents=True)
    (tmp_path / "mine/work/mine.txt").write_text("keep me")
    with pytest.raises(UsageError, match="not an empty folder"):
        RunFolder.create(tmp_path / "mine")
