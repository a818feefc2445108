"""SIGKILL for the program of an external system, while it runs in its sandbox or waits for its model."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil

DEADLINE_S = 60.0


def kill_program(folder: Path) -> int:
    """Kill every descendant of this process that names `folder` in its command line; return how many there were."""
    victims = [child for child in psutil.Process().children(recursive=True) if _names_folder(child, folder)]
    for victim in victims:
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(victims)


def _names_folder(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in process.cmdline())
    except psutil.Error:
        return False


def wait_for(file: Path) -> bool:
    """Return whether a file appears before the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if file.exists():
            return True
        time.sleep(0.05)
    return False
