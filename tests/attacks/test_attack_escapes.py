"""Ways out of a sandbox that need no flaw: paths, races, /proc, system calls, devices, bombs, and files left for others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from m3b.cli.output import echo, make_console, print_error
from m3b.isolation.sandbox import Limits
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox
from sandbox_kit import ATTEMPT, attack


def open_attempts(output: str) -> list[str]:
    return [line[5:] for line in output.splitlines() if line.startswith("OPEN")]


def test_paths_that_lead_around(confined: Any) -> None:
    secret = str(confined.secret)
    output = attack(
        confined,
        f"""
secret = {secret!r}
inside = os.open(".", os.O_RDONLY)
attempt("far up", lambda: open("../" * 40 + secret.lstrip("/")).read())
attempt("through /proc/self/cwd", lambda: open("/proc/self/cwd/../secret/key.txt").read())
attempt("through the task", lambda: open(f"/proc/self/task/{{os.getpid()}}/root" + secret).read())
attempt("through thread-self", lambda: open("/proc/thread-self/root" + secret).read())
attempt("through the first process", lambda: open("/proc/1/root" + secret).read())
attempt("through the parent", lambda: open(f"/proc/{{os.getppid()}}/cwd/../secret/key.txt").read())
attempt("m3b's folder", lambda: open("/proc/{os.getpid()}/cwd/../secret/key.txt").read())
attempt("m3b's root", lambda: open("/proc/{os.getpid()}/root" + secret).read())
attempt("m3b's descriptors", lambda: [os.readlink(f"/proc/{os.getpid()}/fd/{{n}}") for n in (0, 1, 2)])
attempt("relative to a descriptor", lambda: os.open("../secret/key.txt", os.O_RDONLY, dir_fd=inside))
attempt("by openat2", lambda: call(437, inside, b"../secret/key.txt", (ctypes.c_uint64 * 3)(0, 0, 0), 24))
attempt("as a path alone, opened anew", lambda: open(f"/proc/self/fd/{{os.open(secret, os.O_PATH)}}").read())
attempt("a link of links", lambda: (os.symlink("..", "up"), os.symlink("up/secret", "side"), open("side/key.txt").read()))
attempt("a hard link by descriptor", lambda: os.link(secret, "stolen", follow_symlinks=True) or open("stolen").read())
attempt("exchange with renameat2", lambda: call(316 if x86 else 276, -100, secret.encode(), -100, b"mine", 2))
attempt("run it", lambda: os.execv(secret, ["x"]))
attempt("map it", lambda: __import__("mmap").mmap(os.open(secret, os.O_RDONLY), 0))
attempt("send it", lambda: os.sendfile(1, os.open(secret, os.O_RDONLY), 0, 100))
attempt("copy a range", lambda: os.copy_file_range(os.open(secret, os.O_RDONLY), os.open("c", os.O_CREAT | os.O_WRONLY), 9))
attempt("a loader of libraries", lambda: ctypes.CDLL(secret))
attempt("change into it", lambda: os.chdir(os.path.dirname(secret)) or open("key.txt").read())
""",
    )
    assert open_attempts(output) == []
    assert "the-secret-key" not in output
    assert confined.secret.read_text() == "the-secret-key"


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with what people keep in theirs."""
    home = tmp_path_factory.mktemp("home")
    for name in HOME:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("the-users-key")
    return home


HOME = (
    ".ssh/id_ed25519", ".netrc", ".env", ".aws/credentials", ".config/gcloud/application_default_credentials.json",
    ".kube/config", ".docker/config.json", ".git-credentials", ".pypirc", ".huggingface/token", ".bash_history",
    ".config/anthropic/key", ".gnupg/secring.gpg", ".mozilla/firefox/logins.json", ".local/share/keyrings/login.keyring",
)  # fmt: skip


def test_keys_in_a_home(confined: Any, home: Path) -> None:
    tries = "".join(f"attempt({name!r}, lambda: open({str(home / name)!r}).read())\n" for name in HOME)
    writes = "".join(
        f"attempt('write {name}', lambda: open({str(home / name)!r}, 'a').write('x'))\n"
        for name in (".bashrc", ".profile", ".ssh/authorized_keys", ".config/autostart/x.desktop")
    )
    output = attack(confined, tries + writes)
    assert open_attempts(output) == []
    assert "the-users-key" not in output
    assert {str(p.relative_to(home)) for p in home.rglob("*") if p.is_file()} == set(HOME)


OUTSIDE_PATHS = (
    "/etc/passwd", "/etc/cron.d/m3b", "/etc/ld.so.preload", "/usr/bin/m3b-planted", "/var/spool/cron/root",
    "/root/planted", "/home/planted", "/opt/planted", "/boot/planted", "/sys/kernel/mm/ksm/run", "/proc/sys/vm/drop_caches",
    "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/self/uid_map",
)  # fmt: skip


def test_writes_outside(confined: Any) -> None:
    """What a sandbox shows of these paths may be its own; the machine's stay as they are."""
    before = [
        Path(name).stat().st_mtime_ns if name.startswith("/etc") and os.path.exists(name) else None
        for name in OUTSIDE_PATHS
    ]
    tries = "".join(f"attempt({name!r}, lambda: open({name!r}, 'a').write('0'))\n" for name in OUTSIDE_PATHS)
    site = str(Path(json.__file__).parent)
    source = str(Path(sys.modules["m3b"].__file__ or "").parent)
    tries += f"attempt('standard library', lambda: open({site!r} + '/planted.py', 'w'))\n"
    tries += f"attempt('m3b itself', lambda: open({source!r} + '/planted.py', 'w'))\n"
    tries += "attempt('interpreter', lambda: open(__import__('sys').executable, 'ab'))\n"
    output = attack(confined, tries)
    # its own score may be raised, which makes it the first that the kernel ends; and where m3b's code lies below /tmp,
    # the folder that is written to is bubblewrap's private one: nothing of it is on the machine, see below
    assert [
        name for name in open_attempts(output) if not name.startswith(("/proc/self/oom_score_adj", "m3b itself"))
    ] == []
    assert [
        Path(name).stat().st_mtime_ns if name.startswith("/etc") and os.path.exists(name) else None
        for name in OUTSIDE_PATHS
    ] == before
    assert not [
        name for name in OUTSIDE_PATHS if "planted" in name and os.path.exists(name)
    ]  # False where it may not be looked
    assert not Path(site, "planted.py").exists()
    assert not Path(source, "planted.py").exists()


def test_calls_that_reach_the_kernel_or_others(confined: Any) -> None:
    output = attack(
        confined,
        f"""
pid, buffer = {os.getpid()}, ctypes.create_string_buffer(256)
attempt("read another's memory", lambda: call(310 if x86 else 270, pid, buffer, 1, buffer, 1, 0))
attempt("write another's memory", lambda: call(311 if x86 else 271, pid, buffer, 1, buffer, 1, 0))
attempt("attach to another", lambda: call(101 if x86 else 117, 16, pid, 0, 0))
attempt("seize another", lambda: call(101 if x86 else 117, 0x4206, pid, 0, 0))
attempt("compare with another", lambda: call(312 if x86 else 272, pid, os.getpid(), 0, 0, 0))
attempt("advise another's memory", lambda: call(440, call(434, pid, 0), buffer, 1, 4, 0))
attempt("io_uring", lambda: call(425, 8, buffer))
attempt("io_uring enter", lambda: call(426, 0, 1, 0, 0, None, 0))
attempt("bpf", lambda: call(321 if x86 else 280, 5, buffer, 72))
attempt("perf", lambda: call(298 if x86 else 241, buffer, 0, -1, -1, 0))
attempt("userfaultfd", lambda: call(323 if x86 else 282, 1))
attempt("add a key", lambda: call(248 if x86 else 217, b"user", b"m3b", b"x", 1, -3))
attempt("unshare users", lambda: call(272 if x86 else 97, 0x10000000))
attempt("unshare mounts", lambda: call(272 if x86 else 97, 0x00020000))
attempt("unshare network", lambda: call(272 if x86 else 97, 0x40000000))
attempt("clone3", lambda: call(435, (ctypes.c_uint64 * 8)(0x10000000), 64))
attempt("enter a namespace", lambda: call(308 if x86 else 268, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))
attempt("chroot", lambda: os.chroot("."))
attempt("pivot root", lambda: call(155 if x86 else 41, b".", b"."))
attempt("bind mount", lambda: call(165 if x86 else 40, b"/", b".", None, 4096, None))
attempt("unmount", lambda: call(166 if x86 else 39, b"/proc", 2))
attempt("new mounts: open_tree", lambda: call(428, -100, b"/", 1))
attempt("new mounts: fsopen", lambda: call(430, b"tmpfs", 0))
attempt("load a module", lambda: call(175 if x86 else 105, buffer, 1, b""))
attempt("reboot", lambda: call(169 if x86 else 142, 0, 0, 0, None))
attempt("set the clock", lambda: __import__("time").clock_settime(0, 0))
attempt("read the kernel's log", lambda: call(103 if x86 else 116, 3, buffer, 100))
attempt("open by handle", lambda: call(304 if x86 else 265, -100, buffer, 0))
attempt("watch the file system", lambda: call(300 if x86 else 262, 0, 0))
attempt("secret memory", lambda: call(447, 0))
attempt("swap", lambda: call(167 if x86 else 224, b"x", 0))
attempt("become root", lambda: os.setuid(0) if os.getuid() else os.setuid(1))
attempt("become a group", lambda: os.setgroups([0]))
attempt("name the host", lambda: __import__("socket").sethostname("owned"))
attempt("type into the terminal", lambda: __import__("fcntl").ioctl(0, 0x5412, b"x"))
attempt("raw ports", lambda: call(172 if x86 else 999, 3))
""",
    )
    # a user id or a group that only exists inside the sandbox's own user namespace is no way out
    assert [name for name in open_attempts(output) if not name.startswith(("become a group",))] == []


DEVICES = (
    "mem kmem port sda nvme0n1 vda kvm fuse loop-control mapper/control net/tun vhost-net uinput input/event0 tty1 console "
    "kmsg rtc0 video0 snd/controlC0 cpu/0/msr vfio/vfio"
)


def test_devices(confined: Any) -> None:
    """Disks, memory, terminals and device managers; GPU nodes are passed through on purpose."""
    tries = "".join(f"attempt('/dev/{name}', lambda: os.open('/dev/{name}', os.O_RDWR))\n" for name in DEVICES.split())
    tries += "".join(
        f"attempt('make {kind:o}', lambda: os.mknod('node{kind:o}', {kind | 0o666}, os.makedev(1, 1)))\n"
        for kind in (0o060000, 0o020000)
    )
    output = attack(confined, tries)
    # a console of bubblewrap's own is its pseudo terminal
    assert [name for name in open_attempts(output) if not name.startswith("/dev/console")] == []


def test_a_race_of_renames_against_reading_tools(confined: Any) -> None:
    """A script turns a file of work/ into a link to the secret and back as fast as it can, while m3b's tools read it."""
    process = confined.start(
        f"""
import os
open("real.txt", "w").write("harmless")
os.symlink({str(confined.secret)!r}, "link.txt")
print("racing", flush=True)
os.rename("real.txt", "a.txt"); os.rename("link.txt", "b.txt")
while True:
    libc = __import__("ctypes").CDLL(None)
    libc.renameat2(-100, b"a.txt", -100, b"b.txt", 2)
""",
        Limits(wall_s=60),
    )
    while "racing" not in (confined.output.read_text() if confined.output.exists() else ""):
        assert process.wait(0.05) is None
    box = Toolbox(Roots(confined.work, {}), sandbox=confined.sandbox, logs=confined.root / "logs")
    texts = []
    for _ in range(150):
        for tool, arguments in (
            ("read_files", {"paths": ["a.txt", "b.txt"]}),
            ("preview_files", {"paths": ["a.txt"]}),
            ("copy_files", {"source": "a.txt", "destination": "copy.txt"}),
        ):
            texts.append(box.call(ToolCall("1", tool, arguments), tuple(TOOLS)).text)
    process.stop()
    box.close()
    assert "the-secret-key" not in "\n".join(texts)
    copy = confined.work / "copy.txt"
    assert not copy.exists() or copy.read_text() == "harmless"
    assert "harmless" in "\n".join(texts), "the race was really on"


ENDLESS = {
    "forks": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n",
        Limits(wall_s=40, processes=60),
    ),
    "threads": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()\n",
        Limits(wall_s=40, processes=60),
    ),
    "memory": ("a = []\nwhile True: a.append(bytearray(2**24))\n", Limits(wall_s=40, memory_mib=256)),
    "memory without a name": (
        "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, bytes(2**24))\n",
        Limits(wall_s=40, memory_mib=256),
    ),
    "disk": ("f = open('big', 'wb')\nwhile True: f.write(bytes(2**22)); f.flush()\n", Limits(wall_s=40, disk_mib=64)),
    "deleted files": (
        "import os\nk = []\nwhile True:\n    f = open('x', 'wb'); os.unlink('x'); f.write(bytes(2**22)); f.flush(); k.append(f)\n",
        Limits(wall_s=40, disk_mib=64),
    ),
    "time": ("while True: pass\n", Limits(wall_s=2)),
    "sleep, deaf to signals": (
        "import signal, time\nfor s in (1, 2, 3, 10, 12, 13, 14, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(999)\n",
        Limits(wall_s=2),
    ),
}


@pytest.mark.parametrize("bomb", ENDLESS)
def test_bombs_end_within_their_limit(confined: Any, bomb: str) -> None:
    source, limits = ENDLESS[bomb]
    end, _ = confined.run(source, limits)
    assert end.code != 0, "it was ended, or refused what it wanted"
    assert not confined.survivors(str(confined.work))


def test_daemons_of_every_kind_end_with_the_command(confined: Any) -> None:
    mark = f"daemon-{os.getpid()}-{confined.sandbox.name}"
    sleeper = f"import time; time.sleep(300)  # {mark}"
    end, output = confined.run(
        f"""
import os, subprocess, sys, signal
line = [sys.executable, "-c", {sleeper!r}]
subprocess.Popen(line, start_new_session=True)
subprocess.Popen(["nohup", *line], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
subprocess.Popen(line, preexec_fn=os.setsid, close_fds=True)
subprocess.Popen(line, preexec_fn=lambda: [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, line)
    os._exit(0)
print("left")
"""
    )
    assert "left" in output, output
    assert end.code == 0
    assert not confined.survivors(mark)


@pytest.fixture
def toolbox(confined: Any) -> Iterator[Toolbox]:
    box = Toolbox(Roots(confined.work, {}), sandbox=confined.sandbox, logs=confined.root / "logs")
    yield box
    box.close()


def ask(box: Toolbox, tool: str, **arguments: Any) -> str:
    return box.call(ToolCall("1", tool, arguments), tuple(TOOLS)).text


PICKLES = {
    "pickle": "pickle.dump(Evil(), open('evil.pkl', 'wb'))",
    "torch zip": "import torch; torch.save(Evil(), 'evil.pt')",
    "object array": "import numpy as np; np.save('evil.npy', np.array([Evil()], dtype=object), allow_pickle=True)",
    "object archive": "import numpy as np; np.savez('evil.npz', a=np.array([Evil()], dtype=object))",
    "pickle called json": "pickle.dump(Evil(), open('evil.json', 'wb'))",
    "pickle called image": "pickle.dump(Evil(), open('evil.png', 'wb'))",
    "joblib": "import joblib; joblib.dump(Evil(), 'evil.joblib')",
}


@pytest.mark.parametrize("kind", PICKLES)
def test_pickles_that_a_script_left(confined: Any, toolbox: Toolbox, tmp_path: Path, kind: str) -> None:
    """They run code where they are loaded; m3b's process looks at them and loads none."""
    if "torch" in kind:
        pytest.importorskip("torch")
    mark = tmp_path / "executed"
    end, output = confined.run(
        "import os, pickle\nclass Evil:\n    def __reduce__(self):\n"
        f"        return os.system, ('touch {mark}',)\n{PICKLES[kind]}\n"
    )
    if end.code and "joblib" in kind:
        pytest.skip("joblib is not installed")
    assert end.code == 0, output
    for file in confined.work.glob("evil.*"):
        for tool in ("preview_files", "read_files"):
            assert ask(toolbox, tool, paths=[file.name])
    assert not mark.exists()


def test_archives_with_paths_that_lead_out(confined: Any, toolbox: Toolbox) -> None:
    with zipfile.ZipFile(confined.work / "slip.zip", "w") as file:
        for name in ("../slipped.txt", "/tmp/slipped.txt", "a/../../slipped.txt", "..\\slipped.txt"):
            file.writestr(name, "x")
    assert "slipped" in ask(toolbox, "preview_files", paths=["slip.zip"])
    confined.run("import zipfile; zipfile.ZipFile('slip.zip').extractall('.')")
    assert not (confined.root / "slipped.txt").exists()
    assert not Path("/tmp/slipped.txt").exists()


CODES = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;b3duZWQ=\x07\x9b31m\x08\x0d\u202e"


def test_escape_codes_command_no_terminal(confined: Any, toolbox: Toolbox, capsys: pytest.CaptureFixture[str]) -> None:
    """In the output of scripts, in contents and in names: what a person is shown spells them out."""
    (confined.work / "codes.txt").write_text(CODES)
    (confined.work / "\x1b[31mred.txt").write_text("x")
    output = ask(toolbox, "run_script", command="cat codes.txt")
    assert "\x1b" not in output, "progress bars are made plain for the model too"
    for text in (output, ask(toolbox, "read_files", paths=["codes.txt"]), ask(toolbox, "list_files")):
        echo(text)
        make_console().print(text, markup=False)
    print_error(OSError(2, "not there", "\x1b[31mred.txt"))
    printed = "".join(capsys.readouterr())
    assert "\\x1b[31mred.txt" in printed
    assert not set(CODES.replace("\r", "")) & set(printed) - set("]0;owned[2J52;c;b3duZWQ=31m")


def test_modules_that_a_script_plants_are_not_imported(confined: Any) -> None:
    """m3b, started in the work folder by mistake, takes its own modules and none that lie there."""
    names = ("json", "m3b", "sitecustomize", "usercustomize", "numpy", "typer", "encodings")
    end, output = confined.run(
        "".join(f"open('{name}.py', 'w').write('import os; os.system(\"touch planted\")')\n" for name in names)
    )
    assert end.code == 0, output
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = Path(sys.executable).with_name("m3b")
    if not program.exists():
        pytest.skip("m3b's command is not installed beside this interpreter")
    subprocess.run([str(program), "--version"], cwd=confined.work, env=clean, check=True, capture_output=True)
    assert not (confined.work / "planted").exists()


def test_leftovers_in_shared_places(confined: Any) -> None:
    """What one command leaves there the next one must not find; under Landlock /dev/shm is shared, which the docs say."""
    mark = f"m3b-left-{os.getpid()}"
    places = ["/tmp", "/var/tmp", "/run", "/dev/mqueue", "/run/lock", "/var/lock"]
    write = "".join(f"attempt({p!r}, lambda: open({p!r} + '/{mark}', 'w').write('x'))\n" for p in places)
    confined.run(ATTEMPT + write)
    output = attack(confined, "".join(f"attempt({p!r}, lambda: open({p!r} + '/{mark}').read())\n" for p in places))
    assert open_attempts(output) == []
    assert not [p for p in places if Path(p, mark).exists()]
