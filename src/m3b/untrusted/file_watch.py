"""Which file is being read just now, told before a library opens it, so that who waits outside can name it afterwards.

In the reader process (`m3b.reader`) a watch sends the name out. A file that ended an earlier reader is refused here,
before any library sees it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from m3b.errors import DataError


@dataclass(frozen=True)
class FileWatch:
    """Who is told of files that are opened.

    Args:
        on_open: takes the absolute path of the file that is opened next.
        on_progress: takes how much is done, and of how much.
        refused_files: absolute paths that are refused, each with the words that say why.
        one_at_a_time: whether files shall be opened one after another, so that the one that ends the process is known.
    """

    on_open: Callable[[str], None]
    on_progress: Callable[[int, int], None]
    refused_files: Mapping[str, str] = field(default_factory=dict)
    one_at_a_time: bool = False


_active_watches: list[FileWatch] = []


def announce_opening(*parts: str | os.PathLike[str]) -> None:
    """Say that the file `parts` joined name is opened next.

    Raises:
        DataError: opening this file has ended a reader before; the message says how.
    """
    if not _active_watches:
        return
    path = os.path.abspath(os.path.join(*parts))
    for watch in _active_watches:
        if path in watch.refused_files:
            raise DataError(watch.refused_files[path])
        watch.on_open(path)


def report_progress(done: int, total: int) -> None:
    """Say how far a long piece of work has come."""
    for watch in _active_watches:
        watch.on_progress(done, total)


def should_open_one_by_one() -> bool:
    """Whether files shall be opened one after another."""
    return any(watch.one_at_a_time for watch in _active_watches)


@contextmanager
def watch_files(watch: FileWatch) -> Iterator[None]:
    """Tell of every file that is opened inside, by any thread."""
    _active_watches.append(watch)
    try:
        yield
    finally:
        _active_watches.remove(watch)
