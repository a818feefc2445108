"""SIGKILL for the program of an external system, while it runs in its sandbox or waits for its model."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from m3b.llm.base import LLMRequest
from m3b.messages import Reply
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import Step

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


class KillingModel(ScriptedModel):
    """A scripted model that kills the program instead of answering its request number `kill_at`, counted from 1."""

    def __init__(self, steps: Iterable[Step], folder: Path, kill_at: int) -> None:
        super().__init__(steps, repeat=True)
        self.folder, self.kill_at, self.kill_count = folder, kill_at, 0

    def ask(self, request: LLMRequest) -> Reply:
        if len(self.requests) + 1 == self.kill_at:
            self.kill_count += kill_program(self.folder)
        return super().ask(request)


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
