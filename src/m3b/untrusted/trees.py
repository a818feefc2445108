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

from m3b.untrusted.paths import UnsafePathError, hash_file, make_folder, open_below, open_file

FICLONE = 0x40049409
MAX_DEPTH = 64
MAX_ENTRIES = 1_000_000
EntryKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a tree: `name` counts from the folder that was walked; size in bytes; `mode` the permissions."""

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
    """Everything below a folder, sorted within each folder, links named but never followed.

    Args:
        skip: names of files and folders that are left out wherever they stand.
        max_depth: levels of folders that are allowed.
        max_entries: entries that are allowed.

    Raises:
        Unsafe: a tree that is deeper or has more entries, or a link where the folder should be.
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
    """What one folder holds, in no order, links named but not followed. Raises as `walk`."""
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
    """Copy a folder to `target`, which m3b owns and which is made if missing; returns the files that were copied.

    Args:
        max_total_bytes: of all files together.
        strict: whether a link or a special file is refused; else it is left out.

    Raises:
        Unsafe: as `walk`; a link or special file; more bytes than `max_total_bytes`.
        OSError: something cannot be read or written.
    """
    target.mkdir(parents=True, exist_ok=True)
    copied: list[TreeEntry] = []
    total = 0
    for entry in walk(root, name, skip=skip, max_entries=max_entries):
        if entry.kind == "folder":
            os.close(make_folder(target, entry.name))
        elif entry.kind == "file":
            total += copy_file(
                root, Path(name, entry.name), target, entry.name, max_bytes=_remaining_bytes(max_total_bytes, total)
            )
            copied.append(entry)
        elif strict:
            raise UnsafePathError(root / name / entry.name, "a link or a special file, not a regular one")
    return copied


def _remaining_bytes(max_bytes: int | None, used: int) -> int | None:
    return None if max_bytes is None else max(max_bytes - used, 0)


def copy_file(
    root: Path, name: str | Path, target: Path, target_name: str | Path, *, max_bytes: int | None = None
) -> int:
    """Copy one regular file to `target_name` below `target`, in place of what stands there; returns its size in bytes.

    Raises:
        Unsafe, OSError: as `open_file` and `write_atomic`.
    """
    parent, _, file_name = str(target_name).rpartition("/")
    with open_file(root, name, max_bytes=max_bytes) as source:
        folder = make_folder(target, parent)
        try:
            return _copy_into(source, folder, file_name, str(target_name))
        finally:
            os.close(folder)


def clone_file(root: Path, name: str | Path, target: Path, to: str) -> bool:
    """Make `to` in the folder `target` a copy that shares its blocks with a regular file.

    Whatever stands at `to` is replaced, so that a link there is never written through. Returns False, and leaves an empty
    file, if the file system cannot share blocks.

    Raises:
        Unsafe, OSError: as `open_file` and `write_atomic`.
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
def _fresh_file(folder: int, name: str, mode: int, display_path: str = "") -> Iterator[io.BufferedWriter]:
    """A new file in a folder, open for writing, in place of what stands there."""
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
    """Hex digest of a regular file, or of names and contents of all files below a folder; links and special files
    count by their name.

    Raises:
        Unsafe, OSError: as `walk` and `open_file`.
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
