"""The module through which m3b touches what a script may have made: links, pipes, sockets, bombs and deep trees."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.isolation import untrusted
from m3b.isolation.untrusted import UnsafePathError

DEEP = 1500


def deep_tree(top: Path, levels: int = DEEP) -> None:
    """Folders nested deeper than Python recurses and than a path may be long."""
    folder = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("secret")
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "sub/plain.txt").write_text("plain")
    (work / "link.txt").symlink_to(tmp_path / "outside/secret.txt")
    (work / "folder").symlink_to(tmp_path / "outside")
    (work / "zero").symlink_to("/dev/zero")
    os.mkfifo(work / "pipe")
    return work


@pytest.mark.parametrize(
    "name", ["link.txt", "folder/secret.txt", "zero", "pipe", "sub", "../outside/secret.txt", "/etc/passwd", "a\0b"]
)
def test_only_regular_files_below_the_root_are_read(work: Path, name: str) -> None:
    with pytest.raises(UnsafePathError) as caught:
        untrusted.read_bytes(work, name)
    assert "secret" not in str(caught.value.strerror)
    assert not untrusted.is_file(work, name)


def test_plain_files_are_read_and_sockets_are_not(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert untrusted.read_text(work, "sub/plain.txt") == "plain"
    assert untrusted.is_file(work, Path("sub/plain.txt"))
    assert untrusted.is_folder(work, "sub")
    assert not untrusted.is_folder(work, "folder")
    monkeypatch.chdir(work)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(UnsafePathError):
            untrusted.read_bytes(work, "socket")
    with pytest.raises(FileNotFoundError):
        untrusted.read_bytes(work, "sub/none.txt")


def test_a_sparse_terabyte_is_refused_by_its_size(work: Path) -> None:
    with (work / "huge.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UnsafePathError, match="more than"):
        untrusted.read_json(work, "huge.json")
    with pytest.raises(UnsafePathError, match="more than"):
        untrusted.copy_tree(work, "", work.parent / "copy", max_total_bytes=2**20, strict=False)


def test_deep_json_is_a_value_error(work: Path) -> None:
    (work / "deep.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="nested"):
        untrusted.read_json(work, "deep.json")


@pytest.mark.parametrize("name", ["folder/new.txt", "../new.txt", "pipe/new.txt", "folder/inner/new.txt"])
def test_nothing_is_written_outside(work: Path, name: str) -> None:
    with pytest.raises(OSError):
        untrusted.write_atomic(work, name, b"x")
    assert sorted(path.name for path in (work.parent / "outside").iterdir()) == ["secret.txt"]
    assert sorted(path.name for path in work.parent.iterdir()) == ["outside", "work"]


def test_a_link_or_pipe_in_the_place_of_a_file_is_replaced(work: Path) -> None:
    for name in ("link.txt", "pipe"):
        untrusted.write_atomic(work, name, b"new")
        assert (work / name).read_bytes() == b"new"
        assert not (work / name).is_symlink()
    assert (work.parent / "outside/secret.txt").read_text() == "secret"


def test_trees_are_copied_without_what_is_not_plain(work: Path) -> None:
    with pytest.raises(UnsafePathError):
        untrusted.copy_tree(work, "", work.parent / "strict")
    copied = untrusted.copy_tree(work, "", work.parent / "copy", strict=False)
    assert [entry.name for entry in copied] == ["sub/plain.txt"]
    assert (work.parent / "copy/sub/plain.txt").read_text() == "plain"
    assert untrusted.hash_tree(work, "sub") == untrusted.hash_tree(work.parent / "copy", "sub")


def test_deep_trees_are_refused_and_removed(work: Path) -> None:
    deep_tree(work / "sub")
    with pytest.raises(UnsafePathError, match="nested deeper"):
        list(untrusted.walk(work, "sub"))
    with pytest.raises(UnsafePathError, match="nested deeper"):
        untrusted.copy_tree(work, "sub", work.parent / "copy")
    untrusted.remove_tree(work)
    assert not work.exists()
    assert (work.parent / "outside/secret.txt").read_text() == "secret"


def test_removing_opens_what_was_closed(tmp_path: Path) -> None:
    (tmp_path / "gone/inner/more").mkdir(parents=True)
    (tmp_path / "gone/inner/more/file").write_text("x")
    for name in ("gone/inner/more", "gone/inner", "gone"):
        (tmp_path / name).chmod(0)
    untrusted.remove_tree(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_a_folder_swapped_for_a_link_is_never_written_through(tmp_path: Path) -> None:
    """A thread exchanges `work/logs` with a link to the outside as fast as it can, while m3b writes and reads."""
    outside_folder = tmp_path / "outside"
    (tmp_path / "work/logs").mkdir(parents=True)
    outside_folder.mkdir()
    (outside_folder / "secret.txt").write_text("secret")
    (tmp_path / "work/link").symlink_to(outside_folder)
    stop, logs, link = threading.Event(), bytes(tmp_path / "work/logs"), bytes(tmp_path / "work/link")
    libc = ctypes.CDLL(None)

    def swap() -> None:
        while not stop.is_set():
            libc.renameat2(-100, logs, -100, link, 2)  # AT_FDCWD, RENAME_EXCHANGE

    thread = threading.Thread(target=swap)
    thread.start()
    writes = refusals = 0
    try:
        while (writes < 20 or refusals < 20) and writes + refusals < 20_000:
            try:
                untrusted.write_atomic(tmp_path / "work", f"logs/{writes:03d}.log", b"x")
                writes += 1
                assert b"secret" not in untrusted.read_bytes(tmp_path / "work", "logs/secret.txt")
            except OSError:
                refusals += 1
    finally:
        stop.set()
        thread.join()
    assert sorted(path.name for path in outside_folder.iterdir()) == ["secret.txt"]
    assert writes
    assert refusals


NAMES = st.lists(
    st.sampled_from(["sub", "plain.txt", "folder", "link.txt", "secret.txt", "..", ".", "", "pipe", "outside", "zero"]),
    max_size=5,
)


@pytest.fixture(scope="module")
def shared_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("shared")
    (top / "outside").mkdir()
    (top / "outside/secret.txt").write_text("secret")
    (top / "work/sub").mkdir(parents=True)
    (top / "work/sub/plain.txt").write_text("plain")
    (top / "work/folder").symlink_to(top / "outside")
    (top / "work/sub/up").symlink_to("..")
    os.mkfifo(top / "work/pipe")
    return top / "work"


@given(names=NAMES)
def test_whatever_the_path_nothing_outside_is_read(shared_work: Path, names: list[str]) -> None:
    try:
        content = untrusted.read_bytes(shared_work, "/".join(names))
    except OSError:
        return
    assert content == b"plain"


def test_copies_of_data_are_never_written_through_a_link(tmp_path: Path) -> None:
    """Where a script has put a link in the place of the copy: the link is replaced, and what it leads to stays."""
    from m3b.dataset import view

    victim, source = tmp_path / "victim", tmp_path / "source"
    victim.write_text("the user's")
    source.write_text("a scan")
    for write in (view.clone, lambda real, target: view.place_file(real, target, view.ViewCounts(), link=False)):
        target = tmp_path / "target"
        target.unlink(missing_ok=True)
        target.symlink_to(victim)
        write(source, target)
        assert victim.read_text() == "the user's"
        assert not target.is_symlink()
    assert target.read_text() == "a scan"
    (tmp_path / "led").symlink_to(source)
    with pytest.raises(UnsafePathError):
        view.clone(tmp_path / "led", target)
