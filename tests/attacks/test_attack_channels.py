"""Ways by which a script could talk to another: sockets, shared memory, queues, files left behind."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from m3b.isolation.sandbox import Limits
from sandbox_kit import ATTEMPT, attack

ALONE = Limits(wall_s=60, isolated=True)


@pytest.fixture
def shared_memory() -> Any:
    file = Path(f"/dev/shm/m3b-attack-{os.getpid()}")
    file.write_text("the-labels")
    yield file
    file.unlink(missing_ok=True)


def test_no_family_of_sockets_but_the_own(confined: Any) -> None:
    families = [
        "AF_INET",
        "AF_INET6",
        "AF_NETLINK",
        "AF_PACKET",
        "AF_VSOCK",
        "AF_ALG",
        "AF_CAN",
        "AF_BLUETOOTH",
        "AF_TIPC",
    ]
    script = "import socket\n" + "".join(
        f"attempt({name!r}, lambda: socket.socket(socket.{name}, socket.SOCK_RAW if {name!r} in ('AF_NETLINK', "
        f"'AF_PACKET') else socket.SOCK_SEQPACKET if {name!r} == 'AF_ALG' else socket.SOCK_STREAM).fileno())\n"
        for name in families
        if hasattr(socket, name)
    )
    output = attack(confined, script)
    open_families = {line.split()[1] for line in output.splitlines() if line.startswith("OPEN")}
    # bubblewrap: a network of its own with nothing but a loopback, which distributed training needs
    assert open_families <= ({"AF_INET", "AF_INET6", "AF_NETLINK"} if confined.sandbox.name == "bubblewrap" else set())
    open_families = {
        line.split()[1] for line in attack(confined, script, ALONE).splitlines() if line.startswith("OPEN")
    }
    assert open_families == set(), "a command alone has none at all"


def test_a_command_alone_talks_to_nobody(confined: Any, shared_memory: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "door")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(path)
        os.chmod(path, 0o777)
        server.listen()
        abstract.bind(f"\0m3b-attack-{os.getpid()}")
        abstract.listen()
        output = attack(
            confined,
            f"""
import socket, mmap
def door(kind, address):
    with socket.socket(socket.AF_UNIX, kind) as mine:
        mine.connect(address)
def pair(address):
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", address)
attempt("path", lambda: door(socket.SOCK_STREAM, {path!r}))
attempt("abstract", lambda: door(socket.SOCK_STREAM, chr(0) + "m3b-attack-{os.getpid()}"))
attempt("datagram", lambda: door(socket.SOCK_DGRAM, {path!r}))
attempt("syslog", lambda: pair("/dev/log"))
attempt("shared memory", lambda: open({str(shared_memory)!r}).read())
attempt("its names", lambda: {shared_memory.name!r} in os.listdir("/dev/shm") or 1 / 0)
attempt("SysV memory", lambda: call(29 if x86 else 194, 0x6d3362, 4096, 0o1600))
attempt("SysV queue", lambda: call(68 if x86 else 186, 0x6d3362, 0o1600))
attempt("SysV semaphores", lambda: call(64 if x86 else 190, 0x6d3362, 1, 0o1600))
attempt("POSIX queue", lambda: call(240 if x86 else 180, b"m3b", 0o102, 0o600, None))
""",
            ALONE,
        )
    assert "OPEN" not in output
    assert "the-labels" not in output


def test_a_command_alone_leaves_nothing_for_the_next(confined: Any) -> None:
    """What one run of predict.py learnt must not reach another."""
    mark = f"left-{os.getpid()}"
    write = f"""
for place in ("/tmp", "/dev/shm", "/var/tmp", "/run", os.environ["TMPDIR"], "/run/user/0", "/"):
    attempt(place, lambda: open(place + "/{mark}", "w").write("learnt"))
attempt("none", lambda: 1 / 0)
"""
    attack(confined, write, ALONE)
    output = attack(
        confined,
        f"""
for place in ("/tmp", "/dev/shm", "/var/tmp", "/run", os.environ["TMPDIR"], "/run/user/0", "/"):
    attempt(place, lambda: open(place + "/{mark}").read())
""",
        ALONE,
    )
    assert "OPEN" not in output
    assert not Path("/dev/shm", mark).exists()


def test_a_pair_of_its_own_still_works(confined: Any) -> None:
    """Data loaders talk to their workers by such pairs and by pipes."""
    script = """
import socket, subprocess, sys
one, two = socket.socketpair()
one.sendall(b"hello"); assert two.recv(5) == b"hello"
print(subprocess.run([sys.executable, "-c", "print(1 + 1)"], capture_output=True, text=True, check=True).stdout)
"""
    for limits in (None, ALONE):
        end, output = confined.run(ATTEMPT + script, limits)
        assert end.code == 0, output


def test_datagrams_to_a_path_are_closed_beside_others(make_bench: Any, tmp_path: Path) -> None:
    """A connection is not needed for them: the syslog and a service manager listen to such sockets."""
    bench = make_bench("landlock")
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.settimeout(0.5)
        output = attack(
            bench,
            f"""
import socket
attempt("datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", {path!r}))
attempt("of a pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", {path!r}))
""",
        )
        with pytest.raises(TimeoutError):
            server.recv(10)
    assert "OPEN" not in output


def test_names_and_attributes_outside_are_not_watched(confined: Any) -> None:
    secret = str(confined.secret)
    os.setxattr(secret, "user.m3b", b"attribute")
    output = attack(
        confined,
        f"""
attempt("attribute", lambda: os.getxattr({secret!r}, "user.m3b"))
attempt("attributes", lambda: os.listxattr({secret!r}) or 1 / 0)
attempt("watch", lambda: call(254 if x86 else 27, call(294 if x86 else 26, 0), {os.fsencode(confined.secret.parent)!r}, 0x100))
attempt("handle", lambda: call(303 if x86 else 264, -100, {os.fsencode(secret)!r}, ctypes.create_string_buffer(128),
                               ctypes.create_string_buffer(4), 0))
attempt("mount", lambda: call(165 if x86 else 40, b"none", b"/tmp", b"tmpfs", 0, None))
attempt("mounts", lambda: call(458, ctypes.create_string_buffer(64), ctypes.create_string_buffer(64), 1, 0))
""",
    )
    assert "OPEN" not in output


def test_copies_with_attributes_still_work(confined: Any) -> None:
    end, output = confined.run(
        "import os, shutil; shutil.copytree('data/inner', 'copy'); shutil.copy2('data/image.txt', 'x')\n"
        "print(sorted(os.listdir('copy')))"
    )
    assert end.code == 0, output
    assert "labels.txt" in output


def test_workers_of_a_data_loader(confined: Any) -> None:
    pytest.importorskip("torch")
    script = """
import torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    seen = sum(float(b.sum()) for b in DataLoader(torch.arange(32.0), batch_size=4, num_workers=2))
    print("sum", seen)
"""
    (confined.work / "load.py").write_text(script)
    process = confined.command([sys.executable, "load.py"], limits=Limits(wall_s=110))
    end = process.wait(170)
    output = confined.output.read_text()
    assert end is not None
    assert end.code == 0, output
    assert "sum 496.0" in output
