"""A run seen from another process: its events as they come, and what its scripts write at the moment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from m3b.events import Event, RunEnded, ScriptOutput, StepStarted, ToolCalled, ToolReturned
from m3b.isolation import untrusted
from m3b.isolation.untrusted import UnsafePathError
from m3b.journal import JournalReader, salvage_journal
from m3b.progress import RunProgress
from m3b.run.folder import RunFolder

POLL_S = 1.0
JOB_LOGS, STEP_LOG = "logs/jobs", "logs/steps.log"
"""Folder with the output of scripts, and the file with the progress of m3b's own steps, in the run folder."""
MAX_TAIL_BYTES = 8_000
MIN_WRITE_S = 1.0
MAX_STEP_LOG_BYTES = 1_000_000


class StepLog:
    """Writes the progress of m3b's own steps to a file, so that another process can show it.

    At most one line is written a second; a failed write is ignored, since the run does not depend on this file.
    """

    def __init__(self, run: RunFolder) -> None:
        self._file, self._written_at, self._size = run.path / STEP_LOG, 0.0, 0

    def write(self, text: str, now: float) -> None:
        if now - self._written_at < MIN_WRITE_S:
            return
        self._written_at = now
        try:
            self._file.parent.mkdir(exist_ok=True)
            mode = "a" if self._size < MAX_STEP_LOG_BYTES else "w"
            with self._file.open(mode, encoding="utf-8", errors="replace") as stream:
                stream.write(f"{text.rstrip()}\n")
                self._size = stream.tell()
        except OSError:
            return


def load_progress(run: RunFolder) -> RunProgress:
    """Return the present progress of a run: its journal, and the output of what is running now."""
    progress = RunProgress()
    events = salvage_journal(run.journal_file).events
    for event in events:
        progress.update(event)
    if output := read_running_output(run, events):
        progress.update(output)
    return progress


def follow_events(run: RunFolder, sleep: Callable[[float], None] = time.sleep) -> Iterator[Event]:
    """Yield the events of a run from its beginning, and what its scripts write, until it ends or its process is gone."""
    reader, output_text = JournalReader(run.journal_file), ""
    events: list[Event] = []
    while True:
        is_busy = run.is_busy  # before the journal is read, so that the last events are never missed
        for _, event in reader.read_new():
            events.append(event)
            yield event
        if (events and isinstance(events[-1], RunEnded)) or not is_busy:
            return
        output = read_running_output(run, events)
        if output is not None and output.text != output_text:
            output_text = output.text
            yield output
        sleep(POLL_S)


def read_running_output(run: RunFolder, events: tuple[Event, ...] | list[Event]) -> ScriptOutput | None:
    """Return the latest output of the script or step that is running, at the time when it was written; else None."""
    step = next(
        (event for event in reversed(events) if isinstance(event, ToolCalled | ToolReturned | StepStarted)), None
    )
    if step is None or isinstance(step, ToolReturned):
        return None
    name = STEP_LOG if isinstance(step, StepStarted) else _find_newest_job_log(run)
    if not name:
        return None
    try:
        with untrusted.open_file(run.path, name) as stream:
            status = os.fstat(stream.fileno())
            if status.st_mtime < step.at - POLL_S:
                return None
            stream.seek(max(0, status.st_size - MAX_TAIL_BYTES))
            text = stream.read(MAX_TAIL_BYTES).decode("utf-8", "replace")
    except (OSError, UnsafePathError):
        return None
    whole_lines = text.partition("\n")[2] if status.st_size > MAX_TAIL_BYTES else text
    return ScriptOutput(0 if name == STEP_LOG else 1, whole_lines, at=status.st_mtime) if whole_lines.strip() else None


def _find_newest_job_log(run: RunFolder) -> str:
    try:
        names = [entry.name for entry in untrusted.list_entries(run.path, JOB_LOGS) if entry.kind == "file"]
    except (OSError, UnsafePathError):
        return ""
    return f"{JOB_LOGS}/{max(names)}" if names else ""
