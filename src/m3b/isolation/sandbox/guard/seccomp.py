"""The system call filter: a linear classic BPF program, loaded with prctl.

Denied calls return EPERM. clone3 and openat2, whose arguments are in memory that a filter cannot read, return ENOSYS,
so that libc falls back to calls that can be examined. On a shared host, calls that change owners, modes, times and
attributes return 0 and do nothing: Landlock does not control them, and tools such as tar and shutil.copytree expect
them to succeed.
"""

from __future__ import annotations

import errno
import os
import struct

from . import arguments
from .arguments import (
    ALLOW,
    ERRNO,
    JUMP_EQUAL,
    JUMP_GREATER_EQUAL,
    LOAD,
    RETURN,
    Instruction,
)
from .syscalls import CONNECTING_CALLS, DENIED_CALLS, METADATA_CALLS, NAME_CALLS

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .job import SeccompPolicy

_KILL = 0x80000000
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32_BIT = 0x40000000


def is_supported(machine: str | None = None) -> bool:
    """Return whether the tables contain the system call numbers of this machine."""
    return (machine or os.uname().machine) in _ARCHES


def build_filter(policy: SeccompPolicy, machine: str | None = None) -> list[Instruction]:
    """Return the filter as (code, jump if true, jump if false, constant) tuples.

    Raises KeyError for a machine without a table.
    """
    column, arch = _ARCHES[machine or os.uname().machine]
    program: list[Instruction] = [(LOAD, 0, 0, _ARCH), (JUMP_EQUAL, 1, 0, arch), (RETURN, 0, 0, _KILL)]
    program.append((LOAD, 0, 0, _NUMBER))
    if column == 0:  # the x32 interface renumbers everything
        program += [(JUMP_GREATER_EQUAL, 0, 1, _X32_BIT), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    program += _answer_calls(DENIED_CALLS, column, errno.EPERM)
    if policy["shares_host"]:
        program += _answer_calls(METADATA_CALLS, column, 0) + _answer_calls(NAME_CALLS, column, errno.EOPNOTSUPP)
    if not policy["connects"]:
        program += _answer_calls(CONNECTING_CALLS, column, errno.EPERM)
    program += arguments.build_argument_checks(policy, column)
    program.append((RETURN, 0, 0, ALLOW))
    return program


def _answer_calls(table: Mapping[str, tuple[int | None, int | None]], column: int, answer: int) -> list[Instruction]:
    program: list[Instruction] = []
    for numbers in table.values():
        number = numbers[column]
        if number is not None:
            program += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | answer)]
    return program


def pack_filter(policy: SeccompPolicy) -> bytes:
    """Return the filter for this machine in the format of the kernel. Raises KeyError as `build_filter`."""
    return b"".join(struct.pack("HBBI", *instruction) for instruction in build_filter(policy))
