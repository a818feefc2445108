"""The progress of a run in one line, for a notebook and for a terminal (`m3b.cli.live`)."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from m3b.display import shorten
from m3b.events import (
    Event,
    ReplyDelta,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    ScriptOutput,
    StepStarted,
    ToolCalled,
    ToolReturned,
    WaitingForModel,
)

MAX_LINE_CHARS = 110
"""Maximum length of the line."""
MIN_REDRAW_S = 0.5
"""Minimum interval between updates for script output, since a page that changes all the time is slow to draw."""


def make_progress_watcher() -> Callable[[Event], None]:
    """Return a callback for events that shows a line in a notebook, and does nothing elsewhere."""
    return NotebookProgress() if is_in_notebook() else lambda event: None


def is_in_notebook() -> bool:
    """Return whether this runs in a notebook's kernel. IPython on a terminal does not, since output stays there."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class RunProgress:
    """The progress of a run, from its events; the same text is used on a terminal and in a notebook."""

    def __init__(self) -> None:
        self.stage, self.activity = "", ""
        self.actions = self.tokens = 0
        self._draft = ""

    def update(self, event: Event) -> bool:
        """Apply an event; return whether it changes the line."""
        match event:
            case RoleStarted():
                self.stage, self.activity = event.title, ""
            case RoleEnded():
                self.stage = self.activity = ""
            case ToolCalled():
                self.actions += event.cost
                self.activity = f"{event.name} {summarize_arguments(event.arguments)}".strip()
            case ToolReturned():
                self.activity = ""
            case ReplyDelta():
                self._draft = self._draft[-MAX_LINE_CHARS:] + event.text if event.text else ""
                self.activity = get_last_line(self._draft)
            case ReplyReceived():
                self._draft = self.activity = ""
                self.tokens += event.usage.input_tokens + event.usage.output_tokens
            case ScriptOutput():
                self.activity = get_last_line(event.text) or self.activity
            case StepStarted():
                self.activity = event.text
            case WaitingForModel():
                self.activity = describe_wait(event)
            case RunEnded(result=result):
                self.stage, self.activity = str(result.get("status", "ended")), str(result.get("reason", ""))
            case _:
                return False
        return True

    def format_line(self) -> str:
        """Return stage, actions, tokens and current activity."""
        actions = f"{self.actions} action{'' if self.actions == 1 else 's'}"
        parts = [self.stage or "m3b", actions, f"{self.tokens:,} tokens", self.activity]
        return " · ".join(part for part in parts if part)


def format_clock(seconds: float) -> str:
    """Return minutes and seconds, such as `0:07` or `75:30`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def describe_wait(event: WaitingForModel) -> str:
    """Return the reason and duration of a wait."""
    return f"waiting {event.seconds:.0f} s: {event.reason}"


def summarize_arguments(arguments: dict[str, Any]) -> str:
    """Return the main argument of a tool call in one line."""
    for key in ("command", "job", "path", "paths", "source"):
        if arguments.get(key):
            return get_first_line(str(arguments[key]))
    files = arguments.get("files")
    files = files if isinstance(files, list) else []
    return ", ".join(str(item.get("path", "?")) for item in files if isinstance(item, dict))


def get_first_line(text: str) -> str:
    """Return the first non-empty line, cut to the width of a log line."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 3]}..."


def get_last_line(text: str) -> str:
    """Return the last non-empty line in full."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


class NotebookProgress:
    """Shows time and progress of a run in one place of a notebook, which is overwritten."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.progress = RunProgress()
        self._drawn_at = 0.0
        self._display_handle: Any = None

    def __call__(self, event: Event) -> None:
        if not self.progress.update(event):
            return
        now = time.monotonic()
        if not isinstance(event, ScriptOutput | ReplyDelta) or now - self._drawn_at > MIN_REDRAW_S:
            self._drawn_at = now
            self._draw()

    def format_text(self) -> str:
        """Return the current line."""
        return shorten(
            f"{format_clock(time.monotonic() - self.started_at)} {self.progress.format_line()}", MAX_LINE_CHARS
        )

    def _draw(self) -> None:
        display = importlib.import_module("IPython.display").display  # every notebook has it; m3b does not depend on it

        mime_bundle = {"text/plain": self.format_text()}
        if self._display_handle is None:
            self._display_handle = display(mime_bundle, raw=True, display_id=True)
        else:
            self._display_handle.update(mime_bundle, raw=True)
