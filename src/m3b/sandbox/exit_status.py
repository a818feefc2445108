"""How a command in the sandbox ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ExitReason = Literal["exit", "wall_time", "memory", "processes", "disk", "files", "stopped", "lost"]


@dataclass(frozen=True)
class ExitStatus:
    """How a command ended. `code` is 128 + signal where a signal ended it, as in a shell; 137 where m3b did.

    `memory` also where the machine ran out of memory and the kernel chose the command. `lost`: the supervisor was
    killed, or a process would not die.
    """

    code: int
    reason: ExitReason
    wall_s: float
