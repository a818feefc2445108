"""Whole folders below a trusted root: walked without recursion, copied and hashed, however they are built."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from m3b.untrusted.paths import Unsafe, open_below, open_file, sha256
from m3b.untrusted.writing import make_folder

FICLONE = 0x40049409
DEEPEST = 64
MOST = 1_000_000
Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a tree: `name` counts from the folder that was walked; size in bytes; `mode` the permissions."""

    name: str
    kind: Kind
    size: int
    mode: int


def walk(
    root: Path,
    name: str | Path = "",
    *,
    leave: Collection[str] = (),
    deepest: int = DEEPEST,
    most: int = MOST,
) -> Iterator[TreeEntry]:
    """Everything below a folder, sorted within each folder, links named but never followed.

    Args:
        leave: names of files and folders that are left out wherever they stand.
        deepest: levels of folders that are allowed.
        most: entries that are allowed.

    Raises:
        Unsafe: a tree that is deeper or has more entries, or a link where the folder should be.
        OSError: the folder cannot be listed.
    """
    pending = [("", 0)]
    n_seen = 0
    while pending:
        folder, depth = pending.pop()
        if depth > deepest:
            raise Unsafe(root / name, f"folders nested deeper than {deepest} levels")
        children = entries(root, f"{name}/{folder}".strip("/"), leave=leave, most=most - n_seen)
        n_seen += len(children)
        for entry in sorted(children, key=lambda item: item.name):
            relative_name = f"{folder}/{entry.name}" if folder else entry.name
            yield TreeEntry(relative_name, entry.kind, entry.size, entry.mode)
            if entry.kind == "folder":
                pending.append((relative_name, depth + 1))


def entries(root: Path, name: str | Path = "", *, leave: Collection[str] = (), most: int = MOST) -> list[TreeEntry]:
    """What one folder holds, in no order, links named but not followed. Raises as `walk`."""
    descriptor = open_below(root, name, os.O_RDONLY | os.O_DIRECTORY)
    result: list[TreeEntry] = []
    try:
        with os.scandir(descriptor) as scan:
            for entry in scan:
                if entry.name in leave:
                    continue
                if len(result) >= most:
                    raise Unsafe(root / name, "too many files and folders")
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    result.append(
                        TreeEntry(entry.name, _kind(status.st_mode), status.st_size, stat.S_IMODE(status.st_mode))
                    )
    finally:
        os.close(descriptor)
    return result


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def copy_tree(
    root: Path,
    name: str | Path,
    target: Path,
    *,
    leave: Collection[str] = ("__pycache__",),
    most_bytes: int | None = None,
    most: int = MOST,
    strict: bool = True,
) -> list[TreeEntry]:
    """Copy a folder to `target`, which m3b owns and which is made if missing; returns the files that were copied.

    Args:
        most_bytes: of all files together.
        strict: whether a link or a special file is refused; else it is left out.

    Raises:
        Unsafe: as `walk`; a link or special file; more bytes than `most_bytes`.
        OSError: something cannot be read or written.
    """
    target.mkdir(parents=True, exist_ok=True)
    copied: list[TreeEntry] = []
    total = 0
    for entry in walk(root, name, leave=leave, most=most):
        if entry.kind == "folder":
            os.close(make_folder(target, entry.name))
        elif entry.kind == "file":
            total += copy_file(root, Path(name, entry.name), target, entry.name, most=_left(most_bytes, total))
            copied.append(entry)
        elif strict:
            raise Unsafe(root / name / entry.name, "a link or a special file, not a regular one")
    return copied


def _left(most: int | None, used: int) -> int | None:
    return None if most is None else max(most - used, 0)


def copy_file(root: Path, name: str | Path, target: Path, to: str | Path, *, most: int | None = None) -> int:
    """Copy one regular file to `to` below `target`, in place of what stands there; returns its size in bytes.

    Raises:
        Unsafe, OSError: as `open_file` and `write_whole`.
    """
    parent, _, file_name = str(to).rpartition("/")
    with open_file(root, name, most=most) as source:
        folder = make_folder(target, parent)
        try:
            return _copy_into(source, folder, file_name, str(to))
        finally:
            os.close(folder)


def clone_file(root: Path, name: str | Path, target: Path, to: str) -> bool:
    """Make `to` in the folder `target` a copy that shares its blocks with a regular file.

    Whatever stands at `to` is replaced, so that a link there is never written through. Returns False, and leaves an empty
    file, if the file system cannot share blocks.

    Raises:
        Unsafe, OSError: as `open_file` and `write_whole`.
    """
    with open_file(root, name) as source:
        folder = make_folder(target, "")
        try:
            with _fresh_file(folder, to, 0o644) as copy:
                return _shares_blocks(copy, source)
        finally:
            os.close(folder)


def _shares_blocks(copy: io.BufferedWriter, source: io.FileIO) -> bool:
    try:
        fcntl.ioctl(copy.fileno(), FICLONE, source.fileno())
    except OSError:
        return False
    return True


def _copy_into(source: io.FileIO, folder: int, file_name: str, target_name: str) -> int:
    with _fresh_file(folder, file_name, 0o644 | (os.fstat(source.fileno()).st_mode & 0o111), target_name) as out:
        shutil.copyfileobj(source, out, 1 << 20)
        return out.tell()


@contextlib.contextmanager
def _fresh_file(folder: int, name: str, mode: int, shown: str = "") -> Iterator[io.BufferedWriter]:
    """A new file in a folder, open for writing, in place of what stands there."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        raise Unsafe(shown or name, "a folder; a file cannot be copied over it") from None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, mode, dir_fd=folder), "wb") as out:
        os.fchmod(out.fileno(), mode)
        yield out


def digest(root: Path, name: str | Path, *, leave: Collection[str] = ("__pycache__",)) -> str:
    """Hex digest of a regular file, or of names and contents of all files below a folder; links and special files
    count by their name.

    Raises:
        Unsafe, OSError: as `walk` and `open_file`.
    """
    try:
        return sha256(root, name)
    except Unsafe:
        lines = [
            f"{entry.name} {sha256(root, Path(name, entry.name)) if entry.kind == 'file' else entry.kind}"
            for entry in walk(root, name, leave=leave)
            if entry.kind != "folder"
        ]
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
