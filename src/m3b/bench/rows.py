"""Rows of results that come from elsewhere than a cell that went well."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from .cell import RESULT_FILE, Cell


def read_finished_row(cell_folder: Path) -> dict[str, Any] | None:
    """The result that a cell's process left, if it got that far."""
    try:
        raw = json.loads((cell_folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) and "key" in raw else None


def make_broken_row(cell: Cell, reason: str, kind: str = "crashed") -> dict[str, Any]:
    """The row of a cell that left no result."""
    return {
        "key": cell.key, "system": cell.system, "model": cell.model, "task": cell.task.id, "family": cell.task.family,
        "variant": cell.task.variant, "dataset": cell.task.dataset, "run": cell.run, "ok": False, "kind": kind,
        "reason": reason, "labels": [], "status": "failed", "score": None, "claimed": None, "usage": {}, "roles": {},
        "at": round(time.time(), 1),
    }  # fmt: skip
