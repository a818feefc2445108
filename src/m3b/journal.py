"""The journal of a run: one JSON object a line, appended, on the disk before anything else happens.

A line of format 2 is `{"n": 17, "prev": ..., "kind": ..., "role": ..., "at": ..., "data": {...}}`: `n` counts the lines of the
file from 1, so that a line that is missing is noticed, and `prev` is the SHA-256 of the line before, so that one that was
changed is (the first line has an empty one). Lines of format 1 have neither; a run that was begun then and went on later holds
both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from m3b.errors import UsageError
from m3b.events import EVENT_CLASS_BY_KIND, Event, ReplyReceived
from m3b.jsonlines import iter_complete_lines, truncate_torn_line
from m3b.writing import sync_folder

JOURNAL_FORMAT = 2
"""Of run.json and the journal; raised when an older m3b could not go on with a run."""

MAX_NAMED_LINES = 8
"""Damaged lines that a warning names."""

_encode_json = json.JSONEncoder(ensure_ascii=False, default=str).encode


class JournalError(UsageError):
    """A journal with a line that cannot be read; the message says which, and what to do."""


class Journal:
    """The append-only record of a run.

    A reply that asks for calls waits for the first of them, which follows at once: one wait for the disk serves both,
    and nothing is done in the world before what led to it is safe. Opening the journal again after a crash cuts off a
    torn last line, so that what follows is whole.
    """

    def __init__(self, file: Path, *, fsync: bool = True) -> None:
        self.file, self.fsync = file, fsync
        new = not file.exists()
        if not new:
            truncate_torn_line(file)
        self.line_count, self.last_digest = 0, ""
        """How many lines there are, and the SHA-256 of the last."""
        for line in iter_complete_lines(file):
            self.line_count, self.last_digest = self.line_count + 1, digest_line(line)
        self._stream = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._stream).st_size
        if new and fsync:
            sync_folder(file.parent)

    def write(self, event: Event) -> None:
        """Append one event.

        Raises:
            OSError: the disk is full, for instance; nothing of the event is kept then.
        """
        line = encode_event(event, self.line_count + 1, self.last_digest)
        previous_size = self._size
        try:
            written_bytes = os.write(self._stream, line)
            while written_bytes < len(line):
                written_bytes += os.write(self._stream, line[written_bytes:])
            if self.fsync and not (isinstance(event, ReplyReceived) and event.calls):
                os.fdatasync(self._stream)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._stream, previous_size)
            raise
        self._size, self.line_count, self.last_digest = (
            previous_size + len(line),
            self.line_count + 1,
            digest_line(line),
        )

    def close(self) -> None:
        if self._stream >= 0:
            os.close(self._stream)
            self._stream = -1


def digest_line(line: bytes) -> str:
    """What the next line keeps of a line, its line break included."""
    return hashlib.sha256(line).hexdigest()


def encode_event(event: Event, number: int, previous_digest: str = "") -> bytes:
    """The line of an event, its line break included; `previous_digest` is the digest of the line before it."""
    line: dict[str, Any] = {
        "n": number,
        "prev": previous_digest,
        "kind": event.kind,
        "role": event.role,
        "at": round(event.at, 3),
        "data": event.data,
    }
    return _encode_json(line).encode("utf-8", "replace") + b"\n"


def read_journal(file: Path) -> Iterator[Event]:
    """The events of a journal, in order; the last line is left out while it is being written, or torn.

    Raises:
        JournalError: another line is damaged, missing or unknown.
    """
    for _, event_or_error in _iter_events(file):
        if isinstance(event_or_error, JournalError):
            raise event_or_error
        yield event_or_error


@dataclass(frozen=True)
class SalvagedJournal:
    """What can be read of a journal, and the numbers of the lines, from 1, that cannot."""

    events: tuple[Event, ...]
    damaged_lines: tuple[int, ...]

    @property
    def warning(self) -> str:
        """Which lines are missing, in a sentence; empty where all could be read."""
        if not self.damaged_lines:
            return ""
        count = len(self.damaged_lines)
        numbers = ", ".join(map(str, self.damaged_lines[:MAX_NAMED_LINES])) + (
            ", ..." if count > MAX_NAMED_LINES else ""
        )
        subject = (
            f"Line {numbers} of journal.jsonl is" if count == 1 else f"{count} lines of journal.jsonl ({numbers}) are"
        )
        return f"{subject} damaged and left out here."


def salvage_journal(file: Path) -> SalvagedJournal:
    """All that can be read of a journal, for showing it; a last line that is torn or being written is no damage."""
    lines = list(_iter_events(file))
    return SalvagedJournal(
        tuple(event_or_error for _, event_or_error in lines if isinstance(event_or_error, Event)),
        tuple(number for number, event_or_error in lines if isinstance(event_or_error, JournalError)),
    )


def _iter_events(file: Path) -> Iterator[tuple[int, Event | JournalError]]:
    upgrader, previous_digest = FormatOneUpgrader(), ""
    for number, line in enumerate(iter_complete_lines(file), start=1):
        try:
            yield number, _parse_line(line, number, previous_digest, upgrader)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            yield number, JournalError(_describe_damage(file, number, error))
        previous_digest = digest_line(line)


def _parse_line(line: bytes, number: int, previous_digest: str, upgrader: FormatOneUpgrader) -> Event:
    raw = json.loads(line)
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    kind, data = raw["kind"], raw["data"]
    if "n" not in raw:
        data = upgrader.upgrade(kind, raw["role"], data)
    elif raw["n"] != number:
        raise ValueError(f"it was written as line {raw['n']}")
    if previous_digest and raw.get("prev", "") == "" and upgrader.is_chained:
        raise ValueError("it is not bound to the line before it, though earlier lines are")
    upgrader.is_chained = upgrader.is_chained or "prev" in raw
    if raw.get("prev", previous_digest) != previous_digest:
        raise ValueError(
            "the line before it is not the one that was there when it was written: one of the two was changed"
        )
    return make_event(kind, data, role=raw["role"], at=raw["at"])


def make_event(kind: str, data: dict[str, Any], *, role: str = "", at: float = 0.0) -> Event:
    """An event from its name and its plain values, as `Event.data` gives them.

    Raises:
        ValueError: there is no such kind, or the values are not those of its class.
    """
    if kind not in EVENT_CLASS_BY_KIND:
        raise ValueError(f"{kind!r} is no kind of event that this m3b knows")
    if kind == "run_ended":
        data = {"result": data}
    elif kind == "result":
        data = {("facts" if key == "data" else key): value for key, value in data.items()}
    event: Event = _get_validator(kind).validate_python({**data, "role": role, "at": at})
    return event


@cache
def _get_validator(kind: str) -> Any:
    from pydantic import TypeAdapter  # what only reading needs

    return TypeAdapter(EVENT_CLASS_BY_KIND[kind])


def _describe_damage(file: Path, number: int, error: Exception) -> str:
    cause = " ".join(str(error).split())[:300] if not isinstance(error, KeyError) else f"it has no {error}"
    return (
        f"{file}, line {number}, is no event that this m3b can read: {cause}. The run cannot be told from here on. If another "
        "version wrote it (`versions` in run.json), go on with that one; else put the file back from a copy, or keep "
        f"the {number - 1} lines before it (head -n {number - 1}) and resume: what came after is then done again."
    )


class FormatOneUpgrader:
    """Reads lines of format 1, which say less: what else is known follows from the lines around them."""

    def __init__(self) -> None:
        self._last_line_by_role: dict[str, tuple[str, dict[str, Any]]] = {}
        self.is_chained = False
        """Whether a line held the digest of the one before; then all after it do."""

    def upgrade(self, kind: str, role: str, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a line as format 2 has it."""
        previous = self._last_line_by_role.get(role, ("", {}))
        if kind != "note":
            self._last_line_by_role[role] = (kind, data)
        if kind == "check":
            return {"reasons": data.get("faults", []), **data}  # early versions wrote one voice
        if kind == "message" and previous[0] == "check":
            return {**data, "reason": "reflection" if previous[1].get("accepted") else "rejected"}
        return data
