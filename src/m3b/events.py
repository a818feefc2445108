"""The events of a run: what the journal keeps, the live view shows and `Pipeline.iter` yields."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

KINDS = (
    "run_started", "role_started", "prompt", "waiting", "delta", "reply", "call", "output", "result", "message", "check",
    "artifact", "audit", "stage", "note", "role_ended", "run_ended",
)  # fmt: skip
"""Every kind that occurs, in about the order in which a run meets them. `output` (the tail of a running script),
`waiting` and `delta` (a piece of a reply that is being written; an empty one voids those before it) are shown but not
journalled."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Args:
        kind: one of `KINDS`.
        role: the agent at work, empty between roles.
        data: what happened, as plain JSON values.
        at: seconds since the epoch.
    """

    kind: str
    role: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.time)
