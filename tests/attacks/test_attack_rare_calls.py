"""Ways out that few programs use: leases, signals by descriptor, rare ioctls, memory as a program, limits, planted files."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from m3b.isolation.sandbox import Limits
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox
from sandbox_kit import ATTEMPT, attack


def open_attempts(output: str) -> list[str]:
    return [line[5:] for line in output.splitlines() if line.startswith("OPEN")]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Another program of the same user, in a session of its own."""
    line = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(300)"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]


def test_a_signal_sent_by_a_descriptor(confined: Any, bystander: subprocess.Popen[bytes]) -> None:
    """F_SETOWN and F_SETSIG make the kernel send any signal to any process when a descriptor is ready."""
    output = attack(
        confined,
        f"""
import fcntl, signal, socket, struct, time
def by_descriptor(kind):
    for number in (signal.SIGKILL, signal.SIGSTOP):
        one, two = socket.socketpair() if kind == "socket" else (os.fdopen(n, "r+b", 0, closefd=False) for n in os.openpty())
        fcntl.fcntl(one, fcntl.F_SETOWN, {bystander.pid})
        fcntl.fcntl(one, 10, int(number))  # F_SETSIG
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        two.write(b"x") if kind != "socket" else two.send(b"x")
        time.sleep(0.2)
attempt("nothing", lambda: 1 / 0)
attempt("SIGIO by a socket", lambda: by_descriptor("socket"))
attempt("SIGIO by a terminal", lambda: by_descriptor("terminal"))
attempt("SIGIO to the group", lambda: fcntl.fcntl(socket.socketpair()[0], fcntl.F_SETOWN, -{bystander.pid}))
attempt("SIGURG", lambda: fcntl.ioctl(socket.socketpair()[0], 0x8901, struct.pack("i", {bystander.pid})))  # FIOSETOWN
""",
    )
    assert "SIGIO by a socket" in output
    assert bystander.poll() is None, "it lives"
    assert state_of(bystander.pid) in "SR", "and was not stopped"


def test_signals_to_everybody(confined: Any, bystander: subprocess.Popen[bytes]) -> None:
    """kill(-1) reaches whatever may be signalled: nobody but the script's own."""
    end, output = confined.run(
        ATTEMPT
        + f"""
import signal
for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM):
    attempt(f"everybody {{number}}", lambda: os.kill(-1, number))
attempt("the bystander's group", lambda: os.killpg({bystander.pid}, signal.SIGSTOP))
attempt("tgkill", lambda: call(234 if x86 else 131, {bystander.pid}, {bystander.pid}, 19))
attempt("rt_tgsigqueueinfo", lambda: call(297 if x86 else 240, {bystander.pid}, {bystander.pid}, 19, ctypes.create_string_buffer(128)))
print("tried all")
""",
        Limits(wall_s=60),
    )
    print(output)
    assert "tried all" in output
    assert (end.code, end.reason) == (0, "exit"), output
    assert [attempt for attempt in open_attempts(output) if not attempt.startswith("everybody")] == []
    assert bystander.poll() is None
    assert state_of(bystander.pid) in "SR"


def test_the_guard_is_not_stopped(confined: Any) -> None:
    """A stopped supervisor would let a script run past its limits."""
    end, output = confined.run(
        ATTEMPT
        + """
import signal, time
attempt("parent", lambda: os.kill(os.getppid(), signal.SIGSTOP) if os.getppid() > 1 else 1 / 0)
attempt("group", lambda: signal.signal(signal.SIGTSTP, signal.SIG_IGN) and None or os.killpg(os.getppid(), signal.SIGSTOP))
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        attempt("stop " + name, lambda: os.kill(int(name), signal.SIGSTOP))
print("tried", flush=True)
while True: time.sleep(1)
""",
        Limits(wall_s=3),
    )
    assert "tried" in output
    assert end.reason == "wall_time", end


@pytest.mark.parametrize("kind", ["F_RDLCK", "F_WRLCK"])
def test_a_lease_on_data_does_not_hold_up_its_owner(confined: Any, kind: str) -> None:
    """Who holds a lease makes every other program wait for 45 seconds where it opens the file."""
    process = confined.start(
        f"""
import fcntl, os, time
try:
    file = os.open("data/image.txt", os.O_RDONLY)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.{kind})
    print("OPEN lease", flush=True)
except OSError as error:
    print("stopped lease", error, flush=True)
time.sleep(60)
""",
        Limits(wall_s=60),
    )
    while not (confined.output.exists() and "lease" in confined.output.read_text()):
        assert process.wait(0.05) is None
    try:
        descriptor = os.open(confined.data / "image.txt", os.O_RDWR | os.O_NONBLOCK)  # a lease would answer EWOULDBLOCK
        os.close(descriptor)
        lease_error = ""
    except BlockingIOError as error:
        lease_error = str(error)
    process.stop()
    assert not lease_error
    assert "OPEN" not in confined.output.read_text()


def test_read_only_data_by_rare_ways(confined: Any) -> None:
    image = confined.data / "image.txt"
    before = (image.stat().st_mtime_ns, image.stat().st_mode, image.stat().st_nlink)
    output = attack(
        confined,
        """
import fcntl, mmap
path = os.path.realpath("data/image.txt")
reading = lambda: os.open(path, os.O_RDONLY)
attempt("truncating while opened to read", lambda: os.open(path, os.O_RDONLY | os.O_TRUNC))
attempt("write through a shared map", lambda: mmap.mmap(os.open(path, os.O_RDWR), 0))
attempt("protect a private map", lambda: mmap.mmap(reading(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE))
attempt("punch a hole", lambda: call(285 if x86 else 47, reading(), 3, 0, 4))
attempt("a hard link into work", lambda: os.link(path, "mine") or open("mine", "w"))
attempt("by its descriptor's name", lambda: open(f"/proc/self/fd/{reading()}", "r+"))
attempt("an unnamed file beside it", lambda: os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR))
attempt("exchange with mine", lambda: open("own", "w").close() or call(316 if x86 else 276, -100, path.encode(), -100, b"own", 2))
attempt("clone into it", lambda: fcntl.ioctl(reading(), 0x40049409, os.open("own", os.O_RDWR)))
attempt("flags", lambda: fcntl.ioctl(reading(), 0x40086602, b"\\x40" + b"\\0" * 7))
attempt("version", lambda: fcntl.ioctl(reading(), 0x40087602, b"\\x07" + b"\\0" * 7))
attempt("fs-verity", lambda: fcntl.ioctl(reading(), 0x40806685, b"\\1\\0\\0\\0\\1\\0\\0\\0\\0\\x10" + b"\\0" * 118))
attempt("encryption", lambda: fcntl.ioctl(os.open(os.path.dirname(path), os.O_RDONLY), 0x800C6613, b"\\0" * 12))
attempt("another's swap file", lambda: call(167 if x86 else 224, path.encode(), 0))
attempt("a file system in it", lambda: call(165 if x86 else 40, path.encode(), b"own", b"ext4", 0, None))
attempt("accounting", lambda: call(163 if x86 else 89, path.encode()))
attempt("quota", lambda: call(179 if x86 else 60, 0x800002, path.encode(), 0, None))
attempt("a new root for its descriptor", lambda: os.fchdir(reading()))
""",
    )
    assert open_attempts(output) == []
    assert (image.stat().st_mtime_ns, image.stat().st_mode, image.stat().st_nlink) == before
    assert image.read_text() == "pixels"
    assert os.listxattr(image) == []
    flags = bytearray(8)
    try:
        with image.open() as file:
            fcntl.ioctl(file, 0x80086601, flags)  # FS_IOC_GETFLAGS
    except OSError as error:  # a file system without flags
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP):
            raise
    assert not flags[0] & 0x40, "no flag was set"


def test_a_program_that_lies_in_memory_is_confined_too(confined: Any) -> None:
    """execveat of a memfd leaves no file, and keeps filter, rules and namespaces."""
    output = attack(
        confined,
        f"""
import subprocess, sys
inner = {ATTEMPT!r} + '''
attempt("secret", lambda: open({str(confined.secret)!r}).read())
attempt("bpf", lambda: call(321 if x86 else 280, 5, ctypes.create_string_buffer(72), 72))
attempt("unshare", lambda: call(272 if x86 else 97, 0x10000000))
attempt("parent", lambda: open("/proc/{os.getpid()}/environ").read())
'''
program = os.memfd_create("program", 0)
os.write(program, b"#!" + os.path.realpath(sys.executable).encode() + b"\\n" + inner.encode())
print(subprocess.run([f"/proc/self/fd/{{program}}"], pass_fds=[program], capture_output=True, text=True).stdout)
empty = ctypes.create_string_buffer(1)
lines = (ctypes.c_char_p * 2)(b"program", None)
if os.fork() == 0:
    call(322 if x86 else 281, program, empty, lines, (ctypes.c_char_p * 1)(None), 0x1000)
    os._exit(1)
os.wait()
""",
    )
    assert open_attempts(output) == []
    assert output.count("stopped secret") >= 1
    assert "the-secret-key" not in output


def test_limits_and_traits_are_not_raised(confined: Any) -> None:
    output = attack(
        confined,
        """
import resource
for name in ("AS", "NPROC", "NOFILE", "FSIZE", "CORE", "MEMLOCK", "RTPRIO", "NICE", "MSGQUEUE", "SIGPENDING"):
    which = getattr(resource, "RLIMIT_" + name, {"RTPRIO": 14, "NICE": 13, "MSGQUEUE": 12, "SIGPENDING": 11}.get(name))
    soft, hard = resource.getrlimit(which)
    most = resource.RLIM_INFINITY
    attempt("raise " + name, lambda: resource.setrlimit(which, (most, most)) if hard != most else 1 / 0)
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("round robin", lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(99)))
deadline = (ctypes.c_uint32 * 14)(56, 6, 0, 0, 0, 0, 9000000, 0, 10000000, 0, 10000000, 0, 0, 0)
attempt("deadline", lambda: call(314 if x86 else 274, 0, deadline, 0))
attempt("nice below zero", lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1))
attempt("real-time disk", lambda: call(251 if x86 else 30, 1, 0, 1 << 13))
attempt("spared by the out-of-memory killer", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"))
attempt("new privileges", lambda: call(157 if x86 else 167, 38, 0, 0, 0, 0))
attempt("no filter", lambda: call(157 if x86 else 167, 22, 0, None, 0, 0))
attempt("capabilities", lambda: call(157 if x86 else 167, 47, 2, 21, 0, 0))
every = (ctypes.c_uint32 * 6)(*[2**32 - 1] * 6)
attempt("every capability", lambda: call(126 if x86 else 91, (ctypes.c_uint32 * 2)(0x20080522, 0), every))
attempt("security bits", lambda: call(157 if x86 else 167, 28, 0x2F, 0, 0, 0))
attempt("a fast clock", lambda: call(159 if x86 else 171, (ctypes.c_int64 * 26)(2, 0, 100)))
attempt("time of day", lambda: call(164 if x86 else 170, (ctypes.c_int64 * 2)(1, 1), None))
""",
    )
    assert open_attempts(output) == []


def test_switches_of_the_kernel_and_of_others(confined: Any, bystander: subprocess.Popen[bytes]) -> None:
    files = [
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/yama/ptrace_scope",
        "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel/sysrq", "/proc/sys/vm/overcommit_memory",
        "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/protected_hardlinks", "/proc/sys/user/max_user_namespaces",
        "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
        "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/cgroup.kill",
        "/sys/kernel/debug/x", "/sys/kernel/tracing/trace_on", "/sys/fs/bpf/x", "/dev/userfaultfd", "/dev/cpu_dma_latency",
        *(f"/proc/{bystander.pid}/{name}" for name in
          ("mem", "autogroup", "oom_score_adj", "timerslack_ns", "coredump_filter", "clear_refs", "comm", "attr/current", "task")),
    ]  # fmt: skip
    tries = "".join(f"attempt({name!r}, lambda: os.close(os.open({name!r}, os.O_WRONLY)))\n" for name in files)
    for name, text in (("uid_map", b"0 0 1"), ("gid_map", b"0 0 1"), ("setgroups", b"allow"), ("attr/current", b"x")):
        tries += f"attempt('own {name}', lambda: os.write(os.open('/proc/self/{name}', os.O_WRONLY), {text!r}))\n"
    output = attack(confined, tries)
    assert open_attempts(output) == []


def test_what_one_command_leaves_in_the_kernel(confined: Any) -> None:
    """Queues, segments and keys outlive their process; the next command must not find them."""
    script = """
attempt("SysV memory", lambda: call(29 if x86 else 194, 0x6D3363, 4096, 0o1600))
attempt("SysV queue", lambda: call(68 if x86 else 186, 0x6D3363, 0o1600))
attempt("SysV semaphores", lambda: call(64 if x86 else 190, 0x6D3363, 1, 0o1600))
attempt("POSIX queue", lambda: call(240 if x86 else 180, b"m3b", 0o102, 0o600, None))
attempt("session keyring", lambda: call(250 if x86 else 219, 1, b"m3b"))
attempt("user keyring", lambda: call(250 if x86 else 219, 0, -4, 1))
attempt("persistent keyring", lambda: call(250 if x86 else 219, 22, -1, -2))
attempt("a key of another", lambda: call(249 if x86 else 218, b"user", b"m3b", None, -3))
"""
    assert open_attempts(attack(confined, script)) == []
    assert not any(
        "m3b" in Path(file).read_text() for file in ("/proc/sysvipc/shm", "/proc/sysvipc/msg") if Path(file).exists()
    )


FAMILIES = {"AX25": 3, "X25": 9, "KEY": 15, "PPPOX": 24, "IB": 27, "CAN": 29, "RXRPC": 33, "PHONET": 35, "CAIF": 37, "NFC": 39,
            "VSOCK": 40, "KCM": 41, "QIPCRTR": 42, "SMC": 43, "XDP": 44, "MCTP": 45}  # fmt: skip


def test_rare_families_and_protocols(confined: Any) -> None:
    """The kernel loads a module for some of them: code that hardly anybody has looked at."""
    output = attack(
        confined,
        "import socket\n"
        + "".join(
            f"attempt('AF_{name} {kind}', lambda: socket.socket({number}, {kind}))\n"
            for name, number in FAMILIES.items()
            for kind in (1, 2, 3, 5)
        )
        + "".join(
            f"attempt('{name}', lambda: socket.socket(socket.AF_INET, {kind}, {protocol}))\n"
            for name, kind, protocol in (("raw", 3, 255), ("ICMP", 3, 1), ("packet in INET", 10, 3))
        ),
    )
    assert open_attempts(output) == []


def test_nobody_escapes_by_a_reaper_of_its_own(confined: Any) -> None:
    """A subreaper collects orphans in the guard's place; its daemons still end with the command."""
    mark = f"reaped-{os.getpid()}-{confined.sandbox.name}"
    end, output = confined.run(
        f"""
import ctypes, os, signal, subprocess, sys
libc = ctypes.CDLL(None)
if os.fork() == 0:
    os.setsid()
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    libc.prctl(1, 0, 0, 0, 0)   # PR_SET_PDEATHSIG: none
    libc.prctl(4, 0, 0, 0, 0)   # not dumpable: /proc shows less of it
    for number in (1, 2, 15, 18): signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)  # {mark}"])
        os._exit(0)
    import time; time.sleep(300)
print("left")
"""
    )
    assert "left" in output
    assert end.code == 0
    assert not confined.survivors(mark)


PLANTED = (
    "numpy",
    "PIL",
    "nibabel",
    "pydicom",
    "json",
    "sitecustomize",
    "usercustomize",
    "encodings",
    "m3b",
    "re",
    "os",
)


def test_planted_modules_reach_neither_reader_nor_guard(confined: Any) -> None:
    """The reader and the guards start where they like; modules, start files and settings in work/ are not theirs."""
    for name in PLANTED:
        (confined.work / f"{name}.py").write_text(
            f"import os; open({str(confined.work / 'ran')!r}, 'a').write('{name} ')\n"
        )
    (confined.work / "start.pth").write_text(f"import os; open({str(confined.work / 'ran')!r}, 'a').write('pth')\n")
    (confined.work / "pyvenv.cfg").write_text("home = /nowhere\n")
    (confined.work / "__pycache__").mkdir()
    Image.new("L", (9, 9)).save(confined.work / "a.png")
    before = os.getcwd()
    os.chdir(confined.work)  # as where somebody starts m3b in a work folder by mistake
    try:
        with Toolbox(Roots(confined.work, {}), sandbox=confined.sandbox, logs=confined.root / "logs") as box:
            preview = box.call(ToolCall("1", "preview_files", {"paths": ["a.png"]}), tuple(TOOLS)).text
            ran = box.call(ToolCall("2", "run_script", {"command": "true"}), tuple(TOOLS)).text
    finally:
        os.chdir(before)
    assert "width 9" in preview
    assert "Exit code 0" in ran
    assert not (confined.work / "ran").exists()


def test_a_scripts_environment_is_m3bs_alone(confined: Any) -> None:
    """What loaders and interpreters take from the environment, set around m3b or planted by a script, is not passed on."""
    planted = confined.work / "evil.so"
    planted.write_bytes(b"\x7fELF")
    names = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "PYTHONSTARTUP", "PYTHONINSPECT", "BASH_ENV", "PERL5LIB",
             "GCONV_PATH", "LOCPATH", "MALLOC_CHECK_", "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY")  # fmt: skip
    keep = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(planted) for name in names if name not in ("LD_PRELOAD", "LD_AUDIT")})
    try:
        end, output = confined.run("import os; print(sorted(os.environ)); print(open('/proc/self/environ').read())")
    finally:
        for name, value in keep.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    assert end.code == 0, output
    assert [name for name in names if name in output] == []


def test_no_descriptor_leads_out(confined: Any) -> None:
    """Whatever m3b has open stays with m3b: a folder's descriptor would be a way around every rule."""
    folder = os.open(confined.secret.parent, os.O_RDONLY)
    os.set_inheritable(folder, True)
    try:
        output = attack(
            confined,
            """
for number in range(3, 1024):
    try: os.fstat(number)
    except OSError: continue
    attempt(f"descriptor {number}", lambda: os.open("key.txt", os.O_RDONLY, dir_fd=number))
attempt("none", lambda: 1 / 0)
""",
        )
    finally:
        os.close(folder)
    assert open_attempts(output) == []


def test_watching_others_is_refused(confined: Any, bystander: subprocess.Popen[bytes]) -> None:
    secret = os.fsencode(confined.secret.parent)
    output = attack(
        confined,
        f"""
import fcntl
pid = {bystander.pid}
attempt("robust list", lambda: call(274 if x86 else 100, pid, ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)))
attempt("dnotify", lambda: fcntl.fcntl(os.open({secret!r}, os.O_RDONLY), fcntl.F_NOTIFY, 1))
attempt("fanotify", lambda: call(300 if x86 else 262, 0x200, 0))
attempt("perf of another", lambda: call(298 if x86 else 241, ctypes.create_string_buffer(128), pid, -1, -1, 0))
attempt("its stack", lambda: open(f"/proc/{{pid}}/stack").read())
attempt("its calls", lambda: open(f"/proc/{{pid}}/syscall").read())
attempt("its maps", lambda: open(f"/proc/{{pid}}/maps").read())
attempt("its page table", lambda: open(f"/proc/{{pid}}/pagemap", "rb").read(8))
attempt("its descriptors", lambda: os.listdir(f"/proc/{{pid}}/fd"))
attempt("its mapped files", lambda: os.listdir(f"/proc/{{pid}}/map_files"))
attempt("its folder", lambda: os.listdir(f"/proc/{{pid}}/cwd/"))
attempt("its namespaces", lambda: os.open(f"/proc/{{pid}}/ns/net", os.O_RDONLY))
attempt("the kernel's symbols", lambda: 1 / 0 if not int(open("/proc/kallsyms").readline().split()[0], 16) else "shown")
attempt("the kernel's memory", lambda: open("/proc/kcore", "rb").read(8))
for name in ("kpageflags", "kpagecount", "slabinfo", "vmallocinfo"):
    attempt("memory of the machine: " + name, lambda: open("/proc/" + name, "rb").read(8) or 1 / 0)
attempt("who is logged in", lambda: open("/var/run/utmp", "rb").read(8))
attempt("its exit", lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG))
attempt("release its memory", lambda: call(448, call(434, pid, 0), 0))
""",
    )
    # Landlock knows no rule for a part of /proc: rows of docs/sandbox.md
    landlock = ("its descriptors", *(("memory of the machine",) if os.getuid() == 0 else ()))
    allowed = () if confined.sandbox.name == "bubblewrap" else landlock
    assert [attempt for attempt in open_attempts(output) if not attempt.startswith(allowed)] == []


def test_time_is_up_even_if_the_script_stops_itself(confined: Any) -> None:
    """A stopped tree uses no processor time; the wall clock goes on."""
    began = time.monotonic()
    end, _ = confined.run(
        "import os, signal\nif os.fork() == 0: os.setsid()\nos.kill(os.getpid(), signal.SIGSTOP)", Limits(wall_s=3)
    )
    assert end.reason == "wall_time", end
    assert time.monotonic() - began < 90
