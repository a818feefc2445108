"""A full disk: said in words, nothing torn, and the run goes on once there is room."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_kit import REQUEST, check_left, journal, m3b_command, plugin

FILL = "acts = play(model=[script('head -c 100M /dev/zero > big.bin; ls'), *play()['model']])"
FILL_ALL = "acts = play(selection=[lambda m, t: fill(), choice('spots')])\n"
FILLER = """
def fill():
    with open({file!r}, 'wb', buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            pass
    return call('preview_dirs', path='data/spots')
"""


def small_disk(tmp_path: Path, megabytes: int, script: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a mount namespace of its own, where `tmp_path/disk` is a small file system.

    What the script leaves in `disk/run` is copied to `tmp_path/kept`.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small file system here")
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={megabytes}m none {disk}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this machine refuses a private mount namespace")
    whole = f"{mount} || exit 99\n{script}\ncp -a {disk}/run {kept}\n"
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", whole], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )


def m3b(*arguments: object) -> str:
    return shlex.join(m3b_command(*arguments))


def test_a_script_that_fills_the_disk(tmp_path: Path, halfway_run: Path) -> None:
    """The run ends in words, and goes on once there is room."""
    env = plugin(tmp_path / "plugin", FILL)
    run = tmp_path / "disk" / "run"
    resume = m3b("resume", run, "--llm", "played:x", "--json")
    first, second = f"{resume} > first.json; echo $? > first.rc", f"{resume} > second.json; echo $? > second.rc"
    ended = small_disk(tmp_path, 8, f"cp -a {halfway_run} {run}; {first}; rm -f {run}/work/big.bin; {second}", env)
    assert "Traceback" not in ended.stderr, ended.stderr
    told = json.loads((tmp_path / "first.json").read_text())
    assert (tmp_path / "first.rc").read_text().strip() == "1", ended.stderr
    assert told["status"] == "failed"
    assert "No space left" in told["reason"], told["reason"]
    assert "m3b resume" in told["reason"]
    assert (tmp_path / "second.rc").read_text().strip() == "0", ended.stderr
    assert json.loads((tmp_path / "second.json").read_text())["status"] == "completed"
    events = journal(tmp_path / "kept")
    assert events[-1]["kind"] == "run_ended"
    assert events[-1]["data"]["status"] == "completed"
    assert json.loads((tmp_path / "kept" / "run.json").read_text())["status"] == "completed"


def test_a_disk_that_is_full_while_the_model_is_asked(tmp_path: Path, spots: Path) -> None:
    """Somebody else fills the disk to the last byte; no event is torn."""
    filler = FILLER.format(file=str(tmp_path / "disk" / "other.bin"))
    env = plugin(tmp_path / "plugin", filler + FILL_ALL)
    run = tmp_path / "disk" / "run"
    start = m3b("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", run, "--json")
    again = m3b("resume", run, "--json")
    script = f"{start} > first.json; echo $? > rc; {again} > full.json 2> full.err; echo $? > full.rc"
    ended = small_disk(tmp_path, 6, script, env)
    assert "Traceback" not in ended.stderr, ended.stderr
    first = json.loads((tmp_path / "first.json").read_text())
    assert (tmp_path / "rc").read_text().strip() == "1"
    assert first["status"] == "failed"
    assert "Make room on the disk" in first["reason"]
    assert journal(tmp_path / "kept")[-1]["kind"] != "run_ended", "the last event that fitted, whole"
    assert "Traceback" not in (tmp_path / "full.err").read_text()
    assert (tmp_path / "full.rc").read_text().strip() in ("1", "2")
    assert json.loads((tmp_path / "kept" / "run.json").read_text())["status"] in ("working", "failed")


def test_a_disk_that_is_full_from_the_start(tmp_path: Path, spots: Path) -> None:
    env = plugin(tmp_path / "plugin", "acts = play()")
    run = tmp_path / "disk" / "run"
    start = m3b("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", run)
    full = f"head -c 10M /dev/zero > {tmp_path}/disk/other.bin 2>/dev/null"
    ended = small_disk(tmp_path, 1, f"{full}; {start}; echo $? > rc; mkdir -p {run}", env)
    assert (tmp_path / "rc").read_text().strip() in ("1", "2")
    assert "Traceback" not in ended.stderr, ended.stderr
    assert "No space left" in ended.stderr + ended.stdout


def test_files_of_limited_size(tmp_path: Path, spots: Path) -> None:
    """The same without a file system of one's own: no file of m3b's may grow beyond 16 KiB."""
    env = plugin(tmp_path / "plugin", "acts = play(module=[fault(LLMError, 'Enough.')])")
    run = tmp_path / "run"
    command = m3b("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", run, "--json")
    limits = "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, resource.RLIM_INFINITY))"
    limited = f"import resource, os, sys; {limits}; os.execv(sys.argv[1], sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", limited, *shlex.split(command)], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    result = json.loads(ended.stdout)
    assert result["status"] == "failed"
    assert "File too large" in result["reason"]
    if (run / "journal.jsonl").exists() and (run / "journal.jsonl").stat().st_size:
        assert journal(run)
    ended = subprocess.run(m3b_command("resume", run, "-q"), env=env, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "failed: Enough." in ended.stdout
    check_left(run, "failed")
