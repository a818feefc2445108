"""Linux calls that Python does not wrap: prctl, seccomp filters, capset and raw system calls."""

from __future__ import annotations

import ctypes
import os

from .quiet import suppress

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_AMBIENT_CLEAR_ALL = 4
_NOROOT_LOCKED = 0b11  # SECBIT_NOROOT and its lock: executing a file as uid 0 restores no capability
_CAPABILITY_VERSION = 0x20080522
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_INSTRUCTION_BYTES = 8  # size of struct sock_filter

_libc = ctypes.CDLL(None, use_errno=True)


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def prctl(option: int, value: int = 0, third: int = 0) -> None:
    """Call prctl(2). Raises OSError with the errno of the kernel."""
    numbers = [ctypes.c_ulong(n) for n in (value, third, 0, 0)]
    if _libc.prctl(ctypes.c_int(option), *numbers) < 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}): {os.strerror(ctypes.get_errno())}")


def syscall(number: int, *arguments: object) -> int:
    """Make a raw system call. Raises OSError with the errno of the kernel."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}: {os.strerror(ctypes.get_errno())}")
    return result


def become_subreaper() -> None:
    """Make this process adopt orphaned descendants as its children, so that they can be found and killed."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def raise_priority() -> None:
    """Set a real-time priority if the user may (root), so that a fork bomb cannot starve its own guards.

    This matters for root, to whom RLIMIT_NPROC does not apply. Child processes get the usual priority.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def drop_capabilities() -> None:
    """Give up all capabilities permanently: uid 0 keeps only the rights of an ordinary owner of its files.

    Without this, root could read the environment of any process even from inside a Landlock domain.
    """
    with suppress(OSError):  # not allowed for an ordinary user, who has nothing to drop
        prctl(PR_SET_SECUREBITS, _NOROOT_LOCKED)
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EPERM: not allowed to drop it; EINVAL: behind the last capability
    with suppress(OSError):
        prctl(PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    header = _CapHeader(_CAPABILITY_VERSION, 0)
    no_capabilities = (_CapData * 2)()
    if _libc.capset(ctypes.byref(header), ctypes.byref(no_capabilities)) < 0:
        raise OSError(ctypes.get_errno(), "capset: the capabilities could not be dropped")


def install_filter(code: bytes) -> None:
    """Install a system call filter for this thread and its children. Raises OSError.

    No-new-privileges must be set. The caller of the guards builds the filter, so that they need no table of calls.
    """
    buffer = ctypes.create_string_buffer(code, len(code))
    header = _FilterProgram(len(code) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))
