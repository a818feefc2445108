"""Results of one sweep or of several, as one list for the tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .store import read_rows


def gather(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Every finished cell of these sweeps. A model's address is left out of its name, so that parts of one sweep that were
    made on several machines come together and no table names a host; two addresses in one sweep stay apart.

    Raises:
        WrongUse: a folder without results.
    """
    rows = []
    for folder in dict.fromkeys(place.resolve() for place in folders):
        found = read_rows(folder)
        names = _names({str(row["model"]) for row in found})
        rows += [{**row, "model": names[str(row["model"])]} for row in found]
    return rows


def _names(models: set[str]) -> dict[str, str]:
    """Model -> what tables call it; numbered where only addresses tell two models apart."""
    found: dict[str, str] = {}
    for model in sorted(models):
        name = model.partition("@http")[0]
        count = sum(other == name or other.startswith(f"{name} (") for other in found.values())
        found[model] = f"{name} ({count + 1})" if count else name
    return found
