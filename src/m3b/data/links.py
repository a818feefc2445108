"""Links inside raw data: those that stay below the given data folders are followed, those that lead out are not.

What a link leads to may be anything that the user of m3b can read. Stores beside the data (git-annex, datalad) are
honest reasons for such links; then the user says so by giving the store as data too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from m3b.data.records import Record

RAW = "data"
WHAT_TO_DO = (
    "Give --data a folder that holds both, or the folder that the links lead to as one more --data, or a copy without "
    "links (cp -rL)."
)


class Inside:
    """Which paths lie, all links resolved, below one of these folders.

    The folders of paths are resolved once each, so that asking for 200,000 files in few folders costs little.
    """

    def __init__(self, roots: Iterable[str | Path]) -> None:
        self._roots = tuple(f"{os.path.realpath(root).rstrip('/')}/" for root in roots)
        self._folders: dict[str, str] = {}

    def real(self, path: str) -> str:
        """The path with all links resolved."""
        above, _, name = path.rpartition("/")
        if above not in self._folders:
            self._folders[above] = os.path.realpath(above or "/")
        place = f"{self._folders[above].rstrip('/')}/{name}"
        return os.path.realpath(place) if os.path.islink(place) else place

    def __contains__(self, path: str) -> bool:
        return f"{self.real(path)}/".startswith(self._roots)


def roots_of(base: Path) -> list[Path]:
    """The working directory and the folders of raw data that `base/data` leads to."""
    raw = base / RAW
    return [base, *(raw.iterdir() if raw.is_dir() else ())]


@dataclass(frozen=True)
class Leading:
    """Files of cases that are links out of the data; `first` leads to `target`, and `cases` of all cases have one."""

    files: int
    cases: int
    first: str
    target: str


def leading_out(records: Sequence[Record], base: Path) -> Leading | None:
    """Raw files of these cases, members of their folders too, that are links to a place which is not given as data."""
    data_folders, files, cases = Inside(roots_of(base)), dict[str, str](), 0
    for record in records:
        leading_paths: list[str] = []
        for path in (*record.images, *record.masks):
            leading_paths += out_of(path, base, data_folders) if path.startswith(f"{RAW}/") else []
        files.update((path, data_folders.real(f"{base}/{path}")) for path in leading_paths)
        cases += bool(leading_paths)
    if not files:
        return None
    first = next(iter(files))
    return Leading(len(files), cases, first, files[first])


def out_of(path: str, base: Path, inside: Inside) -> list[str]:
    """What of an image lies elsewhere: the file that a path of a record names, the archive of an item, or members of
    a folder."""
    for name in dict.fromkeys((path, path.split("#", 1)[0])):  # a file's own name may hold a # too
        if f"{base}/{name}" not in inside:
            return [name]
    place = f"{base}/{path}"
    if not os.path.isdir(place):
        return []
    with os.scandir(place) as entries:
        return [
            f"{path}/{entry.name}" for entry in entries if entry.is_symlink() and f"{place}/{entry.name}" not in inside
        ]
