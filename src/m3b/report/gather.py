"""Read what a run left behind in whatever state: missing, torn or odd files give empty values, never an error."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.agents.roles import SINGLE, STAGES
from m3b.journal import Salvaged, salvage

MAX_JSON_BYTES = 64 * 2**20
MAX_LINE = 4 * 2**20
MAX_LOG = 20_000
"""Rows of the training log that are shown."""


@dataclass(frozen=True)
class RunFiles:
    """Everything that a report is made of."""

    folder: Path
    run: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    audit: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    log: list[dict[str, str]] = field(default_factory=list)
    delivered: list[tuple[str, int]] = field(default_factory=list)
    damage: str = ""
    """Which lines of the journal could not be read; empty where all could."""

    @property
    def result(self) -> dict[str, Any]:
        """The Result of the run; empty while it is not over."""
        return as_dict(self.run.get("result"))

    @cached_property
    def titles(self) -> dict[str, str]:
        """Roles as people read them, by name: m3b's own, and those that the run had besides."""
        builtin_titles = {role.name: role.title for role in (*STAGES, SINGLE)}
        start_events = [event for event in self.events if event.get("kind") == "role_started"]
        event_titles = {str(event.get("role")): as_dict(event.get("data")).get("title") for event in start_events}
        return {
            **{name: title for name, title in event_titles.items() if isinstance(title, str) and title},
            **builtin_titles,
        }

    def title(self, role: Any) -> str:
        """A role as people read it."""
        return self.titles.get(role, role) if isinstance(role, str) else str(role)


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, else None; booleans and texts are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond every float
        return None


def gather(folder: Path) -> RunFiles:
    """Read a run folder."""
    journal = _journal(folder / "journal.jsonl")
    scores = _json(folder, "locked/scores.json") or _json(folder, "model/metrics.json")
    return RunFiles(
        folder=folder,
        run=_json(folder, "run.json"),
        events=[
            {"kind": event.kind, "role": event.role, "at": event.at, "data": event.data} for event in journal.events
        ],
        audit=_json(folder, "work/data_audit.json") or _json(folder, "data_audit.json"),
        scores=scores,
        log=_log(folder, "work/Logout/log.csv"),
        delivered=_delivered(folder / "model"),
        damage=journal.warning,
    )


def _json(folder: Path, name: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return as_dict(json.loads(untrusted.read_text(folder, name, MAX_JSON_BYTES)))
    return {}


def _lines(folder: Path, name: str) -> Iterator[str]:
    with contextlib.suppress(OSError), untrusted.open_file(folder, name) as raw:
        stream = io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8", errors="replace")
        while line := stream.readline(MAX_LINE):
            yield line


def _journal(file: Path) -> Salvaged:
    try:
        return salvage(file)
    except OSError:
        return Salvaged((), ())


def _log(folder: Path, name: str) -> list[dict[str, str]]:
    try:
        rows = list(islice(csv.DictReader(islice(_lines(folder, name), MAX_LOG)), MAX_LOG))
    except csv.Error:
        return []
    return [{str(key): str(value) for key, value in row.items() if key and isinstance(value, str)} for row in rows]


def _delivered(folder: Path) -> list[tuple[str, int]]:
    try:
        files = sorted(item for item in folder.rglob("*") if item.is_file() and "__pycache__" not in item.parts)
        return [(item.relative_to(folder).as_posix(), item.stat().st_size) for item in files[:200]]
    except OSError:
        return []
