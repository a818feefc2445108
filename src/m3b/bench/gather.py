"""Results of one sweep or of several, as one list for the tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .store import read_rows


def gather_rows(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Every finished cell of these sweeps. A model's address is left out of its name, so that parts of one sweep that were
    made on several machines come together and no table names a host; two addresses in one sweep stay apart.

    Raises:
        UsageError: a folder without results.
    """
    rows = []
    for folder in dict.fromkeys(path.resolve() for path in folders):
        sweep_rows = read_rows(folder)
        names = _make_display_names({str(row["model"]) for row in sweep_rows})
        rows += [{**row, "model": names[str(row["model"])]} for row in sweep_rows]
    return rows


def _make_display_names(models: set[str]) -> dict[str, str]:
    """Model -> what tables call it; numbered where only addresses tell two models apart."""
    display_names: dict[str, str] = {}
    for model in sorted(models):
        name = model.partition("@http")[0]
        count = sum(
            existing_name == name or existing_name.startswith(f"{name} (") for existing_name in display_names.values()
        )
        display_names[model] = f"{name} ({count + 1})" if count else name
    return display_names
