"""Run folders."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from m3b.errors import UsageError
from m3b.run.folder import RunFolder, find_model_folder, get_runs_root, list_runs
from m3b.run.registry import register
from m3b.writing import write_text_atomically

# --- run folders -------------------------------------------------------------------------------------------------


def test_create_and_open(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a" / "run")
    assert run.id == "run"
    assert run.work.is_dir()
    assert run.locked.is_dir()
    assert run.path.stat().st_mode & 0o077 == 0
    run.save_record({"status": "working", "request": "Lungen – 肺"})
    assert RunFolder.open(run.path).load_record() == {"status": "working", "request": "Lungen – 肺"}


def test_an_empty_folder_will_do_and_a_full_one_not(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    RunFolder.create(tmp_path / "run")
    RunFolder.create(tmp_path / "run")  # where a kill left nothing but empty folders
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(UsageError, match=r"not an empty folder.*--out"):
        RunFolder.create(tmp_path / "run")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="not an empty folder"):
        RunFolder.create(tmp_path / "file")


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot be made"):
        RunFolder.create(tmp_path / "file" / "run")


def test_names_of_runs_do_not_clash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M3B_RUNS", str(tmp_path / "runs"))
    ids = {RunFolder.create().id for _ in range(20)}
    assert len(ids) == 20
    assert get_runs_root() == tmp_path / "runs"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs go, in a current folder without any run."""
    monkeypatch.setenv("M3B_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def began(folder: Path, at: float, **record_fields: object) -> RunFolder:
    """A run that this user began; `at` is what run.json says of its time."""
    run = RunFolder.create(folder)
    assert register(run.path, "bubblewrap") == ""
    run.save_record({"status": "working", "started": at, "run_dir": str(run.path), **record_fields})
    return run


def test_open_by_id_by_path_and_last(tmp_path: Path, root: Path) -> None:
    with pytest.raises(UsageError, match="no runs"):
        RunFolder.open("last")
    for at, name in enumerate(("20250101-a", "20260101-b", "20240101-c")):
        began(root / name, 1000.0 + at)
    RunFolder.create(root / "20990101-unsaved")
    assert [run.id for run in list_runs()] == ["20250101-a", "20260101-b", "20240101-c"]
    assert RunFolder.open("last").id == "20240101-c", "registered last, whatever it is called"
    assert RunFolder.open("20250101-a").path == root / "20250101-a"
    assert RunFolder.open(str(root / "20240101-c")).id == "20240101-c"
    with pytest.raises(UsageError, match=r"no run 20990101-unsaved.*m3b runs"):
        RunFolder.open("20990101-unsaved")
    assert list_runs(tmp_path / "nowhere") == []


def test_last_knows_the_runs_that_were_given_a_folder(tmp_path: Path, root: Path) -> None:
    """`--out mine` and `m3b demo` make runs beside `runs/`; the clock in run.json says nothing."""
    began(root / "20990101-000000-abcd", 4000.0)
    began(tmp_path / "mine", 2000.0)
    assert RunFolder.open("last").id == "mine"
    began(tmp_path / "demo-2" / "run", 3000.0)
    assert RunFolder.open("last").path == tmp_path / "demo-2" / "run"
    assert [run.id for run in list_runs()] == ["20990101-000000-abcd", "mine", "run"]
    assert [run.id for run in list_runs(root)] == ["20990101-000000-abcd"]
    assert [run.id for run in list_runs(tmp_path / "mine")] == ["mine"], "a run's own folder"
    shutil.rmtree(tmp_path / "demo-2")
    assert RunFolder.open("last").id == "mine", "the last one that still exists"


def test_an_id_that_several_runs_have(tmp_path: Path, root: Path) -> None:
    for place in ("a", "b"):
        began(tmp_path / place / "run", 1000.0)
    with pytest.raises(UsageError) as refused:
        RunFolder.open("run")
    assert all(str(tmp_path / place / "run") in str(refused.value) for place in ("a", "b"))
    began(root / "run", 1000.0)
    assert RunFolder.open("run").path == root / "run", "an id is the name of a folder below runs/"
    assert RunFolder(tmp_path / "a" / "run").display_name == str(tmp_path / "a" / "run")


def test_a_run_that_is_not_registered_is_named_by_path_alone(tmp_path: Path, root: Path) -> None:
    run = RunFolder.create(root / "20250101-000000-abcd")
    run.save_record({"status": "working", "started": 1000.0, "run_dir": str(run.path)})
    for name in (run.id, "last"):
        with pytest.raises(UsageError):
            RunFolder.open(name)
    with pytest.raises(UsageError):
        find_model_folder(run.id)
    assert list_runs() == []
    assert RunFolder.open(run.path).path == run.path
    assert [run.id for run in list_runs(root)] == [run.id]
    assert run.display_name == str(run.path)
    assert run.format_command("resume") == f"m3b resume {run.path}"


def test_a_run_is_named_so_that_a_command_finds_it(tmp_path: Path, root: Path) -> None:
    for folder in (root / "20990101-000000-abcd", tmp_path / "my own run"):
        run = began(folder, 1000.0)
        program, command, name = shlex.split(run.format_command("resume"))
        assert (program, command) == ("m3b", "resume")
        assert RunFolder.open(name).path == folder
    assert RunFolder(root / "20990101-000000-abcd").display_name == "20990101-000000-abcd"


def test_a_broken_record_counts_by_its_files_time(root: Path) -> None:
    began(root / "b", 2000.0)
    for name, content, at in (("a", "{", 3000), ("c", '{"started": "soon"}', 1000)):
        (root / name).mkdir()
        (root / name / "run.json").write_text(content)
        os.utime(root / name / "run.json", (at, at))
    assert [run.id for run in list_runs(root)] == ["c", "b", "a"]


def test_a_moved_run_tells_its_new_paths(tmp_path: Path) -> None:
    old = tmp_path / "old"
    paths = {"run_dir": str(old), "model_dir": str(old / "model"), "report": str(old / "report.html")}
    began(old, 1000.0, result={**paths, "status": "completed", "reason": f"see {old}"})
    new = Path(shutil.move(old, tmp_path / "older"))
    record = RunFolder.open(new).load_record()
    assert record["run_dir"] == str(new)
    moved = {"run_dir": str(new), "model_dir": str(new / "model"), "report": str(new / "report.html")}
    assert record["result"] == {**moved, "status": "completed", "reason": f"see {old}"}
    shutil.copytree(new, tmp_path / "old-copy")  # begins like the old one's name, and is none of its
    assert RunFolder.open(tmp_path / "old-copy").load_record()["result"]["report"] == str(
        tmp_path / "old-copy" / "report.html"
    )


@pytest.mark.parametrize("result", [None, [], "x", {}, {"model_dir": None, "report": 3}])
def test_an_odd_record_is_moved_as_far_as_it_goes(tmp_path: Path, result: object) -> None:
    run = began(tmp_path / "run", 1000.0, result=result)
    run.save_record({**run.load_record(), "run_dir": "/elsewhere"})
    assert run.load_record()["run_dir"] == str(run.path)


def test_a_model_is_found_by_its_run_too(tmp_path: Path, root: Path) -> None:
    run = began(root / "20990101-000000-abcd", 1000.0)
    run.model.mkdir()
    with pytest.raises(UsageError, match=r"20990101-000000-abcd has no model: working"):
        find_model_folder("last")
    (run.model / "predict.py").write_text("")
    for name in (run.path, run.model, run.id, "last", str(run.model)):
        assert find_model_folder(name) == run.model
    assert RunFolder.open(run.model).path == run.path, "and a run by its model"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"neither a model \(predict.py\) nor a run \(run.json\)"):
        find_model_folder("empty")
    with pytest.raises(UsageError, match="no model and no run nowhere"):
        find_model_folder("nowhere")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "\x00"])
def test_a_broken_record_is_named(tmp_path: Path, content: str) -> None:
    run = RunFolder.create(tmp_path / "run")
    (run.path / "run.json").write_text(content)
    with pytest.raises(UsageError, match=r"run\.json"):
        run.load_record()


def test_saving_is_all_or_nothing(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    run.save_record({"n": 1})

    class Unwritable:
        def __str__(self) -> str:
            raise ValueError("no text for this")

    with pytest.raises(ValueError, match="no text"):
        run.save_record({"n": Unwritable()})
    assert run.load_record() == {"n": 1}
    assert [p.name for p in run.path.iterdir() if p.name.startswith(".")] == []


def test_replace_leaves_no_part_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_text_atomically(tmp_path / "folder", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    assert not run.is_busy
    run.lock()
    second_handle = RunFolder(run.path)
    assert second_handle.is_busy
    with pytest.raises(UsageError, match="another process"):
        second_handle.lock()
    code = f"from pathlib import Path; from m3b.run.folder import RunFolder; print(RunFolder(Path({str(run.path)!r})).is_busy)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "True"
    run.unlock()
    run.unlock()
    assert not second_handle.is_busy
    second_handle.lock()
    second_handle.unlock()


def test_looking_never_locks(tmp_path: Path) -> None:
    """While one process lists runs without a pause, every attempt of another to begin its work succeeds."""
    run = RunFolder.create(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from m3b.run.folder import RunFolder\n"
        f"run = RunFolder(Path({str(run.path)!r})); print(run.is_busy, flush=True)\n"
        "while True: run.is_busy\n"
    )
    looking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert looking.stdout is not None
        assert looking.stdout.readline().strip() == "False"
        for _ in range(3000):
            run.lock()
            run.unlock()
        assert looking.poll() is None
    finally:
        looking.kill()
        looking.communicate()


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    assert not run.is_busy
    assert not (run.path / ".lock").exists()
    (run.path / ".lock").symlink_to("/etc/passwd")
    assert not run.is_busy
    with pytest.raises(UsageError, match="cannot be locked"):
        run.lock()


def test_the_owner_of_a_lock_is_named(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    run.lock()
    with pytest.raises(UsageError, match=rf"another process \({os.getpid()}\)"):
        RunFolder(run.path).lock()
    (run.path / ".lock").write_text("77 elsewhere")
    with pytest.raises(UsageError, match=r"another process \(77 on elsewhere\)"):
        RunFolder(run.path).lock()
    (run.path / ".lock").write_text("\x00\n")
    with pytest.raises(UsageError, match="another process;"):
        RunFolder(run.path).lock()
    run.unlock()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    code = (
        "import os, signal; from pathlib import Path; from m3b.run.folder import RunFolder\n"
        f"run = RunFolder(Path({str(run.path)!r})); run.lock(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert (run.path / ".lock").exists()
    assert not run.is_busy
    assert os.listdir(run.work) == []
