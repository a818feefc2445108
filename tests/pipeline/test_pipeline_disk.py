"""A full disk: said in words, nothing torn, and the run goes on once there is room."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, check_left, journal, m3b_command, make_spots, plugin

SHORT_RUN = ("--llm", "rules", "--steps", "20", "--folds", "1", "--json")

AGAIN = """
def again(messages, tools):
    if 'exported' in messages[-1].text:
        return say('Done.')
    # so many words that they do not fit into what is left of the journal's last page
    return combine_calls(script(TRAIN), text='Let us train. ' * 500)
"""
FILL = f"{AGAIN}\nacts = play(model=[script('yes > big.bin'), again])"
FILL_ALL = (
    AGAIN
    + """
def fill():  # once: whether this very reply still fits into the journal's last page hangs on the length of the paths in it
    try:
        with open({once!r}, 'x'), open({file!r}, 'wb', buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
    except OSError:
        pass
    return call('list_files', path='.')

acts = play(model=[lambda m, t: fill(), again])
"""
)


def small_disk(tmp_path: Path, megabytes: int, script: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a mount namespace of its own, where `tmp_path/disk` is a small file system.

    What the script leaves in `disk/run` is copied to `tmp_path/kept`.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small file system here")
    disk, copy_folder = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={megabytes}m none {disk}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this machine refuses a private mount namespace")
    namespace_script = f"{mount} || exit 99\n{script}\ncp -a {disk}/run {copy_folder}\n"
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", namespace_script],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )


def m3b(*arguments: object) -> str:
    return shlex.join(m3b_command(*arguments))


@pytest.mark.slow
def test_a_script_that_fills_the_disk(tmp_path: Path, halfway_run: Path) -> None:
    """The script is ended, the run as well, in words; without the large file it goes on."""
    env = plugin(tmp_path / "plugin", FILL)
    run = tmp_path / "disk" / "run"
    resume = m3b("resume", run, "--llm", "played:x", "--json")
    steps = [
        f"cp -a {halfway_run} {run}",
        f"{resume} > first.json; echo $? > first.rc",
        f"rm -f {run}/work/big.bin; {resume} > second.json; echo $? > second.rc",
    ]
    ended = small_disk(tmp_path, 14, "\n".join(steps), env)
    assert "Traceback" not in ended.stderr, ended.stderr
    first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("first", "second"))
    if first["status"] == "failed":  # it was quicker than the watch over it, and not even the journal had room
        assert "No space left" in first["reason"]
        assert f"m3b resume {run}" in first["reason"]
        assert (tmp_path / "first.rc").read_text().strip() == "1"
    assert second["status"] == "completed"
    assert (tmp_path / "second.rc").read_text().strip() == "0"
    tool_results = [
        e["data"] for e in journal(tmp_path / "kept") if e["kind"] == "result" and e["role"] == "model_trainer"
    ]
    assert not any("lost" in e["text"] for e in tool_results), "that the disk is full is no riddle"


NO_ROOM = """
import os

def train(messages, tools):
    if 'exported' in messages[-1].text:
        return say('Done.')
    if messages[-1].role == 'tool' and not os.path.exists({room!r}):
        return say('I am done.')
    return script(TRAIN if os.path.exists({room!r}) else 'cat /dev/zero > big.bin')

acts = play(model=[train])
"""


@pytest.mark.slow
def test_tries_on_a_full_disk_are_given_back(tmp_path: Path, halfway_run: Path) -> None:
    run, room = tmp_path / "disk" / "run", tmp_path / "room"
    env = plugin(tmp_path / "plugin", NO_ROOM.format(room=str(room)))
    resume = m3b("resume", run, "--llm", "played:x", "--json")
    steps = [
        f"cp -a {halfway_run} {run}",
        f"{resume} > first.json",
        f"rm -f {run}/work/big.bin; touch {room}; {resume} > second.json",
    ]
    ended = small_disk(tmp_path, 14, "\n".join(steps), env)
    assert "Traceback" not in ended.stderr, ended.stderr
    first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("first", "second"))
    assert (first["status"], second["status"]) == ("failed", "completed"), second["reason"]
    assert second["roles"]["model_trainer"]["iterations"] == 0


@pytest.mark.slow
def test_a_disk_that_is_full_while_the_model_is_asked(tmp_path: Path, halfway_run: Path) -> None:
    """Somebody else fills it to the last byte: no event is torn, and the run goes on once there is room."""
    disk = tmp_path / "disk"
    run = disk / "run"
    env = plugin(tmp_path / "plugin", FILL_ALL.format(file=str(disk / "other.bin"), once=str(tmp_path / "filled")))
    resume = m3b("resume", run, "--llm", "played:x", "--json")
    steps = [
        f"cp -a {halfway_run} {run}",
        f"{resume} > first.json 2> first.err; echo $? > first.rc; cp {run}/journal.jsonl {run}/run.json .",
        f"{resume} > full.json 2> full.err; echo $? > full.rc",
        f"rm {disk}/other.bin; {resume} > second.json 2> second.err; echo $? > second.rc",
    ]
    small_disk(tmp_path, 10, "\n".join(steps), env)
    for name in ("first.err", "full.err", "second.err"):
        assert "Traceback" not in (tmp_path / name).read_text()
    codes = [(tmp_path / f"{name}.rc").read_text().strip() for name in ("first", "full", "second")]
    assert codes == ["1", "1", "0"], (tmp_path / "second.json").read_text()
    first = json.loads((tmp_path / "first.json").read_text())
    assert first["status"] == "failed"
    assert "No space left" in first["reason"]
    assert "Make room on the disk" in first["reason"]
    assert f"m3b resume {run}" in first["reason"]
    assert len(journal(tmp_path)) > 10, "whole lines only, though the last may not have fitted"
    assert json.loads((tmp_path / "run.json").read_text())["status"] in ("working", "failed")
    assert "No space left" in json.loads((tmp_path / "full.json").read_text())["reason"]
    assert json.loads((tmp_path / "second.json").read_text())["status"] == "completed"
    assert journal(tmp_path / "kept")[-1]["data"]["status"] == "completed"


def test_a_disk_that_is_full_from_the_start(tmp_path: Path, spots: Path) -> None:
    env = plugin(tmp_path / "plugin", "acts = play()")
    run = tmp_path / "disk" / "run"
    start = m3b("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", run)
    full = f"head -c 10M /dev/zero > {tmp_path}/disk/other.bin 2>/dev/null"
    ended = small_disk(tmp_path, 1, f"{full}; {start}; echo $? > rc; mkdir -p {run}", env)
    assert (tmp_path / "rc").read_text().strip() in ("1", "2")
    assert "Traceback" not in ended.stderr, ended.stderr
    assert "No space left" in ended.stderr + ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [1, 2, 3, 4])
def test_a_disk_that_becomes_full_is_the_reason_and_the_first_step(tmp_path: Path, spots: Path, megabytes: int) -> None:
    """Whatever the run does at that moment: it makes the view of the training cases, or plans."""
    run = tmp_path / "disk" / "run"
    start = m3b("run", REQUEST, "--llm", "rules", "--data", spots, "--out", run, "--train-minutes", "0.2")
    script = f"{start} > out.txt 2> err.txt; echo $? > rc; mkdir -p {run}"
    small_disk(tmp_path, megabytes, script, {**os.environ})
    assert (tmp_path / "rc").read_text().strip() == "1"
    output = (tmp_path / "out.txt").read_text() + (tmp_path / "err.txt").read_text()
    assert "Traceback" not in output
    assert output.count(f"m3b resume {run}") >= 2, "in the reason and as the next step"
    assert "--llm PROVIDER" not in output


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a run with room for everything, in a fixed number of steps."""
    folder = tmp_path_factory.mktemp("undisturbed")
    start = m3b_command("run", REQUEST, *SHORT_RUN, "--data", make_spots(folder / "spots"), "--out", folder / "run")
    completed = subprocess.run(start, cwd=folder, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(completed.stdout)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", range(1000, 6000, 500))
def test_a_run_goes_on_to_the_same_result_once_there_is_room(
    tmp_path: Path, undisturbed: dict[str, Any], kilobytes: int
) -> None:
    data, disk = make_spots(tmp_path / "spots"), tmp_path / "disk"
    start = m3b("run", REQUEST, *SHORT_RUN, "--data", data, "--out", disk / "run")
    resume = m3b("resume", disk / "run", "--json")
    script = (
        f"mount -o remount,size={kilobytes}k {disk} && {start} > first.json 2> first.txt; echo $? > first.rc\n"
        f"mount -o remount,size=200m {disk} && if test -f {disk}/run/run.json; then {resume}; else {start}; fi > second.json"
    )
    small_disk(tmp_path, 200, script, {**os.environ})
    assert "Traceback" not in (tmp_path / "first.txt").read_text()
    result = json.loads((tmp_path / "second.json").read_text())
    assert (result["status"], result["primary"]) == (undisturbed["status"], undisturbed["primary"])
    assert result["metrics"] == undisturbed["metrics"]


def limited(size: int, command: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command none of whose files may grow beyond `size` bytes."""
    limits = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))"
    start = f"import resource, os, sys; {limits}; os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", start, *shlex.split(command)]
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True)


def test_files_too_small_for_the_sandbox(tmp_path: Path, spots: Path) -> None:
    env = plugin(tmp_path / "plugin", "acts = play()")
    command = m3b("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", tmp_path / "run")
    ended = limited(16 << 10, command, env, tmp_path)
    assert ended.returncode == 2
    assert "File too large" in ended.stderr
    assert "`ulimit -f`" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_files_of_limited_size(tmp_path: Path, spots: Path) -> None:
    """The same without a file system of one's own: no file of m3b's may grow beyond 128 KiB, as little as its sandbox needs."""
    env = plugin(tmp_path / "plugin", "acts = play(module=[llm_error(LLMError, 'Enough. ' * 20_000)])")
    run = tmp_path / "run"
    command = m3b("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", run, "--json")
    ended = limited(128 << 10, command, env, tmp_path)
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
