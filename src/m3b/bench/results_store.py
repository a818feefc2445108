"""What a sweep knows, on disk before anything builds on it: one line a claim, one a stopped attempt, one a finished cell."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from m3b.errors import UsageError
from m3b.jsonlines import iter_objects, truncate_torn_line


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


RESULTS_FILE, PLAN_FILE, CELLS_FOLDER, DATA_FOLDER = "results.jsonl", "bench.json", "cells", "data"


class SweepStore:
    """The folder of a benchmark; one process at a time writes to it.

    Raises:
        UsageError: another sweep is at work in this folder, it cannot be written, or it holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        entries = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        is_sweep = PLAN_FILE in entries or {RESULTS_FILE, CELLS_FOLDER} <= entries
        if not is_sweep and (foreign_entries := sorted(entries - {RESULTS_FILE, CELLS_FOLDER, DATA_FOLDER, ".lock"})):
            raise UsageError(f"{folder} holds {foreign_entries[0]} and no sweep. Name a folder of its own with -o.")
        try:
            (self.folder / CELLS_FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"The folder {folder} cannot be written: {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise UsageError(f"Another sweep is at work in {folder}; wait for it, or stop that one.") from error
        self._stream = os.open(self.folder / RESULTS_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        truncate_torn_line(self.folder / RESULTS_FILE)
        self.finished_keys: set[str] = set()
        self.claims: Counter[str] = Counter()
        for line in read_lines(self.folder):
            if line["event"] == "done":
                self.finished_keys.add(line["key"])
            else:
                self.claims[line["key"]] += 1 if line["event"] == "claim" else -1

    def claim(self, key: str) -> int:
        """Write down that a cell is begun; returns which attempt this is, from 1."""
        self.claims[key] += 1
        self._append({"event": "claim", "key": key, "attempt": self.claims[key], "at": round(time.time(), 1)})
        return self.claims[key]

    def release(self, key: str) -> None:
        """Write down that an attempt was stopped by somebody: it does not count against the cell."""
        self.claims[key] -= 1
        self._append({"event": "release", "key": key, "at": round(time.time(), 1)})

    def finish(self, row: dict[str, Any]) -> None:
        """Write a cell's result down, once: what is finished is not finished again."""
        if row["key"] in self.finished_keys:
            return
        self._append({"event": "done", **row})
        self.finished_keys.add(row["key"])

    def replace(self, row: dict[str, Any]) -> None:
        """Write down a later score of a finished cell; the last line of a key counts."""
        self._append({"event": "done", **row})
        self.finished_keys.add(row["key"])

    def forget(self, keys: set[str]) -> None:
        """Let these cells be run again."""
        self.finished_keys -= keys
        for key in keys:
            self.claims.pop(key, None)

    def get_cell_folder(self, key: str) -> Path:
        """The folder of a cell."""
        return self.folder / CELLS_FOLDER / key

    def close(self) -> None:
        """Let go of the folder."""
        for handle in (self._stream, self._lock):
            with contextlib.suppress(OSError):
                os.close(handle)

    def __enter__(self) -> SweepStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: dict[str, Any]) -> None:
        block = json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
        while block:
            block = block[os.write(self._stream, block) :]
        os.fdatasync(self._stream)


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Every whole line of a sweep's results."""
    return (line for line in iter_objects(folder / RESULTS_FILE) if {"event", "key"} <= set(line))


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The last result of every finished cell, in the order in which they were first finished.

    Raises:
        UsageError: no results there.
    """
    row_by_key: dict[str, dict[str, Any]] = {}
    for line in read_lines(folder):
        if line["event"] == "done":
            row_by_key[line["key"]] = line
    if not row_by_key:
        raise UsageError(f"There are no results in {folder}; `m3b bench run --out {folder}` makes them.")
    return list(row_by_key.values())
