"""Landlock rules: which paths may be read and written, no TCP, and no signals or abstract sockets to the outside.

Numbers from linux/landlock.h; https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import ctypes
import os
import stat

from .kernel import syscall

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # system call numbers, the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
_FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_RIGHTS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of file rights of each version; 16 in later ones
_TCP = 0b11  # bind and connect, from ABI 4
_SCOPES = 0b11  # abstract unix sockets and signals, from ABI 6

READ = EXECUTE | READ_FILE | READ_DIR
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_abi() -> int:
    """Return the Landlock version of the kernel, or 0 if it has none or has it switched off."""
    try:
        return syscall(_CREATE, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def file_rights(version: int) -> int:
    """Return the mask of the file rights that Landlock `version` governs."""
    return (1 << _RIGHTS_OF_ABI.get(version, 16)) - 1


def restrict_process(read: Iterable[str], write: Iterable[str], devices: Iterable[str]) -> None:
    """Confine this thread and its children; no-new-privileges must be set.

    Paths that do not exist are skipped. Raises OSError if the kernel refuses.
    """
    version = landlock_abi()
    rights = file_rights(version)
    attribute = _Ruleset(rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscall(_CREATE, ctypes.byref(attribute), size, 0)
    try:
        for paths, allowed in ((read, READ), (write, rights & ~_MAKE_CHAR & ~_MAKE_BLOCK), (devices, DEVICE)):
            for path in paths:
                _allow_path(ruleset, path, allowed & rights)
        syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow_path(ruleset: int, path: str, allowed: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            allowed &= _FOR_FILES
        rule = _Beneath(allowed, parent)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(parent)
