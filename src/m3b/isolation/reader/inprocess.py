"""Readers for commands outside of runs, which open the user's own files, and paths as a reader sees them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from m3b.errors import SandboxError
from m3b.isolation.reader.client import Reader
from m3b.isolation.reader.worker_job import WorkerJob, load_job_function
from m3b.isolation.sandbox import Mounts, Sandbox, choose_sandbox
from m3b.isolation.untrusted.file_watch import FileWatch, watch_files

Q = TypeVar("Q")
A = TypeVar("A")
MAX_MOUNTED_FOLDERS = 64
"""Maximum number of folders that are mounted one by one; if there are more, their common parent is mounted."""


class InProcessReader(Reader):
    """Runs worker jobs in the process of m3b, on systems other than Linux, where no process can be confined."""

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
        """Run a worker job as `Reader.run_job`; raise any error of the function. A file that hangs is not ended."""
        watch = FileWatch(on_open or _ignore, on_progress or _ignore)
        with watch_files(watch):
            answer: A = load_job_function(job.function_path)[0](job_input)
        return answer

    def start(self) -> None:
        """Do nothing: there is no process to start."""

    def close(self) -> None:
        """Do nothing: there is no process to end."""


def _ignore(*_: object) -> None:
    pass


@contextmanager
def open_reader(paths: Iterable[Path], writable: Sequence[Path] = ()) -> Iterator[Reader]:
    """Yield a reader that sees these folders and files.

    It is confined by the sandbox that `auto` finds. If none works it is still a separate process with limits and a
    clean environment.

    Args:
        paths: folders, and files; of a file, the whole folder is visible, because headers name files next to them.
            Links are resolved.
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
    """Return the folders that contain these paths, links resolved; for a path directly below `/`, the path itself."""
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
    """Return a path as the reader sees it: absolute, all folders above it resolved, the name of the file unchanged.

    Args:
        path: path of a file, a folder or an archive item (`scans.npz#images[3]`).
    """
    name, separator, item = path, "", ""
    if not os.path.lexists(path):
        name, separator, item = path.partition("#")
    parent, file_name = os.path.split(os.path.abspath(name))
    return f"{os.path.join(os.path.realpath(parent), file_name)}{separator}{item}"


def file_of_reader_path(path: str) -> Path:
    """Return the file or folder of a path from `to_reader_path`, without the archive item."""
    return Path(path if os.path.lexists(path) else path.partition("#")[0])
