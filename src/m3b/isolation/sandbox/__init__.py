"""Sandboxes that confine a command: `choose_sandbox()` finds one that works here, `Sandbox.start` runs the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from m3b.isolation.sandbox.base import Limits, Mounts, Probe, Sandbox
from m3b.isolation.sandbox.choose import SANDBOX_MODES, STRENGTH, choose_sandbox, diagnose_sandboxes
from m3b.isolation.sandbox.exit_status import ExitReason, ExitStatus

if TYPE_CHECKING:
    from m3b.isolation.sandbox.process import Process

__all__ = [
    "SANDBOX_MODES",
    "STRENGTH",
    "ExitStatus",
    "Limits",
    "Mounts",
    "Probe",
    "Process",
    "ExitReason",
    "Sandbox",
    "choose_sandbox",
    "diagnose_sandboxes",
]


def __getattr__(name: str) -> object:
    if name == "Process":  # imported on demand, because it loads subprocess
        from m3b.isolation.sandbox.process import Process

        return Process
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
