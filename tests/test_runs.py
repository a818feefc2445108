"""Run folders."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from m3b.errors import WrongUse
from m3b.run.folder import Run, find_model, list_runs, runs_root
from m3b.run.registry import register
from m3b.writing import replace_text

# --- run folders -------------------------------------------------------------------------------------------------


def test_create_and_open(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "a" / "run")
    assert run.id == "run"
    assert run.work.is_dir()
    assert run.locked.is_dir()
    assert run.folder.stat().st_mode & 0o077 == 0
    run.save({"status": "working", "request": "Lungen – 肺"})
    assert Run.open(run.folder).load() == {"status": "working", "request": "Lungen – 肺"}


def test_an_empty_folder_will_do_and_a_full_one_not(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    Run.create(tmp_path / "run")
    Run.create(tmp_path / "run")  # where a kill left nothing but empty folders
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(WrongUse, match=r"not an empty folder.*--out"):
        Run.create(tmp_path / "run")
    (tmp_path / "file").write_text("x")
    with pytest.raises(WrongUse, match="not an empty folder"):
        Run.create(tmp_path / "file")


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WrongUse, match="cannot be made"):
        Run.create(tmp_path / "file" / "run")


def test_names_of_runs_do_not_clash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M3B_RUNS", str(tmp_path / "runs"))
    made = {Run.create().id for _ in range(20)}
    assert len(made) == 20
    assert runs_root() == tmp_path / "runs"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs go, in a current folder without any run."""
    monkeypatch.setenv("M3B_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def began(folder: Path, at: float, **more: object) -> Run:
    """A run that this user began; `at` is what run.json says of its time."""
    run = Run.create(folder)
    assert register(run.folder, "bubblewrap") == ""
    run.save({"status": "working", "started": at, "run_dir": str(run.folder), **more})
    return run


def test_open_by_id_by_path_and_last(tmp_path: Path, root: Path) -> None:
    with pytest.raises(WrongUse, match="no runs"):
        Run.open("last")
    for at, name in enumerate(("20250101-a", "20260101-b", "20240101-c")):
        began(root / name, 1000.0 + at)
    Run.create(root / "20990101-unsaved")
    assert [run.id for run in list_runs()] == ["20250101-a", "20260101-b", "20240101-c"]
    assert Run.open("last").id == "20240101-c", "registered last, whatever it is called"
    assert Run.open("20250101-a").folder == root / "20250101-a"
    assert Run.open(str(root / "20240101-c")).id == "20240101-c"
    with pytest.raises(WrongUse, match=r"no run 20990101-unsaved.*m3b runs"):
        Run.open("20990101-unsaved")
    assert list_runs(tmp_path / "nowhere") == []


def test_last_knows_the_runs_that_were_given_a_folder(tmp_path: Path, root: Path) -> None:
    """`--out mine` and `m3b demo` make runs beside `runs/`; the clock in run.json says nothing."""
    began(root / "20990101-000000-abcd", 4000.0)
    began(tmp_path / "mine", 2000.0)
    assert Run.open("last").id == "mine"
    began(tmp_path / "demo-2" / "run", 3000.0)
    assert Run.open("last").folder == tmp_path / "demo-2" / "run"
    assert [run.id for run in list_runs()] == ["20990101-000000-abcd", "mine", "run"]
    assert [run.id for run in list_runs(root)] == ["20990101-000000-abcd"]
    assert [run.id for run in list_runs(tmp_path / "mine")] == ["mine"], "a run's own folder"
    shutil.rmtree(tmp_path / "demo-2")
    assert Run.open("last").id == "mine", "the last one that still exists"


def test_an_id_that_several_runs_have(tmp_path: Path, root: Path) -> None:
    for place in ("a", "b"):
        began(tmp_path / place / "run", 1000.0)
    with pytest.raises(WrongUse) as refused:
        Run.open("run")
    assert all(str(tmp_path / place / "run") in str(refused.value) for place in ("a", "b"))
    began(root / "run", 1000.0)
    assert Run.open("run").folder == root / "run", "an id is the name of a folder below runs/"
    assert Run(tmp_path / "a" / "run").handle == str(tmp_path / "a" / "run")


def test_a_run_that_is_not_registered_is_named_by_path_alone(tmp_path: Path, root: Path) -> None:
    run = Run.create(root / "20250101-000000-abcd")
    run.save({"status": "working", "started": 1000.0, "run_dir": str(run.folder)})
    for name in (run.id, "last"):
        with pytest.raises(WrongUse):
            Run.open(name)
    with pytest.raises(WrongUse):
        find_model(run.id)
    assert list_runs() == []
    assert Run.open(run.folder).folder == run.folder
    assert [run.id for run in list_runs(root)] == [run.id]
    assert run.handle == str(run.folder)
    assert run.command("resume") == f"m3b resume {run.folder}"


def test_a_run_is_named_so_that_a_command_finds_it(tmp_path: Path, root: Path) -> None:
    for folder in (root / "20990101-000000-abcd", tmp_path / "my own run"):
        run = began(folder, 1000.0)
        program, command, name = shlex.split(run.command("resume"))
        assert (program, command) == ("m3b", "resume")
        assert Run.open(name).folder == folder
    assert Run(root / "20990101-000000-abcd").handle == "20990101-000000-abcd"


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
    record = Run.open(new).load()
    assert record["run_dir"] == str(new)
    moved = {"run_dir": str(new), "model_dir": str(new / "model"), "report": str(new / "report.html")}
    assert record["result"] == {**moved, "status": "completed", "reason": f"see {old}"}
    shutil.copytree(new, tmp_path / "old-copy")  # begins like the old one's name, and is none of its
    assert Run.open(tmp_path / "old-copy").load()["result"]["report"] == str(tmp_path / "old-copy" / "report.html")


@pytest.mark.parametrize("result", [None, [], "x", {}, {"model_dir": None, "report": 3}])
def test_an_odd_record_is_moved_as_far_as_it_goes(tmp_path: Path, result: object) -> None:
    run = began(tmp_path / "run", 1000.0, result=result)
    run.save({**run.load(), "run_dir": "/elsewhere"})
    assert run.load()["run_dir"] == str(run.folder)


def test_a_model_is_found_by_its_run_too(tmp_path: Path, root: Path) -> None:
    run = began(root / "20990101-000000-abcd", 1000.0)
    run.model.mkdir()
    with pytest.raises(WrongUse, match=r"20990101-000000-abcd has no model: working"):
        find_model("last")
    (run.model / "predict.py").write_text("")
    for name in (run.folder, run.model, run.id, "last", str(run.model)):
        assert find_model(name) == run.model
    assert Run.open(run.model).folder == run.folder, "and a run by its model"
    (tmp_path / "empty").mkdir()
    with pytest.raises(WrongUse, match=r"neither a model \(predict.py\) nor a run \(run.json\)"):
        find_model("empty")
    with pytest.raises(WrongUse, match="no model and no run nowhere"):
        find_model("nowhere")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "\x00"])
def test_a_broken_record_is_named(tmp_path: Path, content: str) -> None:
    run = Run.create(tmp_path / "run")
    (run.folder / "run.json").write_text(content)
    with pytest.raises(WrongUse, match=r"run\.json"):
        run.load()


def test_saving_is_all_or_nothing(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    run.save({"n": 1})

    class Unwritable:
        def __str__(self) -> str:
            raise ValueError("no text for this")

    with pytest.raises(ValueError, match="no text"):
        run.save({"n": Unwritable()})
    assert run.load() == {"n": 1}
    assert [p.name for p in run.folder.iterdir() if p.name.startswith(".")] == []


def test_replace_leaves_no_part_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_text(tmp_path / "folder", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    assert not run.busy
    run.lock()
    other = Run(run.folder)
    assert other.busy
    with pytest.raises(WrongUse, match="another process"):
        other.lock()
    code = f"from pathlib import Path; from m3b.run.folder import Run; print(Run(Path({str(run.folder)!r})).busy)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "True"
    run.unlock()
    run.unlock()
    assert not other.busy
    other.lock()
    other.unlock()


def test_looking_never_locks(tmp_path: Path) -> None:
    """While one process lists runs without a pause, every attempt of another to begin its work succeeds."""
    run = Run.create(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from m3b.run.folder import Run\n"
        f"run = Run(Path({str(run.folder)!r})); print(run.busy, flush=True)\n"
        "while True: run.busy\n"
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
    run = Run.create(tmp_path / "run")
    assert not run.busy
    assert not (run.folder / ".lock").exists()
    (run.folder / ".lock").symlink_to("/etc/passwd")
    assert not run.busy
    with pytest.raises(WrongUse, match="cannot be locked"):
        run.lock()


def test_the_owner_of_a_lock_is_named(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    run.lock()
    with pytest.raises(WrongUse, match=rf"another process \({os.getpid()}\)"):
        Run(run.folder).lock()
    (run.folder / ".lock").write_text("77 elsewhere")
    with pytest.raises(WrongUse, match=r"another process \(77 on elsewhere\)"):
        Run(run.folder).lock()
    (run.folder / ".lock").write_text("\x00\n")
    with pytest.raises(WrongUse, match="another process;"):
        Run(run.folder).lock()
    run.unlock()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    code = (
        "import os, signal; from pathlib import Path; from m3b.run.folder import Run\n"
        f"run = Run(Path({str(run.folder)!r})); run.lock(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert (run.folder / ".lock").exists()
    assert not run.busy
    assert os.listdir(run.work) == []
