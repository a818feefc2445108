"""The journal of a run: one JSON object per line, appended and on the disk before anything else happens.

A line of format 2 is `{"n": 17, "prev": ..., "kind": ..., "role": ..., "at": ..., "data": {...}}`. `n` counts the lines
of the file from 1, so that a missing line is detected. `prev` is the SHA-256 of the line before (empty in the first
line), so that a changed line is detected. Lines of format 1 have neither; a run that was started with it and resumed
later has both.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from m3b.errors import UsageError
from m3b.events import EVENT_CLASS_BY_KIND, Event, ReplyReceived
from m3b.isolation import untrusted
from m3b.jsonlines import iter_complete_lines, truncate_torn_line
from m3b.writing import sync_folder

JOURNAL_FORMAT = 2
"""Format of run.json and the journal; increased if an older m3b could not resume a run."""

MAX_NAMED_LINES = 8
"""Maximum number of damaged lines that a warning names."""

_encode_json = json.JSONEncoder(ensure_ascii=False, default=str).encode


class JournalError(UsageError):
    """A line of a journal cannot be read; the message says which, and what to do."""


class Journal:
    """The append-only record of a run.

    A reply with tool calls is flushed together with the first of them, which follows at once: one flush serves both,
    and no tool runs before the reply that led to it is safe. Opening the journal after a crash cuts off an incomplete
    last line.
    """

    def __init__(self, file: Path, *, fsync: bool = True) -> None:
        self.file, self.fsync = file, fsync
        new = not file.exists()
        if not new:
            truncate_torn_line(file)
        self.line_count, self.last_digest = 0, ""
        """Number of lines, and SHA-256 of the last one."""
        for line in iter_complete_lines(file):
            self.line_count, self.last_digest = self.line_count + 1, digest_line(line)
        self._stream = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._stream).st_size
        if new and fsync:
            sync_folder(file.parent)

    def write(self, event: Event) -> None:
        """Append one event.

        Raises:
            OSError: for instance, the disk is full; the journal is then as before.
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
    """Return the digest of a line, including its line break, that the next line stores."""
    return hashlib.sha256(line).hexdigest()


def encode_event(event: Event, number: int, previous_digest: str = "") -> bytes:
    """Return the line of an event, including its line break.

    Args:
        previous_digest: the digest of the line before it.
    """
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
    """Yield the events of a journal in order; an incomplete last line is ignored.

    Raises:
        JournalError: another line is damaged, missing or unknown.
    """
    for _, event_or_error in _iter_events(file):
        if isinstance(event_or_error, JournalError):
            raise event_or_error
        yield event_or_error


@dataclass(frozen=True)
class SalvagedJournal:
    """The readable events of a journal, and the numbers (from 1) of the other lines."""

    events: tuple[Event, ...]
    damaged_lines: tuple[int, ...]

    @property
    def warning(self) -> str:
        """A sentence on the damaged lines; '' if there are none."""
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
    """Return everything that can be read of a journal, for display; an incomplete last line is no damage."""
    lines = list(_iter_events(file))
    return SalvagedJournal(
        tuple(event_or_error for _, event_or_error in lines if isinstance(event_or_error, Event)),
        tuple(number for number, event_or_error in lines if isinstance(event_or_error, JournalError)),
    )


class JournalReader:
    """Reads the events of a journal as they are appended, for display.

    Args:
        offset: byte at which a line begins; earlier lines are not read, so the first one is not compared with the one before.
    """

    def __init__(self, file: Path, offset: int = 0) -> None:
        self._file, self._offset = file, offset
        self._upgrader = FormatOneUpgrader()
        self._number: int | None = 0 if offset == 0 else None
        self._previous_digest: str | None = "" if offset == 0 else None

    def read_new(self) -> Iterator[tuple[int, Event]]:
        """Yield the readable events that were appended since the last call, each with the offset at which its line ends."""
        if not self._file.is_file():
            return
        with io.BufferedReader(untrusted.open_file(self._file.parent, self._file.name)) as stream:
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                self._number = None if self._number is None else self._number + 1
                with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                    yield self._offset, _parse_line(line, self._number, self._previous_digest, self._upgrader)
                self._previous_digest = digest_line(line)


def find_tail_offset(file: Path, max_bytes: int) -> int:
    """Return where the first line begins that lies wholly in the last bytes of a journal; 0 if all of it does.

    Raises:
        OSError: the file cannot be read.
    """
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        size = stream.seek(0, os.SEEK_END)
        if size <= max_bytes:
            return 0
        stream.seek(size - max_bytes - 1)
        stream.readline()
        return stream.tell()


def _iter_events(file: Path) -> Iterator[tuple[int, Event | JournalError]]:
    upgrader, previous_digest = FormatOneUpgrader(), ""
    for number, line in enumerate(iter_complete_lines(file), start=1):
        try:
            yield number, _parse_line(line, number, previous_digest, upgrader)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            yield number, JournalError(_describe_damage(file, number, error))
        previous_digest = digest_line(line)


def _parse_line(line: bytes, number: int | None, previous_digest: str | None, upgrader: FormatOneUpgrader) -> Event:
    raw = json.loads(line)
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    kind, data = raw["kind"], raw["data"]
    if "n" not in raw:
        data = upgrader.upgrade(kind, raw["role"], data)
    elif number is not None and raw["n"] != number:
        raise ValueError(f"it was written as line {raw['n']}")
    if previous_digest and raw.get("prev", "") == "" and upgrader.is_chained:
        raise ValueError("it is not bound to the line before it, though earlier lines are")
    upgrader.is_chained = upgrader.is_chained or "prev" in raw
    if previous_digest is not None and raw.get("prev", previous_digest) != previous_digest:
        raise ValueError(
            "the line before it is not the one that was there when it was written: one of the two was changed"
        )
    return make_event(kind, data, role=raw["role"], at=raw["at"])


def make_event(kind: str, data: dict[str, Any], *, role: str = "", at: float = 0.0) -> Event:
    """Return an event from its kind and the plain values of `Event.data`.

    Raises:
        ValueError: there is no such kind, or the values do not fit its class.
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
    from pydantic import TypeAdapter  # only reading needs it

    return TypeAdapter(EVENT_CLASS_BY_KIND[kind])


def _describe_damage(file: Path, number: int, error: Exception) -> str:
    cause = " ".join(str(error).split())[:300] if not isinstance(error, KeyError) else f"it has no {error}"
    return (
        f"{file}, line {number}, is no event that this m3b can read: {cause}. What happened after it is unknown. If another "
        "version wrote it (`versions` in run.json), go on with that one; else restore the file from a copy, or keep "
        f"the {number - 1} lines before it (head -n {number - 1}) and resume: what came after is then done again."
    )


class FormatOneUpgrader:
    """Adds to lines of format 1 what they lack, derived from the lines around them."""

    def __init__(self) -> None:
        self._last_line_by_role: dict[str, tuple[str, dict[str, Any]]] = {}
        self.is_chained = False
        """Whether a line had the digest of the line before; then all later ones must have it."""

    def upgrade(self, kind: str, role: str, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a line in format 2."""
        previous = self._last_line_by_role.get(role, ("", {}))
        if kind != "note":
            self._last_line_by_role[role] = (kind, data)
        if kind == "check":
            return {"reasons": data.get("faults", []), **data}  # early versions wrote one message for agent and user
        if kind == "message" and previous[0] == "check":
            return {**data, "reason": "reflection" if previous[1].get("accepted") else "rejected"}
        return data
