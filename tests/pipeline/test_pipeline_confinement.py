"""Which sandbox confines a resumed run, what its record says of that, and runs that are in nobody's list."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline_kit import REQUEST, actor, copy_run, journal, play

from m3b import Pipeline, resume
from m3b.errors import Authentication, SandboxError
from m3b.isolation.sandbox import choose_sandbox
from m3b.isolation.sandbox.guard import rules
from m3b.run.folder import RunFolder, list_runs
from m3b.run.registry import is_registered, read_registry, register
from m3b.run.result import Result
from m3b.testing.scripted_model import llm_error

STOPPED = play(model=[llm_error(Authentication, "The key is refused.")])


def record_of(run: Path) -> dict[str, object]:
    record: dict[str, object] = json.loads((run / "run.json").read_text())
    return record


def sessions(run: Path) -> list[str]:
    return [event["data"]["sandbox"]["name"] for event in journal(run) if event["kind"] == "run_started"]


def notes(run: Path) -> list[str]:
    """What the user was told as sessions of a run began."""
    return [note for event in journal(run) if event["kind"] == "run_started" for note in event["data"]["notes"]]


def floor(run: Path) -> str:
    entry = read_registry().at(run)
    return entry.sandbox if entry else ""


@pytest.fixture
def stopped(halfway_run: Path, tmp_path: Path) -> Path:
    """A run of this user's, confined by bubblewrap, whose trainer has not begun."""
    if choose_sandbox("auto").name != "bubblewrap" or rules.landlock_abi() < 6:
        pytest.skip("takes both backends")
    run = copy_run(halfway_run, tmp_path / "copy")
    assert register(run, "bubblewrap") == ""
    return run


@pytest.fixture
def only_landlock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr("m3b.isolation.sandbox.bubblewrap.find_executables", list)


def test_less_than_before_takes_a_word_of_the_user(stopped: Path, only_landlock: Callable[[], None]) -> None:
    only_landlock()
    before = (stopped / "run.json").read_bytes()
    with pytest.raises(SandboxError, match="--sandbox"):
        resume(stopped, actor(play()))
    assert (stopped / "run.json").read_bytes() == before
    assert sessions(stopped) == ["bubblewrap"]
    result: Result = resume(stopped, actor(play()), sandbox="landlock")
    assert result.status == "completed", result.reason
    assert sessions(stopped) == ["bubblewrap", "landlock"]
    record = record_of(stopped)
    assert record["sandbox"] == {"name": "landlock", "level": choose_sandbox("landlock").level}
    assert record["sandboxes"] == ["bubblewrap", "landlock"]
    assert record["options"]["sandbox"] == "landlock"  # type: ignore[index]
    provenance = json.loads((stopped / "model" / "provenance.json").read_text())
    assert provenance["sandboxes"] == ["bubblewrap", "landlock"]
    assert floor(stopped) == "landlock"
    (note,) = notes(stopped)
    assert "bubblewrap" in note
    assert "landlock" in note
    assert "bubblewrap, then landlock" in (stopped / "report.html").read_text()


def test_off_is_obeyed_where_the_user_says_it_and_stays_in_the_record(stopped: Path) -> None:
    resume(stopped, actor(STOPPED), sandbox="off")
    assert (floor(stopped), record_of(stopped)["sandbox"]["name"]) == ("off", "off")  # type: ignore[index]
    resume(stopped, actor(STOPPED), sandbox="auto")
    assert floor(stopped) == "bubblewrap"
    assert record_of(stopped)["sandbox"]["name"] == "off", "the weakest that scripts had"  # type: ignore[index]
    assert record_of(stopped)["sandboxes"] == ["off", "bubblewrap"]
    assert sessions(stopped) == ["bubblewrap", "off", "bubblewrap"]


def test_a_run_that_the_user_began_unconfined_goes_on_so(spots: Path, tmp_path: Path) -> None:
    run = Path(Pipeline(actor(STOPPED), data=[spots], out=tmp_path / "run", sandbox="off").run(REQUEST).run_dir)
    assert floor(run) == "off"
    resume(run, actor(STOPPED))
    assert sessions(run) == ["off", "off"]
    moved = run.rename(tmp_path / "moved")
    resume(moved, actor(STOPPED))
    assert sessions(moved)[-1] == choose_sandbox("auto").name, "elsewhere it is not in the list"
    assert is_registered(moved)
    assert RunFolder.open("last").path == moved


@pytest.mark.confined
def test_a_stronger_sandbox_is_taken_where_it_works(
    stopped: Path, only_landlock: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("m3b.isolation.sandbox.bubblewrap.find_executables", list)
        resume(stopped, actor(STOPPED), sandbox="auto")
    assert floor(stopped) == "landlock"
    resume(stopped, actor(STOPPED))
    assert sessions(stopped) == ["bubblewrap", "landlock", "bubblewrap"]


# --- the list ------------------------------------------------------------------------------------------------------


def test_a_new_run_is_in_the_list_with_its_data(spots: Path, tmp_path: Path) -> None:
    result = Pipeline(actor(STOPPED), data=[spots], out=tmp_path / "run").run(REQUEST)
    (entry,) = read_registry().existing()
    assert (entry.folder, entry.data) == (Path(result.run_dir), (spots,))
    assert entry.sandbox == record_of(entry.folder)["sandbox"]["name"]  # type: ignore[index]
    assert RunFolder.open("last").path == entry.folder


def test_a_run_that_is_not_to_be_in_the_list(spots: Path, tmp_path: Path) -> None:
    result = Pipeline(actor(STOPPED), data=[spots], out=tmp_path / "run", register=False).run(REQUEST)
    assert list_runs() == []
    assert not is_registered(Path(result.run_dir))
    assert notes(Path(result.run_dir)) == []


def test_a_service_without_a_home_folder_runs(spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    result = Pipeline(actor(play()), data=[spots], out=tmp_path / "run").run(REQUEST)
    assert result.status == "completed", result.reason
    (note,) = notes(Path(result.run_dir))
    assert str(tmp_path / "run") in note
    assert list_runs() == []


@pytest.mark.confined
def test_labels_in_file_names_need_a_word_of_the_user_under_landlock(
    spots: Path, tmp_path: Path, only_landlock: Callable[[], None]
) -> None:
    """Scripts could find which names exist in each class folder, although all but the training cases is out of their reach."""
    if rules.landlock_abi() < 6:
        pytest.skip("takes Landlock")
    only_landlock()
    result = Pipeline(actor(STOPPED), data=[spots], out=tmp_path / "run").run(REQUEST)
    run = Path(result.run_dir)
    assert result.status == "failed"
    assert "--sandbox landlock" in result.reason
    assert not (run / "view").exists()
    assert "The key is refused." not in result.reason
    assert "The key is refused." in resume(run, actor(STOPPED), sandbox="landlock").reason
    assert (run / "view").is_dir()
