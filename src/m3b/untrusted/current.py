"""Which file is being read just now, told before a library opens it, so that who waits outside can name it afterwards.

In the reader process (`m3b.reader`) the watcher sends the name out. A file that ended an earlier reader is refused here,
before any library sees it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from m3b.errors import DataError

_watchers: list[Callable[[str], None]] = []
_broken: dict[str, str] = {}


def opening(*parts: str | os.PathLike[str]) -> None:
    """Say that the file `parts` joined name is opened next.

    Raises:
        DataError: opening this file has ended a reader before; the message says how.
    """
    if not _watchers:
        return
    path = os.path.abspath(os.path.join(*parts))
    if path in _broken:
        raise DataError(_broken[path])
    for watcher in _watchers:
        watcher(path)


@contextmanager
def watched(watcher: Callable[[str], None], broken: Mapping[str, str]) -> Iterator[None]:
    """Tell `watcher` of every file that is opened inside.

    Args:
        broken: absolute paths that are refused, each with the words that say why.
    """
    _watchers.append(watcher)
    _broken.update(broken)
    try:
        yield
    finally:
        _watchers.remove(watcher)
        for path in broken:
            _broken.pop(path, None)
