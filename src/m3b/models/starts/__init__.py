"""Pretrained starting points: what is known of them, where they lie on this machine, how they come there."""

from __future__ import annotations

from .registry import StartEntry, entries, entry
from .store import STORE, Stored, store_dir, stored

__all__ = ["STORE", "StartEntry", "Stored", "entries", "entry", "store_dir", "stored"]
