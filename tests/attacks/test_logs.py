"""A script that turns the places where m3b keeps its output into links, pipes and devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attacks.conftest import KEY

Run = tuple[Any, Path]

OWN_LOG = """
import os
log = "Logout/jobs/001.log"
os.makedirs("Logout/jobs", exist_ok=True)
"""


@pytest.mark.parametrize("target", ["/proc/self/environ", "{top}/secret.txt", "/proc/{pid}/environ"])
def test_the_own_log_as_a_link_shows_nothing(victim: Run, target: str) -> None:
    box, top = victim
    target = target.format(top=top, pid=box.pid)
    result = box.script(OWN_LOG + f"os.symlink({target!r}, 'spare'); os.replace('spare', log)\nprint('done')")
    assert "done" in result["text"], result
    for text in (result["text"], box.use("read_files", paths=["Logout/jobs/001.log"])["text"]):
        assert KEY not in text
        assert "outside-secret" not in text
    assert (top / "secret.txt").read_text() == "outside-secret"


def test_the_own_log_as_a_pipe_does_not_hang(victim: Run) -> None:
    box, _ = victim
    result = box.script(OWN_LOG + "os.mkfifo('spare'); os.replace('spare', log)\nprint('done')")
    assert "done" in result["text"]
    assert result["data"]["exit_code"] == 0


def test_the_log_of_a_running_job_as_a_link(victim: Run) -> None:
    box, top = victim
    start_result = box.script(
        "import os, time\nprint('begun', flush=True)\n"
        + OWN_LOG
        + f"os.symlink('{top}/secret.txt', 'spare'); os.replace('spare', log)\n"
        "open('ready', 'w').close()\ntime.sleep(300)",
        wait_s=0,
    )
    assert start_result["data"]["running"]
    while not (top / "run/work/ready").exists():
        assert box.use("run_script", job=1, wait_s=0)["data"]["running"]
    stop_result = box.use("run_script", job=1, stop=True)
    assert "begun" in stop_result["text"]
    assert "outside-secret" not in stop_result["text"]


@pytest.mark.parametrize("place", ["Logout", "Logout/jobs", "Logout/results"])
def test_folders_of_logs_as_links_lead_nowhere(victim: Run, place: str) -> None:
    box, top = victim
    outside_folder = top / "run/outside"
    outside_folder.mkdir()
    outside_folder.chmod(0o777)
    box.script(
        f"import os, shutil\nshutil.rmtree({place!r}, ignore_errors=True)\n"
        f"os.makedirs(os.path.dirname({place!r}) or '.', exist_ok=True)\nos.symlink({str(outside_folder)!r}, {place!r})"
    )
    result = box.use("run_script", command="echo again")
    assert "again" in result["text"], result
    listing = box.use("list_files", path=".", depth=6)
    for number in range(400):
        (top / f"run/work/file{number:060d}").touch()
    long = box.use("preview_dirs", path=".")
    assert not listing["is_error"]
    assert not long["is_error"]
    assert list(outside_folder.rglob("*")) == []


def test_a_log_named_in_the_millions_changes_no_number(victim: Run) -> None:
    box, _ = victim
    box.script("import os\nos.makedirs('Logout/jobs', exist_ok=True)\nopen('Logout/jobs/999999999.log', 'w')")
    assert box.use("run_script", command="echo again")["data"]["job"] == 2


def test_swapping_the_folder_between_calls_writes_nothing_elsewhere(victim: Run) -> None:
    box, top = victim
    outside_folder = top / "run/outside"
    outside_folder.mkdir()
    outside_folder.chmod(0o777)
    box.script(
        f"""
import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs("Logout/jobs", exist_ok=True)
os.symlink({str(outside_folder)!r}, "swap")
open("ready", "w").close()
while True: libc.renameat2(-100, b"Logout/jobs", -100, b"swap", 2)
""",
        wait_s=0,
    )
    while not (top / "run/work/ready").exists():
        assert box.use("run_script", job=1, wait_s=0)["data"]["running"]
    for number in range(10):
        assert f"round {number}" in box.use("run_script", command=f"echo round {number}")["text"]
        box.use("list_files", path="Logout", depth=3)
    box.use("run_script", job=1, stop=True)
    assert list(outside_folder.iterdir()) == []
    assert sorted(p.name for p in (top / "run").iterdir()) == ["logs", "outside", "resources", "work"]
