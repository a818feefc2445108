"""The supervisor's output file on a disk that is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from m3b.isolation.sandbox.guard.output import CappedOutput


def test_a_full_disk_is_noted_and_nothing_raised() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    target = os.open("/dev/full", os.O_RDWR)
    try:
        output = CappedOutput(target, 100)
        assert not output.has_failed
        output.append(b"x" * 500)
        output.flush()
        assert output.has_failed
    finally:
        os.close(target)
