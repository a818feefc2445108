"""The runs that `m3b view` shows, found by keys that are no paths, with their summaries."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from m3b.run.folder import RunFolder, list_runs
from m3b.run.summary import summarize_run

KEY_CHARS = 16
CHANGING_STATUSES = ("working", "interrupted")
"""Statuses that depend on whether a process is at work, not on run.json alone."""


class RunIndex:
    """The runs of some folders, or those that this user started.

    Args:
        folders: run folders, or folders that hold some; the user's list of runs if there are none.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._runs_by_key: dict[str, RunFolder] = {}
        self._summaries: dict[tuple[str, int, int], dict[str, Any]] = {}

    def list_all(self) -> dict[str, RunFolder]:
        """Return key -> run, the newest first."""
        runs = [run for folder in self._folders for run in list_runs(folder)] if self._folders else list_runs()
        if len(self._folders) > 1:
            runs.sort(key=lambda run: (run.started_at, run.id))
        self._runs_by_key = {make_key(run): run for run in reversed(runs)}
        return self._runs_by_key

    def find(self, key: str) -> RunFolder | None:
        """Return the run with a key; None if there is none, or if it was removed."""
        run = self._runs_by_key.get(key) or self.list_all().get(key)
        return run if run is not None and (run.path / "run.json").is_file() else None

    def list_summaries(self) -> list[dict[str, Any]]:
        """Return the summaries of all runs with their `key`, the newest first; each run.json is read once per change."""
        summaries = {}
        for key, run in self.list_all().items():
            try:
                status = (run.path / "run.json").stat()
            except OSError:  # removed meanwhile
                continue
            version = (key, status.st_mtime_ns, status.st_size)
            summary = self._summaries.get(version)
            if summary is None or summary["status"] in CHANGING_STATUSES:
                summary = {**summarize_run(run), "key": key}
            summaries[version] = summary
        self._summaries = summaries
        return list(summaries.values())


def make_key(run: RunFolder) -> str:
    """Return the key of a run in addresses, which tells nothing about its folder."""
    return hashlib.sha256(str(run.path).encode("utf-8", "surrogateescape")).hexdigest()[:KEY_CHARS]
