"""File locks that end with their process, and a test for a lock that never takes it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import struct
from pathlib import Path

_FLOCK = "hhqqi4x"
"""`struct flock`: type, whence, start, length (0: all of the file), process."""


def acquire_lock(file: Path) -> int | None:
    """Return the handle that holds the lock until it is closed or the process ends; None if another process holds it.

    The owner (process and host) is written to the file.

    Raises:
        OSError: the file cannot be written, or its file system has no locks.
    """
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    with contextlib.suppress(OSError):  # a full disk must not prevent a run from being resumed
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()} {platform.node()}\n".encode())
    return handle


def is_locked(file: Path) -> bool:
    """Return whether a process holds the lock now, without ever taking it."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # never locked, or another user's file: unknown
        return False
    try:
        request = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, request)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(handle)


def read_lock_owner(file: Path) -> str:
    """Return the process id of the last lock owner, with its host if that is another one; '' if unknown."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            pid, _, host = stream.read(300).strip().partition(" ")
    except OSError:
        return ""
    if not pid.isdigit():
        return ""
    return pid if host == platform.node() else f"{pid} on {host}"
