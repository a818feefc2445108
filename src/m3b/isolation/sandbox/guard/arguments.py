"""The part of the system call filter that examines arguments: one block of instructions per call, ending in an answer.

A filter can examine numbers only, not the memory behind a pointer.
"""

from __future__ import annotations

import errno

from .syscalls import EXAMINED_CALLS

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .job import SeccompPolicy

Instruction = tuple[int, int, int, int]
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, RETURN, AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
ALLOW, ERRNO = 0x7FFF0000, 0x00050000

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TERMINAL_IOCTLS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX insert input into another process's terminal
_FLAG_IOCTLS = (0x401C5820,)  # FS_IOC_FSSETXATTR; the others of its family are harmless
_FILE_IOCTLS = {0x66: (0x80086601, 0xC020660B), 0x76: (0x80087601,), 0x94: (0x40049409, 0x4020940D)}
"""Families of ioctls that change a file or folder opened for reading, with their allowed members.

The families concern flags, version, fs-verity, encryption and subvolumes. Allowed are members that only read
(FS_IOC_GETFLAGS, FIEMAP, GETVERSION) or need a file opened for writing (FICLONE, FICLONERANGE)."""
_IOCTL_FAMILY_MASK = 0xFF00
_DENIED_FCNTLS = (
    1024,
    1026,
)  # F_SETLEASE makes others wait for 45 s when they open the file; F_NOTIFY watches a folder
_SET_ID = 0o6000  # set-user-ID and set-group-ID: whoever executes the file gets the rights of its owner or group
_CREATES = 0x400040  # O_CREAT, and the bit of O_TMPFILE that it shares with no other flag
_AF_UNIX = 1  # a constant here, because importing socket takes long
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5
_SOCKET_TYPE_MASK = 0xF  # selects the socket type without its flags
_OWN_PROCESS_CALLS = (
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
    "sched_setaffinity",
    "migrate_pages",
    "move_pages",
)

_ALLOWED: Instruction = (RETURN, 0, 0, ALLOW)
_DENIED: Instruction = (RETURN, 0, 0, ERRNO | errno.EPERM)
_PRETENDED: Instruction = (RETURN, 0, 0, ERRNO)
_NOT_IMPLEMENTED: Instruction = (RETURN, 0, 0, ERRNO | errno.ENOSYS)


def build_argument_checks(policy: SeccompPolicy, column: int) -> list[Instruction]:
    """Return the blocks of all examined calls; `column` selects the call numbers of the machine."""
    program = _call_block("clone3", column, [_NOT_IMPLEMENTED]) + _call_block("openat2", column, [_NOT_IMPLEMENTED])
    program += _call_block("clone", column, [_load_argument(0), (JUMP_SET, 0, 1, _NEW_NAMESPACES), _DENIED, _ALLOWED])
    program += _check_sockets(policy, column) + _check_modes(column)
    program += _call_block("ioctl", column, _check_ioctls())
    program += _call_block("fcntl", column, [_load_argument(1), *_answer_values(_DENIED_FCNTLS, _DENIED), _ALLOWED])
    return program + (_check_own_processes(column) if policy["shares_host"] else [])


def _load_argument(index: int, high: bool = False) -> Instruction:
    """Return the instruction that loads the low or high word of an argument (struct seccomp_data, little-endian)."""
    return (LOAD, 0, 0, 16 + 8 * index + 4 * high)


def _call_block(name: str, column: int, body: Sequence[Instruction]) -> list[Instruction]:
    """Return the block of one call; empty on a machine without that call."""
    number = EXAMINED_CALLS[name][column]
    return [] if number is None else [(JUMP_EQUAL, 0, len(body), number), *body]


def _answer_values(values: Sequence[int], answer: Instruction) -> list[Instruction]:
    """Return instructions that give `answer` if the loaded word is one of these values."""
    return [instruction for value in values for instruction in ((JUMP_EQUAL, 0, 1, value), answer)]


def _check_ioctls() -> list[Instruction]:
    """Return the block body that denies inserting terminal input and changing files opened for reading."""
    program = [_load_argument(1), *_answer_values((*_TERMINAL_IOCTLS, *_FLAG_IOCTLS), _DENIED)]
    program += _answer_values([request for requests in _FILE_IOCTLS.values() for request in requests], _ALLOWED)
    return [
        *program,
        (AND, 0, 0, _IOCTL_FAMILY_MASK),
        *_answer_values([family << 8 for family in _FILE_IOCTLS], _DENIED),
        _ALLOWED,
    ]


def _check_sockets(policy: SeccompPolicy, column: int) -> list[Instruction]:
    """Return the blocks that limit socket families.

    On a shared host datagram sockets are denied too, because they reach a path without a connection.
    """
    streams: list[Instruction] = [_ALLOWED]
    if policy["shares_host"]:
        streams = [_load_argument(1), (AND, 0, 0, _SOCKET_TYPE_MASK)]
        for kind in (_SOCK_STREAM, _SOCK_SEQPACKET):
            streams += [(JUMP_EQUAL, 0, 1, kind), _ALLOWED]
        streams.append(_DENIED)
    allowed: list[Instruction] = [_load_argument(0)]
    for family in policy["families"]:
        body = streams if family == _AF_UNIX else [_ALLOWED]
        allowed += [(JUMP_EQUAL, 0, len(body), family), *body]
    pair = [_load_argument(0), (JUMP_EQUAL, 1, 0, _AF_UNIX), _DENIED, *streams]
    return _call_block("socket", column, [*allowed, _DENIED]) + _call_block("socketpair", column, pair)


def _check_modes(column: int) -> list[Instruction]:
    """Return the blocks that keep files from getting a set-user or set-group bit.

    Changes of mode with such a bit only pretend to succeed; creating files with one is denied.
    """
    program: list[Instruction] = []
    for name, index in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        program += _call_block(name, column, [_load_argument(index), (JUMP_SET, 0, 1, _SET_ID), _PRETENDED, _ALLOWED])
    for name, index in (("creat", 1), ("mknod", 1), ("mknodat", 2)):
        program += _call_block(name, column, [_load_argument(index), (JUMP_SET, 0, 1, _SET_ID), _DENIED, _ALLOWED])
    for name, flags in (("open", 1), ("openat", 2)):
        mode = [
            _load_argument(flags + 1),
            (JUMP_SET, 0, 1, _SET_ID),
            _DENIED,
        ]  # without the flag the mode has no effect
        program += _call_block(
            name, column, [_load_argument(flags), (JUMP_SET, 0, len(mode), _CREATES), *mode, _ALLOWED]
        )
    return program


def _check_own_processes(column: int) -> list[Instruction]:
    """Return the blocks that allow changing limits, priorities and CPUs of the calling process only (process id 0)."""
    allow_own: list[Instruction] = [(JUMP_EQUAL, 0, 1, 0), _ALLOWED]
    allow_reading = [_load_argument(2), (JUMP_EQUAL, 0, 3, 0), _load_argument(2, high=True), *allow_own]  # no new limit
    program = _call_block("prlimit64", column, [_load_argument(0), *allow_own, *allow_reading, _DENIED])
    for name in _OWN_PROCESS_CALLS:
        program += _call_block(name, column, [_load_argument(0), *allow_own, _DENIED])
    for name, process in (("setpriority", 0), ("ioprio_set", 1)):  # PRIO_PROCESS, IOPRIO_WHO_PROCESS
        body = [_load_argument(0), (JUMP_EQUAL, 0, 3, process), _load_argument(1), *allow_own, _DENIED]
        program += _call_block(name, column, body)
    return program
