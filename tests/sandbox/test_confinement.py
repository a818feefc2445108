"""Attacks that the confining backends must stop. Each script prints OPEN for a way out that it found."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from m3b.errors import SandboxError
from m3b.isolation.sandbox import Limits, Mounts

ATTEMPT = """
def attempt(name, action):
    try:
        result = action()
    except BaseException as error:
        print("stopped", name, type(error).__name__)
    else:
        print("OPEN", name, result)
"""


def attack(bench: Any, script: str) -> str:
    end, output = bench.run(ATTEMPT + script)
    assert end.code == 0, output
    assert "stopped" in output
    return str(output)


def test_the_key_in_the_callers_environment_is_unseen(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    end, output = bench.run("import os; print(sorted(os.environ)); print(os.environ['PATH'], os.environ['HOME'])")
    assert end.code == 0
    assert "API_KEY" not in output
    assert "HF_HUB_OFFLINE" in output


def test_environ_files_of_processes_outside_are_closed(confined: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"""
import os
for pid in (1, os.getppid(), {os.getpid()}):
    try: content = open(f"/proc/{{pid}}/environ").read()
    except OSError as error: content = "stopped"
    print(content)
attempt("memory", lambda: open("/proc/{os.getpid()}/mem").read(1))
"""
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    assert "sk-very-secret" not in attack(confined, script)


def test_the_secret_outside_cannot_be_read(confined: Any) -> None:
    secret = str(confined.secret)
    output = attack(
        confined,
        f"""
import os
attempt("plain", lambda: open({secret!r}).read())
attempt("dots", lambda: open("../secret/key.txt").read())
attempt("through proc", lambda: open("/proc/self/root" + {secret!r}).read())
os.symlink({secret!r}, "link")
attempt("symbolic link", lambda: open("link").read())
attempt("hard link", lambda: os.link({secret!r}, "hard") or open("hard").read())
attempt("list", lambda: os.listdir({str(confined.secret.parent)!r}))
attempt("home", lambda: os.listdir({os.path.expanduser("~")!r} + "/.ssh"))
attempt("shadow", lambda: open("/etc/shadow").read())
""",
    )
    assert "OPEN" not in output
    assert "the-secret-key" not in output


def test_data_can_be_read_but_never_changed(confined: Any) -> None:
    image = confined.data / "image.txt"
    before = image.stat()
    output = attack(
        confined,
        """
import os
assert open("data/image.txt").read() == "pixels"
attempt("write", lambda: open("data/image.txt", "w"))
attempt("append", lambda: open("data/image.txt", "a"))
attempt("truncate", lambda: os.truncate("data/image.txt", 0))
attempt("create", lambda: open("data/new.txt", "w"))
attempt("delete", lambda: os.unlink("data/image.txt"))
attempt("rename", lambda: os.rename("data/image.txt", "data/other.txt"))
attempt("move out", lambda: os.rename(os.path.realpath("data/image.txt"), "mine.txt"))
attempt("make folder", lambda: os.mkdir("data/folder"))
for change in (lambda: os.chmod("data/image.txt", 0o777), lambda: os.utime("data/image.txt", (1, 1)),
               lambda: os.setxattr("data/image.txt", "user.m3b", b"x")):
    try: change()
    except OSError: pass
""",
    )
    after = image.stat()
    assert "OPEN" not in output
    assert image.read_text() == "pixels"
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert os.listxattr(image) == []
    assert stat.S_ISREG(after.st_mode)


def test_the_work_folder_is_writable_but_not_its_parent(confined: Any) -> None:
    output = attack(
        confined,
        """
import os, shutil
os.makedirs("a/b"); open("a/b/file", "w").write("x"); os.rename("a/b/file", "a/moved"); shutil.copy2("a/moved", "c")
shutil.rmtree("a")
attempt("sibling", lambda: open("../sibling", "w").write("x"))
attempt("move the work folder", lambda: os.rename("../work", "../gone"))
""",
    )
    assert (confined.work / "c").read_text() == "x"
    assert not (confined.root / "sibling").exists()
    assert confined.work.is_dir()
    assert "OPEN move" not in output


def test_host_tmp_is_neither_seen_nor_kept(confined: Any) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="m3b-outside-") as host_file:
        host_file.write(b"host")
        host_file.flush()
        output = attack(
            confined,
            f"""
import os, tempfile
attempt("host file", lambda: open({host_file.name!r}).read())
with tempfile.NamedTemporaryFile(delete=False) as file: file.write(b"mine")
print("KEPT", os.environ["TMPDIR"])
""",
        )
    assert "OPEN" not in output
    private = output.split("KEPT ")[1].strip()
    assert private == "/tmp" or not Path(private).exists()


def test_private_folder_goes_whatever_its_modes(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    end, output = bench.run(
        "import os; d = os.environ['TMPDIR'] + '/x/y'; os.makedirs(d); open(d + '/z', 'w'); os.chmod(d, 0)"
    )
    assert end.code == 0, output
    assert list(place.iterdir()) == []


def test_no_network(confined: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        output = attack(
            confined,
            f"""
import socket
attempt("local", lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), timeout=2))
attempt("world", lambda: socket.create_connection(("1.1.1.1", 53), timeout=2))
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("1.1.1.1", 53))
attempt("udp", udp)
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
""",
        )
    assert "OPEN" not in output


def test_abstract_sockets_outside_are_closed(confined: Any) -> None:
    name = f"\0m3b-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        output = attack(
            confined, f"import socket\nattempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect({name!r}))"
        )
    assert "OPEN" not in output


def test_signals_and_dangerous_calls(confined: Any) -> None:
    output = attack(
        confined,
        f"""
import ctypes, os
attempt("kill the caller", lambda: os.kill({os.getpid()}, 0))
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    if libc.syscall(*map(ctypes.c_long, numbers)) < 0: raise OSError(ctypes.get_errno(), "denied")
x86 = os.uname().machine == "x86_64"
attempt("ptrace", lambda: call(101 if x86 else 117, 16, {os.getpid()}, 0, 0))
attempt("io_uring", lambda: call(425, 1, 0))
attempt("keyctl", lambda: call(250 if x86 else 219, 0, -3, 0))
attempt("shmget", lambda: call(29 if x86 else 194, 0, 4096, 0o1600))
attempt("user namespace", lambda: call(272 if x86 else 97, 0x10000000))
attempt("clone", lambda: call(56 if x86 else 220, 0x10000011, 0, 0, 0, 0))
attempt("core pattern", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("device", lambda: os.mknod("node", 0o60666, os.makedev(254, 0)))
""",
    )
    assert "OPEN" not in output


def test_no_capabilities_and_no_way_back(confined: Any) -> None:
    end, output = confined.run("print(open('/proc/self/status').read())")
    status = dict(line.split(":\t", 1) for line in output.splitlines() if ":\t" in line)
    assert end.code == 0
    assert {int(status[n], 16) for n in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_no_descriptor_of_m3b_reaches_the_command(bench: Any) -> None:
    script = (
        "import os; print(sorted((n, os.readlink(f'/proc/self/fd/{n}')) for n in os.listdir('/proc/self/fd')[:-1]))"
    )
    end, output = bench.run(script)
    assert end.code == 0, output
    assert output.count("pipe:") == 2, output
    assert str(bench.output) not in output


def test_hidden_paths_in_read_only_folders(confined: Any) -> None:
    script = """
assert open("data/image.txt").read() == "pixels"
attempt("labels", lambda: print(open("data/inner/labels.txt").read()))
"""
    for hidden in (confined.data / "inner" / "labels.txt", confined.data / "inner"):
        end, output = confined.run(ATTEMPT + script, hide=(hidden,))
        assert end.code == 0, output
        assert "the-labels" not in output
        assert "stopped" in output


def test_what_landlock_cannot_hide_is_refused(make_bench: Any) -> None:
    bench = make_bench("landlock")
    (bench.work / "test.json").write_text("[]")
    with pytest.raises(SandboxError, match="hidden inside the writable folder"):
        bench.run("pass", hide=(bench.work / "test.json",))


def test_bubblewrap_hides_inside_writable_folders(make_bench: Any) -> None:
    bench = make_bench("bubblewrap")
    (bench.work / "test.json").write_text("the-labels")
    end, output = bench.run("print(open('test.json').read())", hide=(bench.work / "test.json",))
    assert end.code == 1
    assert "the-labels" not in output


def test_paths_are_checked_before_anything_starts(bench: Any) -> None:
    with pytest.raises(SandboxError, match="does not exist"):
        bench.sandbox.start(
            ["true"], cwd=bench.work, mounts=Mounts(read=(bench.root / "nowhere",)), output=bench.output
        )
    with pytest.raises(SandboxError, match="lies in no mounted folder"):
        bench.sandbox.start(["true"], cwd=bench.root, mounts=Mounts(write=(bench.work,)), output=bench.output)
    with pytest.raises(SandboxError, match="root folder"):
        bench.sandbox.start(["true"], cwd=bench.work, mounts=Mounts(write=(Path("/"),)), output=bench.output)
    with pytest.raises(SandboxError, match="not a command line"):
        bench.command([])
    with pytest.raises(SandboxError, match="cannot write the output file"):
        bench.sandbox.start(["true"], cwd=bench.work, mounts=Mounts(write=(bench.work,)), output=bench.work)


def test_the_interpreter_of_the_environment_is_found(confined: Any) -> None:
    end, output = confined.run("import sys, numpy; print(sys.prefix, numpy.zeros(2).sum())", Limits(wall_s=60))
    assert end.code == 0, output
