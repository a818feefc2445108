from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.sandbox.guard import disk, seccomp, tree
from m3b.sandbox.guard.cleanup import remove
from m3b.sandbox.guard.output import Output
from m3b.sandbox.landlock import without


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 60))
def test_output_is_whole_or_head_and_tail(pieces: list[bytes], size: int) -> None:
    everything, half = b"".join(pieces), max(1, size // 2)
    with tempfile.TemporaryFile() as file:
        output = Output(file.fileno(), size)
        for piece in pieces:
            output.add(piece)
        output.flush()
        file.seek(0)
        written = file.read()
    if len(everything) <= 2 * half:
        assert written == everything
    else:
        left_out = len(everything) - 2 * half
        note = f"\n[... {left_out} bytes of output left out ...]\n".encode()
        assert written == everything[:half] + note + everything[-half:]


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=15), st.integers(0, 2**22))
def test_stat_lines_with_any_name(name: str, parent: int) -> None:
    fields = ["S", str(parent), "7", "1", "0", "-1", *["0"] * 11, "5", "0", "99", "1000", "3"]
    found = tree.Stat(f"123 ({name}) " + " ".join(fields) + "\n")
    assert (found.parent, found.state, found.group, found.threads) == (parent, "S", 7, 5)
    assert found.resident == 3 * os.sysconf("SC_PAGE_SIZE")


def test_this_process_is_in_the_tree_of_its_parent() -> None:
    assert os.getpid() in tree.below(os.getppid())
    assert tree.threads_of(os.getuid()) >= 1
    assert tree.threads_everywhere() >= 1


def run_filter(program: list[seccomp.Instruction], number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """A small interpreter of the instructions that the filter uses."""
    words = {0: number, 4: arch} | {16 + 8 * i: value & 0xFFFFFFFF for i, value in enumerate((*arguments, 0, 0))}
    at = held = 0
    while True:
        code, yes, no, constant = program[at]
        at += 1
        if code == 0x06:
            return constant
        if code == 0x20:
            held = words[constant]
        else:
            hit = {0x15: held == constant, 0x35: held >= constant, 0x45: bool(held & constant)}[code]
            at += yes if hit else no


ALLOW, DENY, FAKE, KILL = 0x7FFF0000, 0x00050001, 0x00050000, 0x80000000


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("fake", [False, True])
def test_the_filter_answers_as_meant(machine: str, fake: bool) -> None:
    families = [int(socket.AF_UNIX)]
    program = seccomp.build(families, fake, machine)
    column, arch = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}[machine]
    from m3b.sandbox.guard.syscalls import DENIED, EXAMINED, METADATA

    def ask(number: int | None, *arguments: int) -> int:
        assert number is not None
        return run_filter(program, number, arch, arguments)

    assert {ask(n[column]) for n in DENIED.values() if n[column] is not None} == {DENY}
    assert {ask(n[column]) for n in METADATA.values() if n[column] is not None} == {FAKE if fake else ALLOW}
    assert ask(EXAMINED["socket"][column], int(socket.AF_UNIX)) == ALLOW
    assert ask(EXAMINED["socket"][column], int(socket.AF_INET)) == DENY
    assert ask(EXAMINED["clone"][column], 0x11) == ALLOW
    assert ask(EXAMINED["clone"][column], 0x10000011) == DENY
    assert ask(EXAMINED["clone3"][column]) == 0x00050000 | 38
    assert ask(EXAMINED["ioctl"][column], 0, 0x5412) == DENY
    assert ask(EXAMINED["ioctl"][column], 0, 0x5413) == ALLOW
    assert ask({"x86_64": 1, "aarch64": 64}[machine]) == ALLOW  # write
    assert run_filter(program, 1, 0x40000003) == KILL  # 32-bit calls
    if machine == "x86_64":
        assert ask(0x40000000 | 1) == 0x00050000 | 38


def test_the_tables_hold_no_number_twice() -> None:
    from m3b.sandbox.guard.syscalls import DENIED, EXAMINED, METADATA

    for column in (0, 1):
        numbers = [n[column] for t in (DENIED, METADATA, EXAMINED) for n in t.values() if n[column] is not None]
        assert len(numbers) == len(set(numbers))


def total(folder: Path) -> int:
    return [step for step in disk.count([str(folder)]) if step is not None][-1]


def test_disk_count_follows_no_links_and_counts_hard_links_once(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 500_000)
    (inside / "file").write_bytes(b"x" * 100_000)
    before = total(inside)
    (inside / "link").symlink_to(outside)
    os.link(inside / "file", inside / "again")
    assert 100_000 <= before <= total(inside) < 250_000


def test_growth_counts_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * 3_000_000)
    growth = disk.Growth([str(tmp_path), str(tmp_path / "missing")], 2_000_000)
    assert not growth.step(0)
    (tmp_path / "new").write_bytes(b"x" * 1_500_000)
    growth._next = 0.0
    assert not growth.step(0)
    growth._next = 0.0
    assert growth.step(1_000_000)


def test_cleanup_removes_what_is_closed_and_follows_no_link(tmp_path: Path) -> None:
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.mkdir()
    (kept / "file").write_text("x")
    (gone / "a" / "b").mkdir(parents=True)
    (gone / "link").symlink_to(kept)
    (gone / "a").chmod(0)
    gone.chmod(0o500)
    tmp_path.chmod(0o755)
    for folder in (str(gone), str(gone), str(gone) + "/", ""):
        remove(folder)
    assert not gone.exists()
    assert tmp_path.stat().st_mode & 0o777 == 0o755  # the folder around it stays as it is
    assert (kept / "file").read_text() == "x"


names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)


@given(st.lists(names, max_size=8), st.lists(names, max_size=3))
def test_what_is_left_without_the_hidden_paths(files: list[list[str]], hidden: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for parts in files:
            (root / "/".join(parts)).mkdir(parents=True, exist_ok=True)
        away = [root / "/".join(parts) for parts in hidden]
        rest = without(root, away)
        for path in (root / "/".join(parts) for parts in files):
            covered = any(path.is_relative_to(r) for r in rest)
            is_hidden = any(path.is_relative_to(h) for h in away)
            holds_hidden = any(h.is_relative_to(path) for h in away)
            assert covered == (not is_hidden and not holds_hidden)
