from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.isolation.sandbox import bundle
from m3b.isolation.sandbox.environment import bootstrap_command
from m3b.isolation.sandbox.guard import disk, seccomp, syscalls, tree
from m3b.isolation.sandbox.guard.cleanup import remove_private_folder
from m3b.isolation.sandbox.guard.job import SeccompPolicy
from m3b.isolation.sandbox.guard.output import CappedOutput
from m3b.isolation.sandbox.landlock import list_paths_without


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 60))
def test_output_is_whole_or_head_and_tail(pieces: list[bytes], size: int) -> None:
    everything, half = b"".join(pieces), max(1, size // 2)
    with tempfile.TemporaryFile() as file:
        output = CappedOutput(file.fileno(), size)
        for piece in pieces:
            output.append(piece)
        output.flush()
        file.seek(0)
        content = file.read()
    if len(everything) <= 2 * half:
        assert content == everything
    else:
        left_out = len(everything) - 2 * half
        note = f"\n[... {left_out} bytes of output left out ...]\n".encode()
        assert content == everything[:half] + note + everything[-half:]


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=15), st.integers(0, 2**22))
def test_stat_lines_with_any_name(name: str, parent: int) -> None:
    fields = ["S", str(parent), "7", "1", "0", "-1", *["0"] * 11, "5", "0", "99", "1000", "3"]
    process_stat = tree.ProcessStat(f"123 ({name}) " + " ".join(fields) + "\n")
    assert (process_stat.parent, process_stat.state, process_stat.group, process_stat.threads) == (parent, "S", 7, 5)
    assert process_stat.resident == 3 * os.sysconf("SC_PAGE_SIZE")


def test_this_process_is_in_the_tree_of_its_parent() -> None:
    assert os.getpid() in tree.list_descendants(os.getppid())
    assert tree.count_user_threads(os.getuid()) >= 1
    assert tree.count_machine_threads() >= 1


def run_filter(program: list[seccomp.Instruction], number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """A small interpreter of the instructions that the filter uses."""
    given_or_0 = list(enumerate((*arguments, 0, 0, 0, 0)))
    words = {0: number, 4: arch} | {16 + 8 * i: value & 0xFFFFFFFF for i, value in given_or_0}
    words |= {20 + 8 * i: value >> 32 for i, value in given_or_0}
    at = accumulator = 0
    while True:
        code, yes, no, constant = program[at]
        at += 1
        if code == 0x06:
            return constant
        if code == 0x20:
            accumulator = words[constant]
        else:
            if code == 0x54:
                accumulator &= constant
                continue
            hit = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: bool(accumulator & constant)}[
                code
            ]
            at += yes if hit else no


ALLOW, DENY, FAKE, KILL = 0x7FFF0000, 0x00050001, 0x00050000, 0x80000000
ABSENT, UNSUPPORTED = FAKE | 38, FAKE | 95


MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def asker(machine: str, **calls: Any) -> Callable[..., int]:
    """`ask(name, *arguments)`: what the filter answers to one call."""
    settings = {"families": [int(socket.AF_UNIX)], "shares_host": False, "connects": True, **calls}
    program = seccomp.build_filter(SeccompPolicy(**settings), machine)  # type: ignore[typeddict-item]
    column, arch = MACHINES[machine]
    system_calls = {
        **syscalls.DENIED_CALLS,
        **syscalls.METADATA_CALLS,
        **syscalls.NAME_CALLS,
        **syscalls.CONNECTING_CALLS,
        **syscalls.EXAMINED_CALLS,
    }

    def ask(name: str | int, *arguments: int) -> int:
        number = name if isinstance(name, int) else system_calls[name][column]
        return ALLOW if number is None else run_filter(program, number, arch, arguments)

    return ask


def calls_of(table: dict[str, tuple[int | None, int | None]], machine: str) -> list[str]:
    return [name for name, numbers in table.items() if numbers[MACHINES[machine][0]] is not None]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("shares_host", [False, True])
def test_the_filter_answers_as_meant(machine: str, shares_host: bool) -> None:
    ask = asker(machine, shares_host=shares_host)
    assert {ask(n) for n in calls_of(syscalls.DENIED_CALLS, machine)} == {DENY}
    assert {ask(n) for n in calls_of(syscalls.METADATA_CALLS, machine)} == {FAKE if shares_host else ALLOW}
    assert {ask(n) for n in calls_of(syscalls.NAME_CALLS, machine)} == {UNSUPPORTED if shares_host else ALLOW}
    assert {ask(n) for n in calls_of(syscalls.CONNECTING_CALLS, machine)} == {ALLOW}
    assert ask("socket", int(socket.AF_UNIX), 1) == ALLOW
    assert ask("socket", int(socket.AF_UNIX), 1 | socket.SOCK_CLOEXEC) == ALLOW
    assert ask("socket", int(socket.AF_UNIX), 2) == (DENY if shares_host else ALLOW)
    assert ask("socket", int(socket.AF_INET)) == DENY
    assert ask("socketpair", int(socket.AF_UNIX), 1) == ALLOW
    assert ask("socketpair", int(socket.AF_UNIX), 2 | socket.SOCK_NONBLOCK) == (DENY if shares_host else ALLOW)
    assert ask("socketpair", 30, 1) == DENY  # AF_TIPC
    assert ask("clone", 0x11) == ALLOW
    assert ask("clone", 0x10000011) == DENY
    assert ask("clone3") == ask("openat2") == ABSENT
    assert ask("ioctl", 0, 0x5412) == DENY
    assert ask("ioctl", 0, 0x5413) == ALLOW
    changing = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40806685, 0x800C6613, 0x4008941A)
    assert {ask("ioctl", 3, request) for request in changing} == {DENY}, (
        "flags, version, verity, encryption, subvolumes"
    )
    looking = (0x80086601, 0x80087601, 0xC020660B, 0x40049409, 0x4020940D, 0x541B)
    assert {ask("ioctl", 3, request) for request in looking} == {ALLOW}
    assert [ask("fcntl", 3, command) for command in (1024, 1026, 1, 2, 1030)] == [DENY, DENY, ALLOW, ALLOW, ALLOW]
    assert ask({"x86_64": 1, "aarch64": 64}[machine]) == ALLOW  # write
    if machine == "x86_64":
        assert ask(0x40000000 | 1) == ABSENT


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_a_command_alone(machine: str) -> None:
    ask = asker(machine, families=[], shares_host=True, connects=False)
    assert {ask(n) for n in calls_of(syscalls.CONNECTING_CALLS, machine)} == {DENY}
    assert ask("socket", int(socket.AF_UNIX), 1) == DENY
    assert ask("socketpair", int(socket.AF_UNIX), 1) == ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_that_name_other_processes(machine: str) -> None:
    ask, free = asker(machine, shares_host=True), asker(machine)
    assert ask("prlimit64", 0, 7, 0x1234) == ALLOW
    assert ask("prlimit64", 99, 7, 0) == ALLOW  # reading only
    assert ask("prlimit64", 99, 7, 0x1234) == DENY
    assert ask("prlimit64", 99, 7, 0x7_0000_0000) == DENY  # a pointer whose low word is 0
    assert free("prlimit64", 99, 7, 0x1234) == ALLOW
    for name in ("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity", "migrate_pages"):
        assert (ask(name, 0), ask(name, 99), free(name, 99)) == (ALLOW, DENY, ALLOW)
    assert [ask("setpriority", *a) for a in ((0, 0), (0, 99), (1, 0), (2, 0))] == [ALLOW, DENY, DENY, DENY]
    assert [ask("ioprio_set", *a) for a in ((1, 0), (1, 99), (2, 0), (3, 0))] == [ALLOW, DENY, DENY, DENY]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@given(mode=st.integers(0, 0o7777), flags=st.integers(0, 2**23))
def test_no_file_gets_a_set_user_bit(machine: str, mode: int, flags: int) -> None:
    ask = asker(machine)
    lends = bool(mode & 0o6000)
    assert ask("fchmod", 3, mode) == ask("fchmodat", 3, 0, mode) == (FAKE if lends else ALLOW)
    assert ask("mknodat", 3, 0, mode) == (DENY if lends else ALLOW)
    creates = bool(flags & os.O_CREAT or flags & 0x400000)
    assert ask("openat", 3, 0, flags, mode) == (DENY if lends and creates else ALLOW)
    if machine == "x86_64":
        assert ask("open", 0, flags, mode) == ask("openat", 3, 0, flags, mode)
        assert ask("creat", 0, mode) == (DENY if lends else ALLOW)


def test_calls_of_other_machines_end_the_process() -> None:
    program = seccomp.build_filter(SeccompPolicy(families=[], shares_host=False, connects=True), "x86_64")
    assert run_filter(program, 1, 0x40000003) == KILL  # 32-bit calls


def test_the_tables_hold_no_number_twice() -> None:
    tables = (
        syscalls.DENIED_CALLS,
        syscalls.METADATA_CALLS,
        syscalls.NAME_CALLS,
        syscalls.CONNECTING_CALLS,
        syscalls.EXAMINED_CALLS,
    )
    for column in (0, 1):
        entries = {(name, n[column]) for table in tables for name, n in table.items() if n[column] is not None}
        assert len(entries) == len({number for _, number in entries})


def total(folder: Path) -> int:
    return [step for step in disk.count_usage([str(folder)]) if step is not None][-1].size


def test_disk_count_follows_no_links_and_counts_hard_links_once(tmp_path: Path) -> None:
    folder, linked_folder = tmp_path / "inside", tmp_path / "outside"
    folder.mkdir()
    linked_folder.mkdir()
    (linked_folder / "large").write_bytes(b"x" * 500_000)
    (folder / "file").write_bytes(b"x" * 100_000)
    before = total(folder)
    (folder / "link").symlink_to(linked_folder)
    os.link(folder / "file", folder / "again")
    assert 100_000 <= before <= total(folder) < 250_000


def test_growth_counts_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * 3_000_000)
    growth = disk.Growth([str(tmp_path), str(tmp_path / "missing")], 2_000_000, 100)
    assert growth.step(0) == ""
    (tmp_path / "new").write_bytes(b"x" * 1_500_000)
    growth._next_count_at = 0.0
    assert growth.step(0) == ""
    growth._next_count_at = 0.0
    assert growth.step(1_000_000) == "disk"


def test_growth_counts_files_folders_and_links(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"old{number}").touch()
    growth = disk.Growth([str(tmp_path)], 10**9, 30)
    for number in range(10):
        (tmp_path / f"file{number}").touch()
        (tmp_path / f"folder{number}").mkdir()
        (tmp_path / f"link{number}").symlink_to("old1")
    growth._next_count_at = 0.0
    assert growth.step(0) == ""
    (tmp_path / "one more").touch()
    growth._next_count_at = 0.0
    assert growth.step(0) == "files"


def test_cleanup_removes_what_is_closed_and_follows_no_link(tmp_path: Path) -> None:
    linked_folder, private_folder = tmp_path / "kept", tmp_path / "gone"
    linked_folder.mkdir()
    (linked_folder / "file").write_text("x")
    (private_folder / "a" / "b").mkdir(parents=True)
    (private_folder / "link").symlink_to(linked_folder)
    (private_folder / "a").chmod(0)
    private_folder.chmod(0o500)
    tmp_path.chmod(0o755)
    for folder in (str(private_folder), str(private_folder), str(private_folder) + "/", ""):
        remove_private_folder(folder)
    assert not private_folder.exists()
    assert tmp_path.stat().st_mode & 0o777 == 0o755  # the folder around it stays as it is
    assert (linked_folder / "file").read_text() == "x"


names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)


@given(st.lists(names, max_size=8), st.lists(names, max_size=3))
def test_what_is_left_without_the_hidden_paths(files: list[list[str]], hidden: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for parts in files:
            (root / "/".join(parts)).mkdir(parents=True, exist_ok=True)
        away = [root / "/".join(parts) for parts in hidden]
        visible_paths = list_paths_without(root, away)
        for path in (root / "/".join(parts) for parts in files):
            covered = any(path.is_relative_to(r) for r in visible_paths)
            is_hidden = any(path.is_relative_to(h) for h in away)
            holds_hidden = any(h.is_relative_to(path) for h in away)
            assert covered == (not is_hidden and not holds_hidden)


def test_the_guards_start_without_what_takes_long_to_import() -> None:
    *python, code = bootstrap_command("supervisor")
    loaded = code.replace("sys.exit(supervisor.main(sys.argv[1:]))", "from guard import launcher; print(*sys.modules)")
    ran = subprocess.run(
        [*python, loaded], capture_output=True, text=True, check=True, pass_fds=(bundle.bundle_descriptor(),)
    )
    modules = set(ran.stdout.split())
    assert {"guard.supervisor", "guard.reaper", "guard.launcher"} <= modules
    assert not modules & {"signal", "enum", "subprocess", "json", "re", "pathlib", "typing", "guard.seccomp"}


def test_the_code_of_the_guards_cannot_be_changed_by_whoever_holds_it() -> None:
    code = bundle.bundle_descriptor()
    before = os.pread(code, 64, 0)
    again = os.open(f"/proc/self/fd/{code}", os.O_RDWR)
    try:
        for change in (lambda: os.pwrite(again, b"x", 0), lambda: os.ftruncate(again, 0)):
            with pytest.raises(PermissionError):
                change()
    finally:
        os.close(again)
    assert os.pread(code, 64, 0) == before
    assert not os.get_inheritable(code)
