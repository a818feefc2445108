"""A reader outside of runs, for commands that open files of the user's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from m3b.errors import SandboxError
from m3b.reader.client import Reader
from m3b.reader.request import Request, answering
from m3b.sandbox import Mounts, Sandbox, choose
from m3b.untrusted import current

Q = TypeVar("Q")
A = TypeVar("A")
MAX_PLACES = 64
"""Folders that are shown to a reader one by one; of more, what they have in common."""


class Here(Reader):
    """Answers in m3b's own process, where no other can be confined or limited: on systems that are not Linux."""

    def __init__(self) -> None:
        self.starts = self.held = 0

    def ask(
        self,
        request: Request[Q, A],
        question: Q,
        *,
        patience_s: float | None = None,
        opening: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> A:
        """As `Reader.ask`, with whatever the function raises; nothing ends a file that hangs."""
        file_watch = current.Watch(opening or _ignore, progress or _ignore)
        with current.watched(file_watch):
            answer: A = answering(request.name)[0](question)
        return answer

    def warm(self) -> None:
        """Nothing is started."""

    def close(self) -> None:
        """Nothing was started."""


def _ignore(*_: object) -> None:
    pass


@contextmanager
def reading(places: Iterable[Path], write: Sequence[Path] = ()) -> Iterator[Reader]:
    """A reader that sees these folders and files.

    It is confined by the sandbox that `auto` finds; where none works it is still a process of its own with limits and a
    clean environment.

    Args:
        places: folders, and files, of which the folder is seen: headers name files beside them. Links are resolved.
        write: folders that it may write to.
    """
    if sys.platform != "linux":
        yield Here()
        return
    with Reader(_sandbox(), Mounts(read=_seen(places), write=tuple(write))) as reader:
        yield reader


def _sandbox() -> Sandbox:
    try:
        return choose("auto")
    except SandboxError:
        return choose("off")


def _seen(places: Iterable[Path]) -> tuple[Path, ...]:
    """Folders in which all of these lie, links resolved; of one that lies directly below `/`, the file alone."""
    folders = dict.fromkeys(
        folder for path in places for folder in (_own(path), _own(path.resolve())) if folder.exists()
    )
    if len(folders) > MAX_PLACES:
        common = Path(os.path.commonpath(list(folders)))
        if common != Path("/"):
            return (common,)
    return tuple(folders)


def _own(place: Path) -> Path:
    resolved = Path(os.path.realpath(place.parent), place.name)
    return resolved if place.is_dir() or resolved.parent == Path("/") else resolved.parent


def placed(path: str) -> str:
    """A path as the reader sees it: absolute, all folders on the way resolved, the file's own name kept.

    Args:
        path: of a file or folder, or of an item of an archive (`scans.npz#images[3]`).
    """
    name, separator, item = path, "", ""
    if not os.path.lexists(path):
        name, separator, item = path.partition("#")
    parent, file_name = os.path.split(os.path.abspath(name))
    return f"{os.path.join(os.path.realpath(parent), file_name)}{separator}{item}"


def file_of(path: str) -> Path:
    """The file or folder of a path that `placed` gave."""
    return Path(path if os.path.lexists(path) else path.partition("#")[0])
