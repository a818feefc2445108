"""Store of a sweep: `results.jsonl` has a line for each claim, job, released attempt and finished cell, synced to disk."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.errors import UsageError
from m3b.isolation.untrusted.paths import UnsafePathError, open_below, split_name
from m3b.jsonlines import iter_objects, truncate_torn_line


def gather_rows(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the rows of all finished cells of these sweeps.

    The address is removed from the name of a model, so that parts of a sweep from several machines are combined and no
    table names a host. Two addresses within one sweep are kept apart by a number.

    Raises:
        UsageError: a folder has no results.
    """
    rows = []
    for folder in dict.fromkeys(path.resolve() for path in folders):
        sweep_rows = read_rows(folder)
        names = _make_display_names({str(row["model"]) for row in sweep_rows})
        rows += [{**row, "model": names[str(row["model"])]} for row in sweep_rows]
    return rows


def _make_display_names(models: set[str]) -> dict[str, str]:
    """Return model -> name in tables; models that differ only in their address are numbered."""
    display_names: dict[str, str] = {}
    for model in sorted(models):
        name = model.partition("@http")[0]
        count = sum(
            existing_name == name or existing_name.startswith(f"{name} (") for existing_name in display_names.values()
        )
        display_names[model] = f"{name} ({count + 1})" if count else name
    return display_names


RESULTS_FILE, PLAN_FILE, CELLS_FOLDER, DATA_FOLDER = "results.jsonl", "bench.json", "cells", "data"


@dataclass(frozen=True)
class Attempt:
    """An attempt of a cell that has no result yet.

    Args:
        number: the number of the attempt, from 1; attempts that the user stopped are not counted.
        job_name: name of its job, which no other attempt has.
        engine: name of the engine that runs the job.
        folder: folder of the attempt below `cells`.
        job_id: empty if the sweep died before it recorded the id.
    """

    number: int
    job_name: str
    engine: str
    folder: str
    job_id: str = ""


class SweepStore:
    """The folder of a sweep; only one process at a time may write to it.

    Raises:
        UsageError: another sweep is running in this folder, it cannot be written, or it contains other files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        entries = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        is_sweep = PLAN_FILE in entries or {RESULTS_FILE, CELLS_FOLDER} <= entries
        if not is_sweep and (foreign_entries := sorted(entries - {RESULTS_FILE, CELLS_FOLDER, DATA_FOLDER, ".lock"})):
            raise UsageError(f"{folder} contains {foreign_entries[0]}, and is not a sweep. Name a new folder with -o.")
        try:
            (self.folder / CELLS_FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"The folder {folder} cannot be written: {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise UsageError(f"Another sweep is running in {folder}; wait for it, or stop it.") from error
        self._stream = os.open(self.folder / RESULTS_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        truncate_torn_line(self.folder / RESULTS_FILE)
        self.finished_keys: set[str] = set()
        self.claims: Counter[str] = Counter()
        self.open_attempts: dict[str, Attempt] = {}
        self._starts: Counter[str] = Counter()
        self._sweep_name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        for line in read_lines(self.folder):
            self._apply(line)

    def _apply(self, line: dict[str, Any]) -> None:
        key = line["key"]
        if line["event"] == "done":
            self.finished_keys.add(key)
            self.open_attempts.pop(key, None)
        elif line["event"] == "claim":
            self.claims[key] += 1
            self._starts[key] += 1
            name = f"m3b-{self._sweep_name}-{key}-{self._starts[key]}"
            engine, folder = line.get("engine", "local"), line.get("folder", key)
            self.open_attempts[key] = Attempt(self.claims[key], name, engine, folder)
        elif line["event"] == "job":
            self.open_attempts[key] = replace(self.open_attempts[key], job_id=line["job_id"])
        else:
            self.claims[key] -= 1
            self.open_attempts.pop(key, None)

    def claim(self, key: str, engine: str = "local", folder: str = "") -> Attempt:
        """Record the start of a cell by an engine in a folder below `cells`; return the attempt."""
        line = {"event": "claim", "key": key, "attempt": self.claims[key] + 1, "at": round(time.time(), 1)}
        self._record({**line, "engine": engine, "folder": folder or key})
        return self.open_attempts[key]

    def record_job(self, key: str, job_id: str) -> Attempt:
        """Record the job of the open attempt of a cell; return the attempt."""
        self._record({"event": "job", "key": key, "job_id": job_id})
        return self.open_attempts[key]

    def release(self, key: str) -> None:
        """Record that an attempt was stopped by the user; it does not count as an attempt of the cell."""
        self._record({"event": "release", "key": key, "at": round(time.time(), 1)})

    def finish(self, row: dict[str, Any]) -> None:
        """Record the result of a cell, unless it has one already."""
        if row["key"] in self.finished_keys:
            return
        self._record({"event": "done", **row})

    def replace(self, row: dict[str, Any]) -> None:
        """Record a new result of a finished cell; the last line of a key counts."""
        self._record({"event": "done", **row})

    def forget(self, keys: set[str]) -> None:
        """Forget results and attempts of these cells, so that they are run again."""
        self.finished_keys -= keys
        for key in keys:
            self.claims.pop(key, None)
            self.open_attempts.pop(key, None)

    def get_cell_folder(self, name: str) -> Path:
        """Return the folder of a cell or attempt, which may be missing.

        Args:
            name: below `cells`, as `results.jsonl` states it.

        Raises:
            UsageError: it is no folder below `cells`: absolute, with `..`, or through a link.
        """
        cells_folder = self.folder / CELLS_FOLDER
        try:
            if not split_name(name):
                raise UnsafePathError(name, "no name of a folder")
            os.close(open_below(cells_folder, name, os.O_PATH | os.O_DIRECTORY))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UsageError(
                f"{self.folder / RESULTS_FILE} names the folder {name[:200]!r} of a cell, which m3b does not open: it must be a "
                f"folder below {cells_folder} without links ({error.strerror}). Restore the sweep from a copy, or remove the lines "
                "that name it."
            ) from error
        return cells_folder / name

    def close(self) -> None:
        """Close the files and release the lock."""
        for handle in (self._stream, self._lock):
            with contextlib.suppress(OSError):
                os.close(handle)

    def __enter__(self) -> SweepStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _record(self, line: dict[str, Any]) -> None:
        block = json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
        while block:
            block = block[os.write(self._stream, block) :]
        os.fdatasync(self._stream)
        self._apply(line)


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the complete lines of the results of a sweep."""
    return (line for line in iter_objects(folder / RESULTS_FILE) if {"event", "key"} <= set(line))


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the last result of every finished cell, in the order in which the cells were first finished.

    Raises:
        UsageError: there are no results.
    """
    row_by_key: dict[str, dict[str, Any]] = {}
    for line in read_lines(folder):
        if line["event"] == "done":
            row_by_key[line["key"]] = line
    if not row_by_key:
        raise UsageError(f"There are no results in {folder}; `m3b bench run --out {folder}` makes them.")
    return list(row_by_key.values())
