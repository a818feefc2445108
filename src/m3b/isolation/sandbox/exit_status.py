"""Exit status of a command in the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ExitReason = Literal[
    "exit", "wall_time", "memory", "processes", "disk", "files", "stopped", "lost", "cancelled", "preempted"
]


@dataclass(frozen=True)
class ExitStatus:
    """Exit status of a command. `code` is 128 + signal if a signal ended it, as in a shell, and 137 if m3b ended it.

    The reason `memory` includes a kill by the kernel because the machine ran out of memory. `lost`: the supervisor was
    killed, or a process could not be ended; of a cluster job also: its node failed, and it could not be started again.
    `cancelled`: somebody cancelled the cluster job. `preempted`: it had to make room, and cannot be started again.
    """

    code: int
    reason: ExitReason
    wall_s: float
