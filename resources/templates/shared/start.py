"""What every train.py and export.py does around a training: threads, a clean or a resumed Logout, exit codes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from Utils.allocator import keep_freed_memory
from Utils.clock import NotFinite, OutOfMemory

KEPT = ("cache", "jobs")
"""What a fresh start leaves in Logout: decoded images, and what scripts printed (this one among them)."""


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def begin(resume: bool, logout: Path = Path("Logout")) -> None:
    """An empty Logout, caches apart; with `resume`, everything stays. Freed memory stays with the process."""
    keep_freed_memory()
    if not resume:
        for item in logout.glob("*"):
            if item.is_dir() and item.name not in KEPT:
                shutil.rmtree(item)
            elif item.suffix in (".csv", ".json", ".npz", ".png"):
                item.unlink()
    logout.mkdir(exist_ok=True)


def held_out(logout: Path = Path("Logout")) -> str:
    """SHA-256 of valid_predictions.json, for config.json: which training a model is of, so that it is never measured on the
    held-out cases of another one, which it may have trained on. Empty without that file."""
    file = logout / "valid_predictions.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def guarded(train: Callable[[], None]) -> int:
    """The exit code of a training: 0, 3 where the loss is not finite, 4 where memory does not suffice."""
    try:
        train()
    except NotFinite as error:
        print(f"training ended: {error}. Lower lr in plan.json, or look for broken intensities in the data.")
        return 3
    except OutOfMemory as error:
        print(f"training ended: out of memory even with {error}. Make size, patch or network smaller in plan.json.")
        return 4
    return 0
