"""The rows of a training log (`work/Logout/log.csv`) that are new since the last look."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from m3b.isolation import untrusted

TRAINING_LOG = "work/Logout/log.csv"
MAX_READ_BYTES = 8 << 20
"""Maximum of one look; the rest comes with the next one."""
ENCODING = "latin-1"
"""Of bytes that need not be text: every byte has a character."""
STEP_COLUMNS = ("step", "epoch")
"""Columns that count, the first one that a log has; else its rows count."""
TIME_COLUMNS = ("seconds", "time", "minutes")


@dataclass
class LogPosition:
    """How far a training log was read.

    Args:
        attempt: number of the log, from 1: a training that starts anew, or that is added, writes a new one.
        offset: bytes that were read, which end with a line.
        rows: number of rows that were read.
        header: first line of the log.
        last_line: last line that was read, by which a new log is recognised.
    """

    attempt: int = 1
    offset: int = 0
    rows: int = 0
    header: str = ""
    last_line: str = ""

    def start_anew(self) -> None:
        """Move to the beginning of another log."""
        self.attempt, self.offset, self.rows, self.header, self.last_line = self.attempt + 1, 0, 0, "", ""


@dataclass(frozen=True)
class LogRow:
    """One row: its step, and its figures by name, such as `fold0/train_loss`."""

    step: int
    figures: dict[str, float]


def read_new_rows(folder: Path, position: LogPosition) -> Iterator[LogRow]:
    """Yield the rows that a training has written since the last call, and move the position.

    Args:
        folder: of the run. A missing or unreadable log has no rows.
    """
    try:
        lines = _read_new_lines(folder, position)
    except (OSError, untrusted.UnsafePathError):
        return
    for line in lines:
        position.offset += len(line)
        position.last_line = line.decode(ENCODING)
        if not position.header:
            position.header = position.last_line
            continue
        position.rows += 1
        row = _parse_row(position)
        if figures := _parse_figures(row, position.attempt):
            yield LogRow(_parse_step(row, position.rows), figures)


def _read_new_lines(folder: Path, position: LogPosition) -> list[bytes]:
    """Return the complete lines after the position; of a log that is another one, from its beginning."""
    with untrusted.open_file(folder, TRAINING_LOG) as stream:
        last_line = position.last_line.encode(ENCODING)
        stream.seek(position.offset - len(last_line))
        if stream.read(len(last_line)) != last_line:
            position.start_anew()
            stream.seek(0)
        return [line for line in stream.read(MAX_READ_BYTES).splitlines(keepends=True) if line.endswith(b"\n")]


def _parse_row(position: LogPosition) -> dict[str, str]:
    """Return column -> value of the last line; empty if it is no row of CSV."""
    try:
        names, values = csv.reader([position.header.rstrip(), position.last_line.rstrip()])
    except (csv.Error, ValueError):
        return {}
    return dict(zip(names, values, strict=False))


def _parse_figures(row: dict[str, str], attempt: int) -> dict[str, float]:
    """Return the finite figures of a row; the attempt and the fold (or stage of the training) go before their names."""
    fold = _clean_name(row.get("fold", ""))
    prefixes = [f"attempt{attempt}"] * (attempt > 1) + [f"fold{fold}" if fold.isdigit() else fold] * bool(fold)
    names = [name for name in row if name not in ("fold", "", *STEP_COLUMNS, *TIME_COLUMNS)]
    values = {"/".join([*prefixes, _clean_name(name)]): _parse(row[name]) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _parse_step(row: dict[str, str], number: int) -> int:
    counts = [count for name in STEP_COLUMNS if (count := _parse(row.get(name, ""))) is not None]
    return int(counts[0]) if counts else number


def _parse(text: str) -> float | None:
    """Return a finite number; None of anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _clean_name(text: str) -> str:
    """Return a name that every logger takes: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII)[:100]
