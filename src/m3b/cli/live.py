"""The live view of a run: every action above a moving line with a bar on a terminal, one line a stage in a log file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from m3b.cli.show import console
from m3b.events import (
    Audited,
    Called,
    Checked,
    Event,
    Output,
    Replied,
    Returned,
    RoleEnded,
    RoleStarted,
    RunStarted,
    StageBegun,
    Waiting,
)
from m3b.progress import WIDTH, RunProgress, clock, first_line, last_line, waits

if TYPE_CHECKING:
    from m3b.cli.bar import Bar

BEAT_S = 120.0
"""After so long without a line, a log file hears what a script that goes on said last."""


class Live:
    """Takes events and shows them on standard error.

    Args:
        quiet: show nothing at all.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = console(to_stderr=True)
        self.moving = self.console.is_terminal and not quiet
        self.progress = RunProgress()
        self.started = time.monotonic()
        self._said, self._is_waiting = self.started, False
        self._status: Bar | None = None

    def __enter__(self) -> Live:
        if self.moving:
            from m3b.cli.bar import Bar

            self._status = Bar(self.console)
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing moves on the terminal meanwhile: somebody is typing there."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        previous_stage = self.progress.stage
        self.progress.take(event)
        if isinstance(event, RoleEnded) and event.status != "done":
            self._say(f"  {previous_stage} ended: {event.status}")
        self._take(event)
        if self._status is not None:
            self._status.describe(self.progress.line())

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._began(event)
            case RoleStarted():
                self._say(f"{event.title} ({event.llm})")
            case StageBegun():
                self._unknown()
                self._say(f"       {event.text}")
            case Audited():
                self._print_detail(f"       {event.summary}")
            case Checked():
                for reason in event.reasons:  # the user's voice
                    self._print_detail(f"       not accepted: {first_line(reason)}")
                for warning in event.warnings:
                    self._print_detail(f"       noted: {first_line(warning)}")
            case _:
                self._show_agent_event(event)

    def _show_agent_event(self, event: Event) -> None:
        match event:
            case Called():
                self._print_detail(f"  {self.progress.actions:>3}  {self.progress.doing}")
            case Returned():
                self._unknown()
                if event.is_error:
                    self._print_detail(f"       failed: {first_line(event.text)}")
            case Replied():
                self._is_waiting = False
            case Output():
                self._show_output(event.text)
            case Waiting():
                self._show_waiting(event)

    def _began(self, event: RunStarted) -> None:
        self._say(f"run {event.id}  sandbox: {event.sandbox['name']}")
        if event.sandbox["name"] == "off":
            self._say("WARNING: scripts run unconfined (sandbox off): they can read and write whatever you can.")
        for note in event.notes:
            self._say(f"NOTE: {note}")

    def _show_output(self, text: str) -> None:
        if self._status is not None:
            for line in text.splitlines():
                self._status.told(line)
        if line_text := last_line(text):
            self._print_heartbeat(line_text)

    def _show_waiting(self, event: Waiting) -> None:
        if self.moving or not self._is_waiting:
            self._say(f"       {waits(event)}")
        else:
            self._print_heartbeat(waits(event))
        self._is_waiting = True

    # -------------------------------------------------------------------------------------------------------------

    def _print_detail(self, text: str) -> None:
        """What a person who looks on wants to see, and a log file that is read afterwards is spared."""
        if self.moving:
            self._say(text)

    def _print_heartbeat(self, text: str) -> None:
        """A sign of life in a log file that has heard nothing for long."""
        if not self.moving and time.monotonic() - self._said > BEAT_S:
            self._say(f"       {text[:WIDTH]}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self.console.print(f"{clock(time.monotonic() - self.started):>5} {text}", markup=False, overflow="fold")

    def _unknown(self) -> None:
        if self._status is not None:
            self._status.unknown()
