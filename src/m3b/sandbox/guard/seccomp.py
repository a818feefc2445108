"""The system call filter: a linear classic BPF program, loaded with prctl.

Denied calls answer EPERM (clone3 answers ENOSYS, so that libc falls back to clone, whose flags can be read). With
`fake_metadata`, calls that change owners, modes, times and attributes answer 0 and do nothing: Landlock does not
govern them, and tools such as tar and shutil.copytree expect them to succeed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from .kernel import prctl
from .syscalls import DENIED, EXAMINED, METADATA

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; low words of the arguments
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32_BIT = 0x40000000
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TERMINAL_IOCTLS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type into somebody else's terminal
_FLAG_IOCTLS = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS (64 and 32 bit) and FSSETXATTR
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def supported(machine: str | None = None) -> bool:
    """Whether the tables hold this machine's system call numbers."""
    return (machine or os.uname().machine) in _ARCHES


def build(families: Sequence[int], fake_metadata: bool, machine: str | None = None) -> list[Instruction]:
    """Return the filter as (code, jump if true, jump if false, constant) tuples.

    `families` are the AF_* numbers that socket() may open. Raises KeyError for a machine without a table.
    """
    column, arch = _ARCHES[machine or os.uname().machine]
    program: list[Instruction] = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL)]
    program.append((_LOAD, 0, 0, _NUMBER))
    if column == 0:  # the x32 interface renumbers everything
        program += [(_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for table, answer in ((DENIED, errno.EPERM), (METADATA, 0)):
        if table is METADATA and not fake_metadata:
            continue
        for numbers in table.values():
            number = numbers[column]
            if number is not None:
                program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | answer)]
    program += _argument_checks(column, families)
    program.append((_RETURN, 0, 0, _ALLOW))
    return program


def _argument_checks(column: int, families: Sequence[int]) -> list[Instruction]:
    def block(name: str, body: list[Instruction]) -> list[Instruction]:
        number = EXAMINED[name][column]
        assert number is not None
        return [(_JUMP_EQUAL, 0, len(body), number), *body]

    deny = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    checks = block("clone3", [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)])
    checks += block("clone", [(_LOAD, 0, 0, _FIRST), (_JUMP_SET, 0, 1, _NEW_NAMESPACES), deny, allow])
    sockets: list[Instruction] = [(_LOAD, 0, 0, _FIRST)]
    for family in families:
        sockets += [(_JUMP_EQUAL, 0, 1, family), allow]
    checks += block("socket", [*sockets, deny])
    ioctls: list[Instruction] = [(_LOAD, 0, 0, _SECOND)]
    for request in (*_TERMINAL_IOCTLS, *_FLAG_IOCTLS):
        ioctls += [(_JUMP_EQUAL, 0, 1, request), deny]
    return checks + block("ioctl", [*ioctls, allow])


def apply(families: Sequence[int], fake_metadata: bool) -> None:
    """Filter this thread and all that it starts. No-new-privileges must be set. Raises OSError."""
    program = build(families, fake_metadata)
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    header = _Program(len(program), ctypes.addressof(buffer))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))
