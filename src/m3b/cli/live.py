"""The live view of a run: every action above a moving line with a bar on a terminal, one line a stage in a log file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from m3b.cli.show import console
from m3b.events import (
    Audited,
    Called,
    Checked,
    Delta,
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

if TYPE_CHECKING:
    from m3b.cli.bar import Bar

BEAT_S = 120.0
"""After so long without a line, a log file hears what a script that goes on said last."""
WIDTH = 110


class Live:
    """Takes events and shows them on standard error.

    Args:
        quiet: show nothing at all.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = console(to_stderr=True)
        self.moving = self.console.is_terminal and not quiet
        self.role, self.actions, self.tokens = "", 0, 0
        self.doing, self.tail, self._draft = "", "", ""
        self.started = time.monotonic()
        self._said, self._waited = self.started, False
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
        self._take(event)
        if self._status is not None:
            self._status.describe(self._line())

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._began(event)
            case RoleStarted():
                self.role = event.title
                self._say(f"{self.role} ({event.llm})")
            case RoleEnded():
                if event.status != "done":
                    self._say(f"  {self.role} ended: {event.status}")
                self.role = ""
            case StageBegun():
                self.doing = event.text
                self._unknown()
                self._say(f"       {event.text}")
            case Audited():
                self._detail(f"       {event.summary}")
            case Checked():
                for reason in event.reasons:  # the user's voice
                    self._detail(f"       not accepted: {_first_line(reason)}")
                for warning in event.warnings:
                    self._detail(f"       noted: {_first_line(warning)}")
            case _:
                self._take_of_agent(event)

    def _take_of_agent(self, event: Event) -> None:
        match event:
            case Called():
                self.actions += event.cost
                self.doing = f"{event.name} {_brief(event.arguments)}"
                self._detail(f"  {self.actions:>3}  {self.doing}")
            case Returned():
                self.doing = self.tail = ""
                self._unknown()
                if event.is_error:
                    self._detail(f"       failed: {_first_line(event.text)}")
            case Delta():
                self._drafted(event.text)
            case Replied():
                self._draft = self.doing = ""
                self._waited = False
                self.tokens += event.usage.input_tokens + event.usage.output_tokens
            case Output():
                self._printed(event.text)
            case Waiting():
                self._waits(event)

    def _began(self, event: RunStarted) -> None:
        self._say(f"run {event.id}  sandbox: {event.sandbox['name']}")
        if event.sandbox["name"] == "off":
            self._say("WARNING: scripts run unconfined (sandbox off): they can read and write whatever you can.")

    def _drafted(self, text: str) -> None:
        """The model's words, on a terminal only: a log file is told what came of them."""
        self._draft = self._draft[-WIDTH:] + text if text else ""
        lines = [line.strip() for line in self._draft.splitlines() if line.strip()]
        self.doing = lines[-1] if lines else ""

    def _printed(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self.tail = lines[-1] if lines else ""
        if self._status is not None:
            for line in lines:
                self._status.told(line)
        if self.tail:
            self._alive(self.tail)

    def _waits(self, event: Waiting) -> None:
        told = f"waiting {event.seconds:.0f} s: {event.reason}"
        if self.moving or not self._waited:
            self._say(f"       {told}")
        else:
            self._alive(told)
        self._waited = True

    # -------------------------------------------------------------------------------------------------------------

    def _detail(self, text: str) -> None:
        """What a person who looks on wants to see, and a log file that is read afterwards is spared."""
        if self.moving:
            self._say(text)

    def _alive(self, text: str) -> None:
        """A sign of life in a log file that has heard nothing for long."""
        if not self.moving and time.monotonic() - self._said > BEAT_S:
            self._say(f"       {text[:WIDTH]}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        spent = int(time.monotonic() - self.started)
        self.console.print(f"{spent // 60:>2}:{spent % 60:02d} {text}", markup=False, overflow="fold")

    def _unknown(self) -> None:
        if self._status is not None:
            self._status.unknown()

    def _line(self) -> str:
        parts = [self.role or "m3b", f"{self.actions} actions", f"{self.tokens:,} tokens"]
        return " | ".join([*parts, self.tail or self.doing])


def _brief(arguments: dict[str, Any]) -> str:
    """What a call is about, in one line."""
    for key in ("command", "job", "path", "paths", "source"):
        if arguments.get(key):
            return _first_line(str(arguments[key]))
    if arguments.get("files"):
        files = arguments["files"] if isinstance(arguments["files"], list) else []
        return ", ".join(str(item.get("path", "?")) for item in files if isinstance(item, dict))
    return ""


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
