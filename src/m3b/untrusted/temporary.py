"""Temporary folders that end with the process that made them: by itself, or, where it was killed, when the next one sweeps.

The process holds a lock on its folder, which the kernel lets go whatever ends the process. A lock that can be had says
that the folder is nobody's, at once and for processes of other containers too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import tempfile
import time
import weakref
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Delete a folder whatever was built in it: however deep, whatever its permissions; links are not followed.

    What cannot be deleted stays; nothing is raised.
    """
    with contextlib.suppress(OSError):
        if not folder.is_symlink() and folder.is_dir():
            os.chmod(folder, 0o700)
            _remove_contents(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            folder.rmdir()
        else:
            folder.unlink()


def _remove_contents(top: int) -> None:
    """Delete all that is below a descriptor, which is closed. Deep folders are moved up to the top first, so that
    neither recursion nor the length of a path grows with the depth."""
    try:
        n_moved, prefix = 0, f".{secrets.token_hex(8)}-"
        while names := os.listdir(top):
            n_before = n_moved
            for name in names:
                n_moved += _remove_entry(top, name, prefix, n_moved)
            if n_moved == n_before and os.listdir(top):
                return  # what is left cannot be deleted
    finally:
        os.close(top)


def _remove_entry(top: int, name: str, prefix: str, n_moved: int) -> int:
    """Delete one entry of the top folder, or move its sub-folders up beside it; returns how many steps were made."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=top)
        return 1
    n_steps = 0
    with contextlib.suppress(OSError):
        os.chmod(name, 0o700, dir_fd=top)
        subfolder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        try:
            for entry in os.listdir(subfolder):
                try:
                    os.unlink(entry, dir_fd=subfolder)
                except OSError:
                    with contextlib.suppress(OSError):
                        os.chmod(entry, 0o700, dir_fd=subfolder, follow_symlinks=True)
                    os.rename(entry, f"{prefix}{n_moved + n_steps}", src_dir_fd=subfolder, dst_dir_fd=top)
                n_steps += 1
        finally:
            os.close(subfolder)
        os.rmdir(name, dir_fd=top)
        n_steps += 1
    return n_steps


_LOCKED_NAME = re.compile(r"m3b-[a-z]+-held-\w+")
_PID_NAME = re.compile(r"m3b-[a-z]+-(\d+)-\w+")
MIN_ORPHAN_AGE_S = 3600.0
"""Of a folder on a file system without locks, which has the number of its process in its name. A process of another
container has no number here: only what was left alone this long is nobody's."""


class TemporaryFolder:
    """A folder among the system's temporary files, removed by `close`, at the end of a `with` block or of Python.

    Args:
        kind: a word of small letters for its name.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, kind: str) -> None:
        self.path, lock = _make_folder(kind)
        self.handles = () if lock is None else (lock,)
        """The lock; a process that inherits it holds the folder too."""
        self.close = weakref.finalize(self, _remove_folder, self.path, self.handles)

    def hand_over(self) -> None:
        """Leave the folder to a process that has inherited the handles."""
        self.close.detach()
        _close_handles(self.handles)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_folder(kind: str) -> tuple[Path, int | None]:
    while True:
        path = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"m3b-{kind}-held-")))
        try:
            lock = _lock_folder(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # somebody sweeps, and had it first, or removed it already
        except OSError:  # a file system without locks
            path.rmdir()
            return Path(os.path.realpath(tempfile.mkdtemp(prefix=f"m3b-{kind}-{os.getpid()}-"))), None
        if path.exists():
            return path, lock
        os.close(lock)  # it was swept before it was locked


def _lock_folder(path: Path) -> int:
    """A handle that holds the folder until it is closed, or this process ends.

    Raises:
        BlockingIOError: another process holds it.
        OSError: it cannot be locked.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _remove_folder(path: Path, handles: tuple[int, ...]) -> None:
    remove_tree(path)
    _close_handles(handles)


def _close_handles(handles: tuple[int, ...]) -> None:
    for handle in handles:
        os.close(handle)


def sweep_temporary() -> None:
    """Remove this user's temporary folders that processes left which were killed."""
    for folder in Path(tempfile.gettempdir()).glob("m3b-*-*-*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.getuid():
                continue
            if _LOCKED_NAME.fullmatch(folder.name):
                _remove_folder(folder, (_lock_folder(folder),))
            elif pid_match := _PID_NAME.fullmatch(folder.name):
                is_old = time.time() - status.st_mtime > MIN_ORPHAN_AGE_S
                if is_old and not Path("/proc", pid_match[1]).exists():
                    remove_tree(folder)
