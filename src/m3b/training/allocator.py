"""Memory that a training frees stays with it: glibc otherwise hands every large tensor back and fetches empty pages anew.

A step of a network on a processor makes and frees the same tensors again and again. Those of 32 MiB and more always, smaller
ones often, come straight from the kernel, which clears each page before its first use; a step on volumes takes up to a third
less time without that. The largest memory ever held stays the same.
"""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of mallopt(3)."""
LARGE = 2**30
"""Bytes; single arrays of this size and more still go back at once."""


def keep_freed_memory() -> bool:
    """For this process, and those that it starts by fork; False where the C library is another one."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGE) and mallopt(TRIM_THRESHOLD, 2 * LARGE - 1))
