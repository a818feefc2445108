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
from m3b.reader.worker_job import WorkerJob, load_job_function
from m3b.sandbox import Mounts, Sandbox, choose_sandbox
from m3b.untrusted.file_watch import FileWatch, watch_files

Q = TypeVar("Q")
A = TypeVar("A")
MAX_MOUNTED_FOLDERS = 64
"""Folders that are shown to a reader one by one; of more, what they have in common."""


class InProcessReader(Reader):
    """Answers in m3b's own process, where no other can be confined or limited: on systems that are not Linux."""

    def __init__(self) -> None:
        self.starts = self.held_bytes = 0

    def run_job(
        self,
        job: WorkerJob[Q, A],
        job_input: Q,
        *,
        stall_timeout_s: float | None = None,
        on_open: Callable[[str], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> A:
        """As `Reader.ask`, with whatever the function raises; nothing ends a file that hangs."""
        watch = FileWatch(on_open or _ignore, on_progress or _ignore)
        with watch_files(watch):
            answer: A = load_job_function(job.function_path)[0](job_input)
        return answer

    def start(self) -> None:
        """Nothing is started."""

    def close(self) -> None:
        """Nothing was started."""


def _ignore(*_: object) -> None:
    pass


@contextmanager
def open_reader(paths: Iterable[Path], writable: Sequence[Path] = ()) -> Iterator[Reader]:
    """A reader that sees these folders and files.

    It is confined by the sandbox that `auto` finds; where none works it is still a process of its own with limits and a
    clean environment.

    Args:
        paths: folders, and files, of which the folder is seen: headers name files beside them. Links are resolved.
        writable: folders that it may write to.
    """
    if sys.platform != "linux":
        yield InProcessReader()
        return
    with Reader(_choose_sandbox(), Mounts(read=_folders_to_mount(paths), write=tuple(writable))) as reader:
        yield reader


def _choose_sandbox() -> Sandbox:
    try:
        return choose_sandbox("auto")
    except SandboxError:
        return choose_sandbox("off")


def _folders_to_mount(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Folders in which all of these lie, links resolved; of one that lies directly below `/`, the file alone."""
    folders = dict.fromkeys(
        folder
        for path in paths
        for folder in (_folder_to_mount(path), _folder_to_mount(path.resolve()))
        if folder.exists()
    )
    if len(folders) > MAX_MOUNTED_FOLDERS:
        common = Path(os.path.commonpath(list(folders)))
        if common != Path("/"):
            return (common,)
    return tuple(folders)


def _folder_to_mount(path: Path) -> Path:
    resolved = Path(os.path.realpath(path.parent), path.name)
    return resolved if path.is_dir() or resolved.parent == Path("/") else resolved.parent


def to_reader_path(path: str) -> str:
    """A path as the reader sees it: absolute, all folders on the way resolved, the file's own name kept.

    Args:
        path: of a file or folder, or of an item of an archive (`scans.npz#images[3]`).
    """
    name, separator, item = path, "", ""
    if not os.path.lexists(path):
        name, separator, item = path.partition("#")
    parent, file_name = os.path.split(os.path.abspath(name))
    return f"{os.path.join(os.path.realpath(parent), file_name)}{separator}{item}"


def file_of_reader_path(path: str) -> Path:
    """The file or folder of a path that `to_reader_path` gave."""
    return Path(path if os.path.lexists(path) else path.partition("#")[0])
