"""One pass over a folder tree: its regular files in natural order, what is no regular file, and a fingerprint.

Links are never followed, so no loop can be entered; pipes, sockets and devices are noted, never opened.
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR

import polars as pl

from m3b.dataset.archives import is_archive, list_members
from m3b.dataset.inventory import Inventory
from m3b.dataset.survey.facts import SurveyLimits
from m3b.errors import DataError
from m3b.writing import is_text, to_one_line

MAX_MEASURED = 20_000
"""Files of a tree whose sizes and times are all read; of larger trees those of every 128th file are."""
MEASURED_EACH = 128
MAX_EXAMPLES = 20
"""Paths that are kept of each kind of note."""
STORE_NAMES = frozenset({"zarr.json", ".zgroup", ".zarray"})
"""Files of which a folder `*.zarr` has one: it is a Zarr store, and taken as one file."""
_SYSTEM_FILES = frozenset({"Thumbs.db", "desktop.ini", "ehthumbs.db"})
_SYSTEM_FOLDERS = frozenset({"__MACOSX"})
_DIGITS = re.compile(r"(\d+)", re.ASCII)


@dataclass(frozen=True)
class WalkedInventory(Inventory):
    """An inventory with what the walk counted.

    Args:
        folders: all folders below the root, also empty ones.
        fingerprint: of names, sizes and times; equal for equal trees.
        bytes: of all files; estimated from a part if not `exact`.
        counts: code of a note -> how many; `notes` holds the first of them.
        details: code of a note -> the system's reason, if it gave one.
    """

    folders: int = 0
    fingerprint: str = ""
    bytes: int = 0
    exact: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)


class _Walk:
    """The state of one walk."""

    def __init__(self, root: Path, limits: SurveyLimits) -> None:
        self.root = root
        self.limits = limits
        self.paths: list[str] = []
        self.folders = 0
        self.undecodable: list[str] = []
        self.examples: dict[str, list[str]] = {}
        self.counts = Counter[str]()
        self.details: dict[str, str] = {}

    def note(self, code: str, path: str, count: int = 1, detail: str = "") -> None:
        self.counts[code] += count
        examples = self.examples.setdefault(code, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(to_one_line(path)[:300])
        if detail:
            self.details.setdefault(code, detail)

    def run(self) -> None:
        pending: list[tuple[str, int]] = [("", 0)]
        while pending:
            prefix, depth = pending.pop()
            names, subfolders = self._scan(prefix)
            if prefix.lower().endswith(".zarr/") and STORE_NAMES & {*names}:
                self._add(*_split_name(prefix))
                continue
            if names:
                self._add(prefix, names)
            self.folders += len(subfolders)
            if subfolders and depth >= self.limits.depth:
                self.note("deep", prefix, len(subfolders))
                continue
            # The last one is taken first: reversed, so that folders are visited in natural order.
            pending += [(f"{prefix}{name}/", depth + 1) for name in reversed(sort_naturally(subfolders))]

    def _scan(self, prefix: str) -> tuple[list[str], list[str]]:
        subfolders: list[str] = []
        other_entries: list[tuple[str, str]] = []

        def add_other(entry: os.DirEntry[str]) -> bool:
            if entry.is_dir(follow_symlinks=False):
                subfolders.append(entry.name)
            else:
                other_entries.append((prefix + entry.name, "link" if entry.is_symlink() else "special"))
            return False

        try:
            with os.scandir(f"{self.root}/{prefix}") as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False) or add_other(entry)]
        except OSError as error:
            if not prefix:
                raise
            self.note("unreadable", prefix, detail=error.strerror or "")
            return [], []
        for path, code in sorted(other_entries):
            self.note(code, path)
        return names, subfolders

    def _add(self, prefix: str, names: list[str]) -> None:
        listing = f"{prefix}\n" + "\n".join(names)
        if not listing.isascii() and not is_text(listing):
            for name in [name for name in names if not is_text(prefix + name)]:
                self.undecodable.append(prefix + name)
                self.note("undecodable", prefix + name)
            names = [name for name in names if is_text(prefix + name)]
        system = _is_system_folder(prefix)
        if system or "\n." in listing or any(name in listing for name in _SYSTEM_FILES):
            stray = [name for name in names if system or name[0] == "." or name in _SYSTEM_FILES]
            if stray:
                self.note("stray", prefix + min(stray), len(stray))
            dropped = set(stray)
            names = [name for name in names if name not in dropped]
        names = sort_naturally(names)
        room = max(self.limits.files - len(self.paths), 0)
        if len(names) > room:
            self.note("cut_off", prefix, len(names) - room)
            names = names[:room]
        self.paths += [prefix + name for name in names] if prefix else names


def _split_name(prefix: str) -> tuple[str, list[str]]:
    """Return the folder above a folder, and the name of the folder in it."""
    above, _, name = prefix.rstrip("/").rpartition("/")
    return (f"{above}/" if above else ""), [name]


def _count_bytes(store: str) -> int:
    """Return the bytes of all chunks of a Zarr store."""
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(store) for name in names)


def _is_system_folder(prefix: str) -> bool:
    return ("." in prefix or "_" in prefix) and any(
        part.startswith(".") or part in _SYSTEM_FOLDERS for part in prefix.split("/")
    )


def walk(root: str | Path, limits: SurveyLimits | None = None) -> WalkedInventory:
    """Walk a folder. Whatever cannot be read becomes a note.

    Raises:
        OSError: the top folder itself cannot be read.
    """
    state = _Walk(Path(root), limits or SurveyLimits())
    was_enabled = gc.isenabled()
    gc.disable()  # hundreds of thousands of names make the collector run in vain: a third of a walk's time
    try:
        state.run()
    finally:
        if was_enabled:
            gc.enable()
    return _finish(state)


def _finish(state: _Walk) -> WalkedInventory:
    paths = state.paths
    stamp = hashlib.blake2b("\n".join(paths).encode(), digest_size=16)
    stamp.update("\n".join(sorted(state.undecodable)).encode("utf-8", "surrogateescape"))
    step = 1 if len(paths) <= MAX_MEASURED else MEASURED_EACH
    sizes: list[int | None] = [None] * len(paths)
    total = measured_files = 0
    for at in range(0, len(paths), step):
        try:
            stat = os.lstat(f"{state.root}/{paths[at]}")
        except OSError:
            continue
        size = _count_bytes(f"{state.root}/{paths[at]}") if S_ISDIR(stat.st_mode) else stat.st_size
        sizes[at] = size
        total += size
        measured_files += 1
        stamp.update(b"%d %d\n" % (size, stat.st_mtime_ns))
        if not size:
            state.note("empty", paths[at])
        elif stat.st_size > 2**20 and stat.st_blocks * 512 < stat.st_size // 16:
            state.note("sparse", paths[at])
        elif not stat.st_mode & 0o444:
            state.note("unreadable", paths[at])
    paths, sizes = _open_archives(state, paths, sizes)
    files = pl.DataFrame({"path": paths, "bytes": sizes}, schema={"path": pl.String, "bytes": pl.Int64})
    return WalkedInventory(
        root=state.root,
        files=files,
        undecodable=tuple(sorted(state.undecodable)),
        notes={code: tuple(sorted(examples)) for code, examples in sorted(state.examples.items())},
        folders=state.folders,
        fingerprint=stamp.hexdigest(),
        bytes=total if step == 1 else int(total * len(paths) / max(measured_files, 1)),
        exact=step == 1,
        counts=dict(sorted(state.counts.items())),
        details=state.details,
    )


def _open_archives(state: _Walk, paths: list[str], sizes: list[int | None]) -> tuple[list[str], list[int | None]]:
    """Put the members of archives in their place; an archive that cannot be listed stays a file, with a note."""
    if not any(is_archive(path) for path in paths):
        return paths, sizes
    entries: list[tuple[str, int | None]] = []
    for path, size in zip(paths, sizes, strict=True):
        if not is_archive(path):
            entries.append((path, size))
            continue
        try:
            members = sorted(list_members(Path(state.root, path)))
        except (DataError, OSError) as error:
            state.note("damaged", path, detail=str(error))
            entries.append((path, size))
            continue
        names = {name: size for name, size in members if not _is_stray(name)}
        ordered = sort_naturally(list(names))
        entries += [(f"{path}/{name}", names[name]) for name in ordered] or [(path, size)]
    return [path for path, _ in entries], [size for _, size in entries]


def _is_stray(name: str) -> bool:
    base = name.rpartition("/")[2]
    return base.startswith(".") or base in _SYSTEM_FILES or _is_system_folder(name.rpartition("/")[0] + "/")


def sort_naturally(names: list[str]) -> list[str]:
    """Sort names so that `slice2` comes before `slice10`. Names of one length are in that order once they are sorted as texts."""
    ordered = sorted(names)
    if len(set(map(len, ordered))) < 2:
        return ordered
    if len(ordered) < 2_000:
        ordered.sort(key=_natural_key)
        return ordered
    frame = pl.DataFrame({"name": ordered})
    padded = (
        pl.col("name")
        .str.replace_all(r"([0-9]+)", "00000000000000000000$1")
        .str.replace_all(r"[0-9]*([0-9]{20})", "$1")
    )
    return frame.sort(padded, maintain_order=True)["name"].to_list()


def _natural_key(name: str) -> str:
    return _DIGITS.sub(lambda digits: digits[0][-20:].zfill(20), name)
