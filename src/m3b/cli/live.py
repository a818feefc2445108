"""The live view of a run: on a terminal every action above a status line, in a log file one line for each stage."""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from m3b.cli.output import make_console
from m3b.events import (
    ArtifactChecked,
    CandidateMeasured,
    Event,
    IndexAudited,
    ModelsCompared,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunStarted,
    ScriptOutput,
    StepStarted,
    ToolCalled,
    ToolReturned,
    WaitingForModel,
)
from m3b.progress import MAX_LINE_CHARS, RunProgress, describe_wait, format_clock, get_first_line, get_last_line

if TYPE_CHECKING:
    from m3b.cli.status_line import StatusLine

HEARTBEAT_S = 120.0
"""After this time without a line, a log file gets the last output line of a running script."""

NOTE_INDENT = 2
"""Additional indent of the second line of a long note."""


class LiveView:
    """Shows events on standard error.

    Args:
        quiet: show nothing at all.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = make_console(to_stderr=True)
        self.is_interactive = self.console.is_terminal and not quiet
        self.progress = RunProgress()
        self._now = self._last_print_time = time.time()
        self._is_waiting = False
        self._shown_notes: set[str] = set()
        self._status_line: StatusLine | None = None

    def __enter__(self) -> LiveView:
        if self.is_interactive:
            from m3b.cli.status_line import StatusLine

            self._status_line = StatusLine(self.console, self.progress)
            self._status_line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status_line is not None:
            self._status_line.stop()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the status line temporarily, while the user is typing."""
        if self._status_line is not None:
            self._status_line.stop()
        try:
            yield
        finally:
            if self._status_line is not None:
                self._status_line.start()

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        previous_stage, self._now = self.progress.stage, event.at
        self.progress.update(event)
        if isinstance(event, RoleEnded) and event.status != "done":
            self._print_line(f"  {previous_stage} ended: {event.status}")
        self._show_event(event)

    def _show_event(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._show_run_start(event)
            case RoleStarted():
                self._print_line(f"{event.title} ({event.llm})")
            case StepStarted():
                self._print_line(f"       {event.text}")
            case ModelsCompared():
                self._print_line(f"       {event.reason}")
            case CandidateMeasured():
                figure = event.problem if event.value is None else f"{event.value:.4g} on held-out cases"
                self._print_line(f"       candidate {event.number}: {figure}")
            case IndexAudited():
                self._print_detail(f"       {event.summary}")
            case ArtifactChecked():
                for reason in event.reasons:  # the messages for the user
                    self._print_detail(f"       not accepted: {reason}")
                for warning in event.warnings:
                    self._print_note(f"       noted: {warning}")
            case _:
                self._show_agent_event(event)

    def _show_agent_event(self, event: Event) -> None:
        match event:
            case ToolCalled():
                self._print_detail(f"  {self.progress.actions:>3}  {self.progress.activity}")
            case ToolReturned():
                if event.is_error:
                    self._print_detail(f"       failed: {get_first_line(event.text)}")
            case ReplyReceived():
                self._is_waiting = False
            case ScriptOutput():
                self._show_output(event.text)
            case WaitingForModel():
                self._show_waiting(event)

    def _show_run_start(self, event: RunStarted) -> None:
        self._print_line(f"run {event.id}  sandbox: {event.sandbox['name']}")
        if event.sandbox["name"] == "off":
            self._print_line("WARNING: scripts run unconfined (sandbox off): they can read and write whatever you can.")
        for note in event.notes:
            self._print_line(f"NOTE: {note}")

    def _print_note(self, text: str) -> None:
        """Print a note once: a later check of the same artifact has it again."""
        if text not in self._shown_notes:
            self._shown_notes.add(text)
            self._print_detail(text)

    def _show_output(self, text: str) -> None:
        if line_text := get_last_line(text):
            self._print_heartbeat(line_text)

    def _show_waiting(self, event: WaitingForModel) -> None:
        if self.is_interactive or not self._is_waiting:
            self._print_line(f"       {describe_wait(event)}")
        else:
            self._print_heartbeat(describe_wait(event))
        self._is_waiting = True

    # -------------------------------------------------------------------------------------------------------------

    def _print_detail(self, text: str) -> None:
        """Print a line that is meant for a terminal only, not for a log file."""
        if self.is_interactive:
            self._print_line(text)

    def _print_heartbeat(self, text: str) -> None:
        """Print a sign of life to a log file that has had no line for long."""
        if not self.is_interactive and self._now - self._last_print_time > HEARTBEAT_S:
            self._print_line(f"       {text[:MAX_LINE_CHARS]}")

    def _print_line(self, text: str) -> None:
        """Print a line with the time since the start; on a terminal it is wrapped under its own indent."""
        self._last_print_time = self._now
        started_at = self.progress.started_at
        elapsed_s = self._now - started_at if started_at is not None else 0.0
        line = f"{format_clock(elapsed_s):>5} {text.rstrip()}"
        if self.is_interactive:
            indent = len(line) - len(line[5:].lstrip()) + NOTE_INDENT
            line = textwrap.fill(
                line, self.console.width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
            )
        self.console.print(line, markup=False, overflow="fold")
