"""Who is at work in a folder: a lock that ends with its process, and a look at it that never takes it."""

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
    """The handle that holds the lock until it is closed or the process ends; None where another one holds it.

    The file then names the owner: process and host.

    Raises:
        OSError: the file cannot be written, or its file system knows no locks.
    """
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    with contextlib.suppress(OSError):  # a full disk must not keep a run from being taken up
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()} {platform.node()}\n".encode())
    return handle


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock now. Only looks: whoever wants the lock at this moment gets it."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # never locked, or another user's: nothing can be known
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
    """The number of the process that took the lock last, and its host if that is another one; empty if unknown."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            pid, _, host = stream.read(300).strip().partition(" ")
    except OSError:
        return ""
    if not pid.isdigit():
        return ""
    return pid if host == platform.node() else f"{pid} on {host}"
