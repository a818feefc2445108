"""Copy a deliverable out of the reach of the scripts that made it: one pass, no link followed, one hash a file.

The scripts may have left anything: links to other files, pipes that block whoever opens them, endless folders.
Anything but a regular file with a printable name is refused with a reason, and never opened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from m3b.isolation.untrusted import TreeEntry, UnsafePathError, is_folder, open_file, walk

MAX_BYTES = 8 * 2**30
MAX_FILES = 500
MAX_DEPTH = 8

_CHUNK_BYTES = 2**20
_CACHE_FOLDER = "__pycache__"
_MAX_REFUSALS = 20
"""Maximum number of refusals that are named; a folder with more is refused anyway."""


@dataclass(frozen=True)
class FrozenCopy:
    """A copy that can no longer be changed.

    Args:
        folder: the copy.
        hashes: relative path -> SHA-256 of each file, computed while it was copied.
        refusals: what was not copied, each with the reason and the remedy; empty for a sound deliverable.
    """

    folder: Path
    hashes: Mapping[str, str]
    refusals: tuple[str, ...] = ()


def freeze(source: Path, target: Path) -> FrozenCopy:
    """Copy the folder `source` to `target`, which is replaced, and hash what is copied.

    Files are written without execute permission; Python's caches are skipped. Files and folders are synced to disk
    before this returns.

    Raises:
        OSError: `source` is no folder (a link to one is none), or `target` cannot be written.
    """
    if not is_folder(source.parent, source.name):
        raise NotADirectoryError(errno.ENOTDIR, "no folder", str(source))
    partial = target.with_name(f".{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    progress = _CopyProgress(source, partial)
    try:
        for entry in walk(
            source.parent, source.name, skip=(_CACHE_FOLDER,), max_depth=MAX_DEPTH, max_entries=4 * MAX_FILES
        ):
            if not progress.copy_entry(entry):
                break
    except UnsafePathError as error:
        progress.refusals.append(f"{error.strerror}; deliver a flat folder with only what predict.py needs")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    for folder in (target, *(p for p in target.rglob("*") if p.is_dir()), target.parent):
        _fsync_folder(folder)
    return FrozenCopy(target, dict(sorted(progress.hashes.items())), tuple(progress.refusals[:_MAX_REFUSALS]))


@dataclass
class _CopyProgress:
    """The state of a copy in progress."""

    source: Path
    target: Path
    hashes: dict[str, str] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    bytes_left: int = field(default_factory=lambda: MAX_BYTES)

    def copy_entry(self, entry: TreeEntry) -> bool:
        """Copy or refuse one entry; return False if the copy should stop."""
        if reason := _refusal_reason(entry):
            self.refusals.append(f"{entry.name if entry.name.isprintable() else ascii(entry.name)} {reason}")
        elif entry.kind == "folder":
            (self.target / entry.name).mkdir(parents=True, exist_ok=True)
        elif not entry.name.endswith(".pyc"):
            if len(self.hashes) >= MAX_FILES:
                self.refusals.insert(0, f"more than {MAX_FILES} files; deliver only what predict.py needs")
                return False
            return self._copy(entry.name)
        return len(self.refusals) < _MAX_REFUSALS

    def _copy(self, name: str) -> bool:
        digest = hashlib.sha256()
        target = self.target / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_file(self.source, name) as file, target.open("xb") as copy:
            if os.fstat(file.fileno()).st_size > self.bytes_left:
                self.bytes_left = -1
            while self.bytes_left >= 0 and (data := file.read(_CHUNK_BYTES)):
                self.bytes_left -= len(data)  # the file may grow meanwhile
                digest.update(data)
                copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
            os.fchmod(copy.fileno(), 0o644)
        self.hashes[name] = digest.hexdigest()
        if self.bytes_left < 0:
            self.refusals.insert(0, f"more than {MAX_BYTES / 2**30:.0f} GiB; deliver fewer or smaller weights")
        return self.bytes_left >= 0


def _refusal_reason(entry: TreeEntry) -> str:
    """Return why an entry cannot be delivered; empty if it can."""
    if not entry.name.isprintable():
        return "has a name that not every system can show; rename it"
    if entry.kind == "link":
        return "is a link; copy the file that it leads to instead"
    if entry.kind == "other":
        return "is neither a file nor a folder; remove it"
    if any(part.startswith(".") for part in entry.name.split("/")):
        return "is hidden; remove it, or give it a name without the dot"
    return ""


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
