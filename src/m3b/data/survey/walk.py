"""One pass over a folder tree: the names of its files, what is no regular file, and a fingerprint; in bounded memory.

Links are never followed, so no loop can be entered; pipes, sockets and devices are counted, never opened.
"""

from __future__ import annotations

import gc
import hashlib
import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.notes import Notes
from m3b.writing import is_text, to_one_line

STAT_ALL = 20_000
"""Trees of more files have the sizes of a part of their files looked at."""
STAT_EACH = 128
_STRAY = {"Thumbs.db", "desktop.ini", "ehthumbs.db"}


@dataclass(slots=True)
class WalkedFolder:
    """A folder with files: its path below the top (parts), the names of its files in order, and its sub-folders."""

    parts: tuple[str, ...]
    names: list[str]
    inner: list[str]

    def path(self, name: str) -> str:
        """A file's path below the top."""
        return "/".join((*self.parts, name))


@dataclass
class Tree:
    """What a walk has found. `folders` is in the order of their paths."""

    root: Path
    limits: SurveyLimits
    folders: list[WalkedFolder] = field(default_factory=list)
    files: int = 0
    folder_count: int = 0
    bytes: int = 0
    exact: bool = True
    fingerprint: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the files that were looked at."""
    notes: Notes = field(default_factory=Notes)
    undecodable: list[str] = field(default_factory=list)
    """Paths that are not UTF-8, escaped; their files are in no folder here."""
    started: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the survey began."""
        return time.monotonic() - self.started

    @property
    def late(self) -> bool:
        """Whether the survey's time is over."""
        return self.spent > self.limits.seconds

    def size(self, path: str) -> int:
        """Bytes of a file; 0 where it cannot be looked at."""
        found = self.sizes.get(path)
        if found is None:
            try:
                found = os.lstat(self.root / path).st_size
            except OSError:
                found = 0
            self.sizes[path] = found
        return found


def walk(root: Path, limits: SurveyLimits) -> Tree:
    """Walk a folder. Whatever cannot be read becomes a note.

    Raises:
        OSError: the top folder itself cannot be read.
    """
    os.scandir(root).close()
    was = gc.isenabled()
    gc.disable()  # hundreds of thousands of names make the collector run in vain: a third of a walk's time
    try:
        return _walk(Tree(root, limits))
    finally:
        if was:
            gc.enable()


def _walk(tree: Tree) -> Tree:
    root, limits = tree.root, tree.limits
    stamp = hashlib.blake2b(digest_size=16)
    stack: list[tuple[str, tuple[str, ...]]] = [(str(root), ())]
    while stack:
        path, parts = stack.pop()
        folder = _scan(tree, path, parts)
        if folder is None:
            continue
        if folder.names:
            _keep(tree, folder, stamp)
        tree.folder_count += len(folder.inner)
        if len(parts) >= limits.depth and folder.inner:
            tree.notes.add("deep", to_one_line("/".join(parts))[:200], len(folder.inner))
            continue
        # The last pushed is taken first: reversed, so that folders come in the order of their names.
        stack += [(f"{path}/{name}", (*parts, name)) for name in reversed(folder.inner)]
    tree.folders.sort(key=lambda one: one.parts)
    _measure(tree, stamp)
    tree.fingerprint = stamp.hexdigest()
    return tree


def _scan(tree: Tree, path: str, parts: tuple[str, ...]) -> WalkedFolder | None:
    inner: list[str] = []

    def other(entry: os.DirEntry[str]) -> bool:
        if entry.is_dir(follow_symlinks=False):
            inner.append(entry.name)
        else:
            kind = "link" if entry.is_symlink() else "special"
            tree.notes.add(kind, to_one_line("/".join((*parts, entry.name)))[:200])
        return False

    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False) or other(entry)]
    except OSError as error:
        tree.notes.add("unreadable", to_one_line("/".join(parts))[:200], detail=error.strerror or "")
        return None
    names.sort()
    inner.sort()
    return WalkedFolder(parts, names, inner)


def _keep(tree: Tree, folder: WalkedFolder, stamp: hashlib.blake2b) -> None:
    joined = "\n".join((*folder.parts, "", *folder.names, ""))
    stamp.update(joined.encode("utf-8", "surrogateescape"))
    if not is_text(joined):
        _leave_undecodable(tree, folder)
        joined = "\n".join((*folder.parts, "", *folder.names, ""))
    tree.files += len(folder.names)
    odd = "\n." in joined or "__MACOSX" in joined or any(name in joined for name in _STRAY)
    stray = _strays(folder) if odd or joined.startswith(".") else []
    if stray:
        tree.notes.add("stray", folder.path(stray[0]), len(stray))
        out = set(stray)
        folder.names = [name for name in folder.names if name not in out]
    room = tree.limits.files - (tree.files - len(folder.names))
    if len(folder.names) > room:
        tree.notes.add("cut_off", folder.path(""), len(folder.names) - max(room, 0))
        folder.names = folder.names[: max(room, 0)]
    if folder.names:
        tree.folders.append(folder)


def _leave_undecodable(tree: Tree, folder: WalkedFolder) -> None:
    """Leave out files whose path is not UTF-8: no JSON file, table or message can hold it."""
    paths = [folder.path(name) for name in folder.names]
    tree.undecodable += [to_one_line(path) for path in paths if not is_text(path)]
    for path in paths:
        if not is_text(path):
            tree.notes.add("undecodable", to_one_line(path)[:200])
    folder.names = [name for name, path in zip(folder.names, paths, strict=True) if is_text(path)]


def _strays(folder: WalkedFolder) -> list[str]:
    if "__MACOSX" in folder.parts or any(part.startswith(".") for part in folder.parts):
        return folder.names
    return [name for name in folder.names if name.startswith(".") or name in _STRAY]


def _measure(tree: Tree, stamp: hashlib.blake2b) -> None:
    """Sizes and times of all files, or in large trees of every 128th."""
    step = 1 if tree.files <= STAT_ALL else STAT_EACH
    seen = looked = total = 0
    for folder in tree.folders:
        first = -seen % step
        seen += len(folder.names)
        for name in folder.names[first::step]:
            path = folder.path(name)
            try:
                found = os.lstat(f"{tree.root}/{path}")
            except OSError:
                continue
            looked += 1
            total += found.st_size
            tree.sizes[path] = found.st_size
            stamp.update(b"%d %d\n" % (found.st_size, found.st_mtime_ns))
            _odd(tree, path, found)
    tree.exact = step == 1
    tree.bytes = total if step == 1 else int(total * seen / max(looked, 1))


def _odd(tree: Tree, path: str, found: os.stat_result) -> None:
    if not found.st_size:
        tree.notes.add("empty", path)
    elif found.st_size > 2**20 and found.st_blocks * 512 < found.st_size // 16:
        tree.notes.add("sparse", path)
    elif stat.S_ISREG(found.st_mode) and not found.st_mode & 0o444:
        tree.notes.add("unreadable", path)
