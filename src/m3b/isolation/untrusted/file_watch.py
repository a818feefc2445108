"""Announcement of each file before a library opens it, so that a file that crashes the process can be named.

In the reader process (`m3b.isolation.reader`) a watch sends the name to the client. A file that crashed an earlier reader is
refused before any library opens it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from m3b.errors import DataError


@dataclass(frozen=True)
class FileWatch:
    """Callbacks and rules for files that are opened.

    Args:
        on_open: called with the absolute path of the file that is opened next.
        on_progress: called with the finished and the total amount.
        refused_files: absolute paths of refused files -> error message.
        one_at_a_time: whether files must be opened one after another, so that a file that crashes the process is known.
    """

    on_open: Callable[[str], None]
    on_progress: Callable[[int, int], None]
    refused_files: Mapping[str, str] = field(default_factory=dict)
    one_at_a_time: bool = False


_active_watches: list[FileWatch] = []


def announce_opening(*parts: str | os.PathLike[str]) -> None:
    """Announce that the file with the path of the joined `parts` is opened next.

    Raises:
        DataError: opening this file has crashed a reader before; the message says how.
    """
    if not _active_watches:
        return
    path = os.path.abspath(os.path.join(*parts))
    for watch in _active_watches:
        if path in watch.refused_files:
            raise DataError(watch.refused_files[path])
        watch.on_open(path)


def report_progress(done: int, total: int) -> None:
    """Report the progress of a long job."""
    for watch in _active_watches:
        watch.on_progress(done, total)


def should_open_one_by_one() -> bool:
    """Return whether files must be opened one after another."""
    return any(watch.one_at_a_time for watch in _active_watches)


@contextmanager
def watch_files(watch: FileWatch) -> Iterator[None]:
    """Activate a watch for the `with` block, for files that are opened by any thread."""
    _active_watches.append(watch)
    try:
        yield
    finally:
        _active_watches.remove(watch)


def mute_watches() -> None:
    """Keep the watches of a forked process from reporting; files that crashed an earlier reader are still refused."""
    _active_watches[:] = [replace(watch, on_open=_ignore, on_progress=_ignore) for watch in _active_watches]


def _ignore(*_: object) -> None:
    pass
