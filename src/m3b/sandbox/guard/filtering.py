"""Installs a system call filter. The filter is built by the caller, so that the guards need no table of calls."""

from __future__ import annotations

import ctypes

from .kernel import prctl

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_INSTRUCTION_BYTES = 8  # size of struct sock_filter


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install_filter(code: bytes) -> None:
    """Install a filter for this thread and its children. No-new-privileges must be set. Raises OSError."""
    buffer = ctypes.create_string_buffer(code, len(code))
    header = _Program(len(code) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))
