"""One pass over a folder tree: counts, bytes, patterns and oddities, in bounded memory."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from m3b.tools.patterns import MOST_SHAPES, Group, collapse, extension, group_names, shapes

_STAT_ALL = 20_000
_STAT_EACH = 64
_DEEPEST_NODE = 4
_MOST_NODES = 20_000
_MOST_PATTERNS = 4_000
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
class Survey:
    """What a walk has found."""

    root: Node
    files: int = 0
    folders: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    sizes: dict[str, Sizes] = field(default_factory=dict)
    stray: Counter[str] = field(default_factory=Counter)
    stray_at: list[str] = field(default_factory=list)
    empty: int = 0
    empty_at: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unreadable_count: int = 0
    links: int = 0
    special: int = 0
    ungrouped: int = 0
    deepest: int = 0

    @property
    def exact(self) -> bool:
        """Whether every file's size was looked at."""
        return all(one.measured == one.count for one in self.sizes.values())


@dataclass(slots=True)
class _Folder:
    path: str
    shown: str
    """The pattern of the path below the top, `p#/scans/`."""
    spans: list[tuple[str, str]]
    depth: int
    node: Node


def survey(top: Path) -> Survey:
    """Walk a folder without following links. Unreadable folders are noted, not raised."""
    found = Survey(Node(top.name, None))
    waiting = [_Folder(str(top), "", [], 0, found.root)]
    nodes = 1
    while waiting:
        folder = waiting.pop()
        found.deepest = max(found.deepest, folder.depth)
        try:
            names, inner = _scan(folder.path, found)
        except OSError as error:
            found.unreadable_count += 1
            if len(found.unreadable) < _KEPT:
                found.unreadable.append(f"{os.path.relpath(folder.path, top)} ({error.strerror})")
            continue
        _add_files(found, folder, names, os.path.relpath(folder.path, top))
        found.folders += len(inner)
        folder.node.folders += len(inner)
        patterns = _folder_patterns(inner)
        for name in inner:
            node = folder.node
            if folder.depth < _DEEPEST_NODE and nodes < _MOST_NODES:
                node = Node(name, folder.node)
                folder.node.children.append(node)
                nodes += 1
            pattern, spans = patterns[name]
            path = f"{folder.path}/{name}"
            waiting.append(_Folder(path, f"{folder.shown}{pattern}/", folder.spans + spans, folder.depth + 1, node))
    _total(found.root)
    return found


def _scan(path: str, found: Survey) -> tuple[list[str], list[str]]:
    """Names of the files and of the sub-folders."""
    names: list[str] = []
    inner: list[str] = []
    keep = names.append
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                keep(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
            elif entry.is_symlink():
                found.links += 1
            else:
                found.special += 1
    return names, inner


def _add_files(found: Survey, folder: _Folder, names: list[str], where: str) -> None:
    if not names:
        return
    found.files += len(names)
    folder.node.own += len(names)
    hidden = folder.shown.startswith("__MACOSX") or "/__MACOSX" in folder.shown
    stray = names if hidden else _strays(names)
    if stray:
        for name in stray:
            found.stray["__MACOSX/" if hidden else "._*" if name.startswith("._") else name] += 1
        if len(found.stray_at) < _KEPT:
            found.stray_at.append(os.path.join(where, stray[0]))
        out = set(stray)
        names = [name for name in names if name not in out]
    for group in group_names(names):
        _merge(found, folder, group)
    _measure(found, folder, names, where)


def _strays(names: list[str]) -> list[str]:
    if not ("\n." in "\n" + "\n".join(names) or _STRAY.intersection(names)):
        return []
    return [name for name in names if name.startswith(".") or name in _STRAY]


def _merge(found: Survey, folder: _Folder, group: Group) -> None:
    key = folder.shown + group.pattern
    whole = found.groups.get(key)
    if whole is None:
        if len(found.groups) >= _MOST_PATTERNS:
            found.ungrouped += group.count
            return
        whole = found.groups[key] = Group(key)
    whole.add(group.count, [*folder.spans, *group.ranges], f"{folder.path}/{group.example}")


def _measure(found: Survey, folder: _Folder, names: list[str], where: str) -> None:
    """Count by extension, and look at the size of every file, or of a sample in large trees."""
    joined = "\n".join(names)
    first = extension(names[0]) if names else ""
    step = 1 if found.files <= _STAT_ALL else _STAT_EACH
    if first and joined.count(first + "\n") + joined.endswith(first) == len(names):
        found.sizes.setdefault(first, Sizes()).count += len(names)
        ends: list[str] | None = None
    else:
        ends = [extension(name) for name in names]
        for end, count in Counter(ends).items():
            found.sizes.setdefault(end, Sizes()).count += count
    for index in range(0, len(names), step):
        try:
            length = os.lstat(f"{folder.path}/{names[index]}").st_size
        except OSError:
            continue
        sizes = found.sizes[first if ends is None else ends[index]]
        sizes.measured += 1
        sizes.total += length
        if not length:
            found.empty += 1
            if len(found.empty_at) < _KEPT:
                found.empty_at.append(os.path.join(where, names[index]))


def _folder_patterns(names: list[str]) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """For each sub-folder the pattern that stands for it, and its digits: `p012` is `p#`, [("012", "012")]."""
    if not names:
        return {}
    collapsed = [collapse(shape) for shape in shapes(names)]
    if len(set(collapsed)) > MOST_SHAPES:
        return {name: ("*", []) for name in names}
    return {name: (pattern, _digits(name)) for name, pattern in zip(names, collapsed, strict=True)}


def _digits(name: str) -> list[tuple[str, str]]:
    runs = "".join(ch if "0" <= ch <= "9" else " " for ch in name).split()
    return [(run, run) for run in runs]


def _total(node: Node) -> int:
    """Sum files upwards; without recursion deeper than the nodes go."""
    node.files = node.own + sum(_total(child) for child in node.children)
    return node.files
