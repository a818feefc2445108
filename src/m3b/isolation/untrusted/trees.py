"""Access to whole folders below a trusted root: walk without recursion, copy and hash, for any folder structure."""

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

from m3b.isolation.untrusted.paths import UnsafePathError, hash_file, make_folder, open_below, open_file

FICLONE = 0x40049409
MAX_DEPTH = 64
MAX_ENTRIES = 1_000_000
EntryKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a folder tree. `name` is relative to the walked folder, `size` in bytes, `mode` the permissions."""

    name: str
    kind: EntryKind
    size: int
    mode: int


def walk(
    root: Path,
    name: str | Path = "",
    *,
    skip: Collection[str] = (),
    max_depth: int = MAX_DEPTH,
    max_entries: int = MAX_ENTRIES,
) -> Iterator[TreeEntry]:
    """Yield everything below a folder, sorted within each folder. Links are listed but never followed.

    Args:
        skip: names of files and folders to skip at any level.
        max_depth: maximum depth of folders.
        max_entries: maximum number of entries.

    Raises:
        UnsafePathError: the tree is too deep or has too many entries, or the folder is a link.
        OSError: the folder cannot be listed.
    """
    pending = [("", 0)]
    n_seen = 0
    while pending:
        folder, depth = pending.pop()
        if depth > max_depth:
            raise UnsafePathError(root / name, f"folders nested deeper than {max_depth} levels")
        children = list_entries(root, f"{name}/{folder}".strip("/"), skip=skip, max_entries=max_entries - n_seen)
        n_seen += len(children)
        for entry in sorted(children, key=lambda item: item.name):
            relative_name = f"{folder}/{entry.name}" if folder else entry.name
            yield TreeEntry(relative_name, entry.kind, entry.size, entry.mode)
            if entry.kind == "folder":
                pending.append((relative_name, depth + 1))


def list_entries(
    root: Path, name: str | Path = "", *, skip: Collection[str] = (), max_entries: int = MAX_ENTRIES
) -> list[TreeEntry]:
    """Return the entries of one folder, in no order. Links are listed but not followed. Raises as `walk`."""
    descriptor = open_below(root, name, os.O_RDONLY | os.O_DIRECTORY)
    result: list[TreeEntry] = []
    try:
        with os.scandir(descriptor) as scan:
            for entry in scan:
                if entry.name in skip:
                    continue
                if len(result) >= max_entries:
                    raise UnsafePathError(root / name, "too many files and folders")
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    result.append(
                        TreeEntry(entry.name, _entry_kind(status.st_mode), status.st_size, stat.S_IMODE(status.st_mode))
                    )
    finally:
        os.close(descriptor)
    return result


def _entry_kind(mode: int) -> EntryKind:
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
    skip: Collection[str] = ("__pycache__",),
    max_total_bytes: int | None = None,
    max_entries: int = MAX_ENTRIES,
    strict: bool = True,
) -> list[TreeEntry]:
    """Copy a folder to `target`, a trusted folder that is created if missing; return the copied files.

    Args:
        max_total_bytes: maximum size of all files together.
        strict: whether links and special files are refused; otherwise they are skipped.

    Raises:
        UnsafePathError: as `walk`; also for a link or special file, and for more than `max_total_bytes` bytes.
        OSError: a file cannot be read or written.
    """
    target.mkdir(parents=True, exist_ok=True)
    copied: list[TreeEntry] = []
    total = 0
    for entry in walk(root, name, skip=skip, max_entries=max_entries):
        if entry.kind == "folder":
            os.close(make_folder(target, entry.name))
        elif entry.kind == "file":
            bytes_left = None if max_total_bytes is None else max(max_total_bytes - total, 0)
            total += copy_file(root, Path(name, entry.name), target, entry.name, max_bytes=bytes_left)
            copied.append(entry)
        elif strict:
            raise UnsafePathError(root / name / entry.name, "a link or a special file, not a regular one")
    return copied


def copy_file(
    root: Path, name: str | Path, target: Path, target_name: str | Path, *, max_bytes: int | None = None
) -> int:
    """Copy one regular file to `target_name` below `target`, replacing any file there; return its size in bytes.

    Raises:
        UnsafePathError, OSError: as `open_file` and `write_atomic`.
    """
    parent, _, file_name = str(target_name).rpartition("/")
    with open_file(root, name, max_bytes=max_bytes) as source:
        mode = 0o644 | (os.fstat(source.fileno()).st_mode & 0o111)
        folder = make_folder(target, parent)
        try:
            with _new_file(folder, file_name, mode, str(target_name)) as out:
                shutil.copyfileobj(source, out, 1 << 20)
                return out.tell()
        finally:
            os.close(folder)


def clone_file(root: Path, name: str | Path, target: Path, to: str) -> bool:
    """Copy a regular file to `to` in the folder `target` such that both share their blocks on disk.

    A file or link at `to` is replaced, so that a link there is never written through. Returns False, and leaves an
    empty file, if the file system cannot share blocks.

    Raises:
        UnsafePathError, OSError: as `open_file` and `write_atomic`.
    """
    with open_file(root, name) as source:
        folder = make_folder(target, "")
        try:
            with _new_file(folder, to, 0o644) as copy:
                try:
                    fcntl.ioctl(copy.fileno(), FICLONE, source.fileno())
                except OSError:
                    return False
                return True
        finally:
            os.close(folder)


@contextlib.contextmanager
def _new_file(folder: int, name: str, mode: int, display_path: str = "") -> Iterator[io.BufferedWriter]:
    """Yield a new file in a folder, open for writing; a file or link of that name is removed first."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        raise UnsafePathError(display_path or name, "a folder; a file cannot be copied over it") from None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, mode, dir_fd=folder), "wb") as out:
        os.fchmod(out.fileno(), mode)
        yield out


def hash_tree(root: Path, name: str | Path, *, skip: Collection[str] = ("__pycache__",)) -> str:
    """Return the SHA-256 of a regular file, or of the names and contents of all files below a folder, as hex digest.

    Of links and special files, name and kind are hashed.

    Raises:
        UnsafePathError, OSError: as `walk` and `open_file`.
    """
    try:
        return hash_file(root, name)
    except UnsafePathError:
        lines = [
            f"{entry.name} {hash_file(root, Path(name, entry.name)) if entry.kind == 'file' else entry.kind}"
            for entry in walk(root, name, skip=skip)
            if entry.kind != "folder"
        ]
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
