"""The runs that `m3b view` shows, found by keys that are no paths."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from m3b.run.folder import RunFolder, list_runs

KEY_CHARS = 16


class RunIndex:
    """The runs of some folders, or those that this user started.

    Args:
        folders: run folders, or folders that hold some; the user's list of runs if there are none.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._runs_by_key: dict[str, RunFolder] = {}

    def list_all(self) -> dict[str, RunFolder]:
        """Return key -> run, the newest first."""
        runs = [run for folder in self._folders for run in list_runs(folder)] if self._folders else list_runs()
        self._runs_by_key = {make_key(run): run for run in reversed(runs)}
        return self._runs_by_key

    def find(self, key: str) -> RunFolder | None:
        """Return the run with a key; None if there is none, or if it was removed."""
        run = self._runs_by_key.get(key) or self.list_all().get(key)
        return run if run is not None and (run.path / "run.json").is_file() else None


def make_key(run: RunFolder) -> str:
    """Return the key of a run in addresses, which tells nothing about its folder."""
    return hashlib.sha256(str(run.path).encode("utf-8", "surrogateescape")).hexdigest()[:KEY_CHARS]
