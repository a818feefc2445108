"""The benchmark systems: m3b, its ablations, and external programs that run in the same workspace."""

from __future__ import annotations

from .base import CellJob, CellOutcome, System
from .registry import get_system, list_systems

__all__ = ["CellJob", "CellOutcome", "System", "list_systems", "get_system"]
