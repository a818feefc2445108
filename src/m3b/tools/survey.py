"""One pass over a folder tree: counts, bytes, patterns and oddities, in bounded memory."""

from __future__ import annotations

import errno
import gc
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from m3b.data.links import Inside
from m3b.tools.paths import opened
from m3b.tools.patterns import MAX_SHAPES, PatternGroup, collapse, extension, group_names, shapes

_STAT_ALL = 20_000
_MEASURED_FILE_INTERVAL = 1024
DEEPEST = 64
"""Levels of folders that are looked into."""
_MAX_NODE_DEPTH = 4
_MAX_NODES = 20_000
_MAX_PATTERNS = 4_000
_KEPT = 5
_STRAY = {"Thumbs.db", "desktop.ini", "ehthumbs.db"}


@dataclass(slots=True)
class Node:
    """A folder that is shown by name; `files` counts everything below."""

    name: str
    parent: Node | None
    files: int = 0
    own: int = 0
    folders: int = 0
    children: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Sizes:
    """Files and bytes of one extension; bytes are measured on `measured` of the `count` files."""

    count: int = 0
    measured: int = 0
    total: int = 0

    @property
    def estimate(self) -> float:
        """Bytes of all files, from those that were measured."""
        return self.total * self.count / self.measured if self.measured else 0.0


@dataclass
class FolderWalk:
    """What a walk has found."""

    root: Node
    files: int = 0
    folders: int = 0
    groups: dict[str, PatternGroup] = field(default_factory=dict)
    sizes: dict[str, Sizes] = field(default_factory=dict)
    stray: Counter[str] = field(default_factory=Counter)
    stray_at: list[str] = field(default_factory=list)
    empty: int = 0
    empty_at: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unreadable_count: int = 0
    links: int = 0
    links_out: int = 0
    links_out_at: list[str] = field(default_factory=list)
    followed: int = 0
    special: int = 0
    ungrouped: int = 0
    deepest: int = 0

    @property
    def exact(self) -> bool:
        """Whether every file's size was looked at."""
        return all(extension_sizes.measured == extension_sizes.count for extension_sizes in self.sizes.values())


@dataclass(slots=True)
class _PendingFolder:
    path: str
    where: str
    """The path below the top, empty or with a slash at its end."""
    shown: str
    """The pattern of the path below the top, `p#/scans/`."""
    spans: list[tuple[str, str]]
    depth: int
    node: Node


@contextmanager
def _pause_gc() -> Iterator[None]:
    """Hundreds of thousands of names make the garbage collector run in vain: a third of the time of a walk."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def survey(top: Path, inside: Inside | None = None) -> FolderWalk:
    """Walk a folder. Unreadable folders, and those deeper than any data is, are noted, not raised.

    Args:
        top: a real path.
        inside: links to regular files in there count as files; no other link is followed.
    """
    with _pause_gc():
        return _walk_tree(top, inside or Inside(()))


def _walk_tree(top: Path, link_targets: Inside) -> FolderWalk:
    result = FolderWalk(Node(top.name, None))
    pending = [_PendingFolder(str(top), "", "", [], 0, result.root)]
    sampler = _SizeSampler(result)
    nodes = 1
    while pending:
        folder = pending.pop()
        result.deepest = max(result.deepest, folder.depth)
        try:
            names, subfolders = _scan(folder, result, link_targets)
        except OSError as error:
            result.unreadable_count += 1
            if len(result.unreadable) < _KEPT:
                result.unreadable.append(f"{folder.where[:200] or '.'} ({error.strerror})")
            continue
        if names:
            sampler.add(folder, _add_files(result, folder, names))
        result.folders += len(subfolders)
        folder.node.folders += len(subfolders)
        patterns = _folder_patterns(subfolders)
        for name in subfolders:
            node = folder.node
            if folder.depth < _MAX_NODE_DEPTH and nodes < _MAX_NODES:
                node = Node(name, folder.node)
                folder.node.children.append(node)
                nodes += 1
            pattern, digit_ranges = patterns[name]
            path, relative_path = f"{folder.path}/{name}", f"{folder.where}{name}/"
            pattern_path = f"{folder.shown}{pattern}/"
            pending.append(
                _PendingFolder(path, relative_path, pattern_path, folder.spans + digit_ranges, folder.depth + 1, node)
            )
    sampler.close()
    _total(result.root)
    return result


def _scan(folder: _PendingFolder, found: FolderWalk, inside: Inside) -> tuple[list[str], list[str]]:
    """Names of the files and of the sub-folders."""
    subfolders: list[str] = []
    if folder.depth > DEEPEST:
        raise OSError(errno.ELOOP, f"nested deeper than {DEEPEST} levels")

    def other(entry: os.DirEntry[str]) -> bool:
        if entry.is_dir(follow_symlinks=False):
            subfolders.append(entry.name)
        elif entry.is_symlink():
            return _link(folder, entry.name, found, inside)
        else:
            found.special += 1
        return False

    # one comprehension: a loop would take half as long again as the bare walk
    with opened(folder.path) as descriptor, os.scandir(descriptor) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False) or other(entry)]
    return names, subfolders


def _link(folder: _PendingFolder, name: str, found: FolderWalk, inside: Inside) -> bool:
    """Count a link; whether it stands for a file."""
    path = f"{folder.path}/{name}"
    if path not in inside:
        found.links_out += 1
        if len(found.links_out_at) < _KEPT:
            found.links_out_at.append(folder.where + name)
        return False
    if os.path.isfile(path):
        found.followed += 1
        return True
    found.links += 1
    return False


def _add_files(result: FolderWalk, folder: _PendingFolder, names: list[str]) -> list[str]:
    """Count and group one folder's files; returns those that are data."""
    result.files += len(names)
    folder.node.own += len(names)
    hidden = folder.shown.startswith("__MACOSX") or "/__MACOSX" in folder.shown
    joined_names = "\n".join(names)
    stray = names if hidden else _strays(names, joined_names)
    if stray:
        for name in stray:
            result.stray["__MACOSX/" if hidden else "._*" if name.startswith("._") else name] += 1
        if len(result.stray_at) < _KEPT:
            result.stray_at.append(folder.where + stray[0])
        stray_names = set(stray)
        names = [name for name in names if name not in stray_names]
        joined_names = ""
    for group in group_names(names, joined_names):
        result.sizes.setdefault(extension(group.example), Sizes()).count += group.count
        _merge(result, folder, group)
    return names


def _strays(names: list[str], joined: str) -> list[str]:
    if not joined.startswith(".") and "\n." not in joined and not any(word in joined for word in _STRAY):
        return []
    return [name for name in names if name.startswith(".") or name in _STRAY]


def _merge(found: FolderWalk, folder: _PendingFolder, group: PatternGroup) -> None:
    key = folder.shown + group.pattern
    merged = found.groups.get(key)
    if merged is None:
        if len(found.groups) >= _MAX_PATTERNS:
            found.ungrouped += group.count
            return
        merged = found.groups[key] = PatternGroup(key)
    merged.add(group.count, [*folder.spans, *group.ranges], f"{folder.path}/{group.example}")


class _SizeSampler:
    """Looks at the size of every file, or in large trees of every 1,024th."""

    def __init__(self, found: FolderWalk) -> None:
        self.found = found
        self.kept: list[tuple[_PendingFolder, list[str]]] = []
        self.seen = 0

    def add(self, folder: _PendingFolder, names: list[str]) -> None:
        """Remember a folder's files; once the tree is known to be large, look at a sample at once."""
        n_before = self.seen
        self.seen += len(names)
        if n_before > _STAT_ALL:
            if sample := names[-n_before % _MEASURED_FILE_INTERVAL :: _MEASURED_FILE_INTERVAL]:
                self._look(folder, sample)
            return
        self.kept.append((folder, names))
        if self.seen > _STAT_ALL:
            self._drain(_MEASURED_FILE_INTERVAL)

    def close(self) -> None:
        """Look at everything that is still only remembered."""
        self._drain(1)

    def _drain(self, step: int) -> None:
        for folder, names in self.kept:
            self._look(folder, names[::step])
        self.kept.clear()

    def _look(self, folder: _PendingFolder, names: list[str]) -> None:
        result = self.found
        for name, length in _lengths(folder, names):
            sizes = result.sizes.setdefault(extension(name), Sizes())
            sizes.measured += 1
            sizes.total += length
            if not length:
                result.empty += 1
                if len(result.empty_at) < _KEPT:
                    result.empty_at.append(folder.where + name)


def _lengths(folder: _PendingFolder, names: list[str]) -> Iterator[tuple[str, int]]:
    with suppress(OSError), opened(folder.path) as descriptor:
        for name in names:
            with suppress(OSError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                is_link = stat.S_ISLNK(status.st_mode)  # one that was found to stay inside
                yield name, (os.stat(name, dir_fd=descriptor) if is_link else status).st_size


def _folder_patterns(names: list[str]) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """For each sub-folder the pattern that stands for it, and its digits: `p012` is `p#`, [("012", "012")]."""
    if not names:
        return {}
    collapsed = [collapse(shape) for shape in shapes(names)]
    if len(set(collapsed)) > MAX_SHAPES:
        return {name: ("*", []) for name in names}
    return {name: (pattern, _digits(name)) for name, pattern in zip(names, collapsed, strict=True)}


def _digits(name: str) -> list[tuple[str, str]]:
    runs = "".join(ch if "0" <= ch <= "9" else " " for ch in name).split()
    return [(run, run) for run in runs]


def _total(node: Node) -> int:
    """Sum files upwards; without recursion deeper than the nodes go."""
    node.files = node.own + sum(_total(child) for child in node.children)
    return node.files
