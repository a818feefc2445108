"""Freed memory stays with a training, so that steps do not fetch the same pages from the kernel again and again."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from m3b.training import allocator

CODE = """
import resource
from m3b.training.allocator import keep_freed_memory
import torch
def faults():
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(12_000_000)  # 48 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin
before = faults()
assert keep_freed_memory()
print(before, min(faults() for _ in range(6)))  # the heap's top moves until tensors have found their place
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="needs glibc")
def test_freed_memory_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after * 10 < before


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: object())
    assert not allocator.keep_freed_memory()
