"""Copy a deliverable out of its maker's reach: one pass, no link followed, a hash a file.

The maker's scripts may have left anything: links to other files, pipes that block whoever opens them, folders without
end. What is not a plain file of a plain name is refused with a reason, and never opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_BYTES = 8 * 2**30
MAX_FILES = 500
MAX_DEPTH = 8

_CHUNK = 2**20
_ENOUGH = 20
"""Refusals that are named at most; a folder with more is refused anyhow."""


@dataclass(frozen=True)
class Frozen:
    """A copy that nobody changes any more.

    Args:
        folder: the copy.
        hashes: relative path -> SHA-256 of each file, as it was read while it was copied.
        refused: what could not be taken over, each with the reason and the remedy; empty for a sound deliverable.
    """

    folder: Path
    hashes: Mapping[str, str]
    refused: tuple[str, ...] = ()


def freeze(source: Path, target: Path) -> Frozen:
    """Copy the folder `source` to `target`, which is replaced, and hash what is copied.

    Files are written without the right to be executed; Python's caches are left out. Both are safe on the disk when
    this returns.

    Raises:
        OSError: `source` is no folder (a link to one is none), or `target` cannot be written.
    """
    top = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        copying = _Copying(part)
        copying.folder(top, "", 0)
    finally:
        os.close(top)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    _sync(target.parent)
    return Frozen(target, dict(sorted(copying.hashes.items())), tuple(copying.refused[:_ENOUGH]))


@dataclass
class _Copying:
    """How far a copy has come."""

    target: Path
    hashes: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    left: int = field(default_factory=lambda: MAX_BYTES)
    entries: int = 0

    def folder(self, source: int, where: str, depth: int) -> None:
        for entry in _entries(source):
            name = f"{where}{entry}"
            self.entries += 1
            if self.entries > 4 * MAX_FILES or len(self.hashes) >= MAX_FILES:
                self.refused.insert(0, f"more than {MAX_FILES} files; deliver only what predict.py needs")
                return
            if entry == "__pycache__" or entry.endswith(".pyc"):
                continue
            kind = os.stat(entry, dir_fd=source, follow_symlinks=False).st_mode
            if why := _unfit(entry, kind, depth):
                self.refused.append(f"{name!a} {why}" if not name.isprintable() else f"{name} {why}")
            elif stat.S_ISDIR(kind):
                with _opened(entry, os.O_DIRECTORY, source) as inner:
                    (self.target / name).mkdir()
                    self.folder(inner, f"{name}/", depth + 1)
            else:
                with _opened(entry, os.O_NONBLOCK, source) as file:
                    self.file(file, name)
            if self.left < 0 or len(self.refused) > _ENOUGH:
                return
        _sync(self.target / where)

    def file(self, source: int, name: str) -> None:
        about = os.fstat(source)
        if not stat.S_ISREG(about.st_mode):  # it was exchanged since it was looked at
            self.refused.append(f"{name} is neither a file nor a folder; remove it")
            return
        if about.st_size > self.left:
            self.too_large()
            return
        digest = hashlib.sha256()
        with (self.target / name).open("xb") as copy:
            while self.left >= 0 and (data := os.read(source, _CHUNK)):
                self.left -= len(data)
                digest.update(data)
                copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
            os.fchmod(copy.fileno(), 0o644)
        if self.left < 0:  # it grew meanwhile
            self.too_large()
        self.hashes[name] = digest.hexdigest()

    def too_large(self) -> None:
        self.left = -1
        self.refused.insert(0, f"more than {MAX_BYTES / 2**30:.0f} GiB; deliver fewer or smaller weights")


def _entries(folder: int) -> list[str]:
    with os.scandir(folder) as listing:
        found = []
        for entry in listing:  # a folder without end must not fill the memory
            found.append(entry.name)
            if len(found) > 4 * MAX_FILES:
                break
    return sorted(found)


def _unfit(name: str, kind: int, depth: int) -> str:
    """Why an entry cannot be delivered; empty where it can."""
    if not name.isprintable():
        return "has a name that not every system can show; rename it"
    if stat.S_ISLNK(kind):
        return "is a link; copy the file that it leads to instead"
    if name.startswith("."):
        return "is hidden; remove it, or give it a name without the dot"
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        return "is neither a file nor a folder; remove it"
    if stat.S_ISDIR(kind) and depth >= MAX_DEPTH:
        return f"lies more than {MAX_DEPTH} folders deep; deliver a flat folder"
    return ""


@contextlib.contextmanager
def _opened(name: str, flags: int, folder: int) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
