"""Temporary folders that are removed with their process, or, if it was killed, by the next call of `sweep_temporary`.

The process holds a lock on its folder, which the kernel releases however the process ends. If the lock is free, the
folder is orphaned; this holds at once, and for processes of other containers too.
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
    """Delete a folder of any depth and with any permissions. Links are not followed.

    What cannot be deleted is left; no error is raised.
    """
    with contextlib.suppress(OSError):
        if not folder.is_symlink() and folder.is_dir():
            os.chmod(folder, 0o700)
            _remove_contents(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            folder.rmdir()
        else:
            folder.unlink()


def _remove_contents(top: int) -> None:
    """Delete everything in the folder of a descriptor, and close it.

    Deep folders are moved up to the top first, so that neither recursion nor the length of paths grows with the depth.
    """
    try:
        n_moved, prefix = 0, f".{secrets.token_hex(8)}-"
        while names := os.listdir(top):
            n_before = n_moved
            for name in names:
                n_moved += _remove_entry(top, name, prefix, n_moved)
            if n_moved == n_before and os.listdir(top):
                return  # the rest cannot be deleted
    finally:
        os.close(top)


def _remove_entry(top: int, name: str, prefix: str, n_moved: int) -> int:
    """Delete one entry of the top folder, or move its sub-folders into the top folder; return the number of steps."""
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
"""Minimum age of an orphaned folder on a file system without locks, which has its process id in its name.

Process ids of other containers are not visible, so only a folder that was not changed for this long is orphaned."""


class TemporaryFolder:
    """A folder in the system's temporary folder, removed by `close`, at the end of a `with` block or of Python.

    Args:
        kind: a word in lower case that becomes part of its name.

    Raises:
        OSError: it cannot be created.
    """

    def __init__(self, kind: str) -> None:
        self.path, lock = _make_folder(kind)
        self.handles = () if lock is None else (lock,)
        """The descriptor of the lock; a process that inherits it keeps the folder too."""
        self.close = weakref.finalize(self, _remove_folder, self.path, self.handles)

    def hand_over(self) -> None:
        """Hand the folder over to a process that has inherited the handles."""
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
            continue  # a sweep has locked it first, or has removed it already
        except OSError:  # a file system without locks
            path.rmdir()
            return Path(os.path.realpath(tempfile.mkdtemp(prefix=f"m3b-{kind}-{os.getpid()}-"))), None
        if path.exists():
            return path, lock
        os.close(lock)  # a sweep removed it before it was locked


def _lock_folder(path: Path) -> int:
    """Lock a folder; return the descriptor that holds the lock until it is closed or this process ends.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the folder cannot be locked.
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
    """Remove this user's temporary folders that were left by killed processes."""
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
