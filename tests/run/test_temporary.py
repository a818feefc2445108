"""Temporary folders end with the process that made them: swept once it was killed, and never before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from m3b.isolation.sandbox import Mounts, choose_sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.isolation.untrusted.temporary import sweep_temporary


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


HOLD = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from m3b.isolation.untrusted import TemporaryFolder
folder = TemporaryFolder("trial")
(folder.path / "scan.png").write_bytes(b"")
print(folder.path, flush=True)
time.sleep(600)
"""


def test_a_folder_of_a_process_that_lives_stays_and_of_one_that_was_killed_goes(place: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        try:
            sweep_temporary()
            assert (folder / "scan.png").exists()
        finally:
            process.send_signal(signal.SIGKILL)
        process.wait()
        sweep_temporary()
        assert list(place.iterdir()) == []


def test_what_is_no_folder_of_m3b_stays(place: Path) -> None:
    target = place / "m3b-notes"
    target.mkdir()
    (target / "kept.txt").write_text("")
    (place / "m3b-link-held-abc").symlink_to(target)
    (place / "m3b-file-held-abc").write_text("mine")
    sweep_temporary()
    assert sorted(path.name for path in place.iterdir()) == ["m3b-file-held-abc", "m3b-link-held-abc", "m3b-notes"]
    assert (target / "kept.txt").exists()


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may sweep between the making and the locking: CI met it, and a run ended for it."""
    make, folders = tempfile.mkdtemp, []

    def swept_once(**options: str) -> str:
        folders.append(make(**options))
        if len(folders) == 1:
            sweep_temporary()
            assert not Path(folders[0]).exists()
        return folders[-1]

    monkeypatch.setattr("m3b.isolation.untrusted.temporary.tempfile.mkdtemp", swept_once)
    with TemporaryFolder("x") as folder:
        assert str(folder) == folders[1]
        assert folder.exists()


def test_without_locks_an_old_folder_of_a_process_that_is_gone_goes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_process = subprocess.Popen([sys.executable, "-c", ""])
    ended_process.wait()
    for name, age in (
        (f"m3b-x-{ended_process.pid}-old", 7200),
        (f"m3b-x-{ended_process.pid}-new", 0),
        (f"m3b-x-{os.getpid()}-old", 7200),
    ):
        (place / name).mkdir()
        os.utime(place / name, (0, (place / name).stat().st_mtime - age))

    def refuse(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("m3b.isolation.untrusted.temporary.fcntl.flock", refuse)
    with TemporaryFolder("x") as folder:
        sweep_temporary()
        assert folder.name.startswith(f"m3b-x-{os.getpid()}-")
        assert f"m3b-x-{ended_process.pid}-old" not in {path.name for path in place.iterdir()}
    assert {path.name for path in place.iterdir()} == {f"m3b-x-{ended_process.pid}-new", f"m3b-x-{os.getpid()}-old"}


def test_the_folder_of_a_running_script_stays(place: Path) -> None:
    work = place / "work"
    work.mkdir()
    running = choose_sandbox("off").start(
        ["sleep", "600"], cwd=work, mounts=Mounts(write=(work,)), output=place / "output"
    )
    try:
        sweep_temporary()
        assert len(list(place.glob("m3b-sandbox-*"))) == 1
    finally:
        running.stop()
    assert list(place.glob("m3b-sandbox-*")) == []


BEGIN = """
import os, signal, sys, tempfile
from pathlib import Path
place = Path(sys.argv[1])
tempfile.tempdir = str(place)
from m3b.isolation.sandbox import Mounts, choose_sandbox
from m3b.isolation.sandbox.process import Process
Process._send_job = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
choose_sandbox("off").start(["true"], cwd=place, mounts=Mounts(write=(place,)), output=place / "output")
"""


def test_a_kill_before_the_supervisor_knows_of_the_folder_leaves_none(place: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", BEGIN, str(place)], check=False, stderr=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL

    end = time.monotonic() + 30
    while list(place.glob("m3b-*")) and time.monotonic() < end:
        sweep_temporary()  # in vain while the supervisor lives, which ends by itself
        time.sleep(0.02)
    assert list(place.glob("m3b-*")) == []
