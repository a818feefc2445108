"""How far a run is, in one line; a notebook has it in a place of the page, a terminal at the bottom (`m3b.cli.live`)."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from m3b.events import (
    Called,
    Delta,
    Event,
    Output,
    Replied,
    Returned,
    RoleEnded,
    RoleStarted,
    RunEnded,
    StageBegun,
    Waiting,
)
from m3b.notebook import short

WIDTH = 110
"""Characters of the line."""
EVERY_S = 0.5
"""Output of scripts moves the line this often at most: a page that changes all the time is slow to draw."""


def watcher() -> Callable[[Event], None]:
    """Takes the events of a run: a line in a notebook, or nothing where there is none."""
    return NotebookLine() if in_notebook() else lambda event: None


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this. IPython on a terminal is none: what is drawn there stays."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class RunProgress:
    """How far a run is, from its events: the same words on a terminal and in a notebook."""

    def __init__(self) -> None:
        self.stage, self.doing = "", ""
        self.actions = self.tokens = 0
        self._draft = ""

    def take(self, event: Event) -> bool:
        """Take an event in; whether it changes the line."""
        match event:
            case RoleStarted():
                self.stage, self.doing = event.title, ""
            case RoleEnded():
                self.stage = self.doing = ""
            case Called():
                self.actions += event.cost
                self.doing = f"{event.name} {brief(event.arguments)}".strip()
            case Returned():
                self.doing = ""
            case Delta():
                self._draft = self._draft[-WIDTH:] + event.text if event.text else ""
                self.doing = last_line(self._draft)
            case Replied():
                self._draft = self.doing = ""
                self.tokens += event.usage.input_tokens + event.usage.output_tokens
            case Output():
                self.doing = last_line(event.text) or self.doing
            case StageBegun():
                self.doing = event.text
            case Waiting():
                self.doing = waits(event)
            case RunEnded(result=result):
                self.stage, self.doing = str(result.get("status", "ended")), str(result.get("reason", ""))
            case _:
                return False
        return True

    def line(self) -> str:
        """Stage, actions, tokens and what is being done."""
        actions = f"{self.actions} action{'' if self.actions == 1 else 's'}"
        parts = [self.stage or "m3b", actions, f"{self.tokens:,} tokens", self.doing]
        return " · ".join(part for part in parts if part)


def clock(seconds: float) -> str:
    """`0:07`, `75:30`: minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def waits(event: Waiting) -> str:
    """What is waited for, and how long."""
    return f"waiting {event.seconds:.0f} s: {event.reason}"


def brief(arguments: dict[str, Any]) -> str:
    """What a call is about, in one line."""
    for key in ("command", "job", "path", "paths", "source"):
        if arguments.get(key):
            return first_line(str(arguments[key]))
    files = arguments.get("files")
    files = files if isinstance(files, list) else []
    return ", ".join(str(item.get("path", "?")) for item in files if isinstance(item, dict))


def first_line(text: str) -> str:
    """The first line with something in it, cut to the width of a log line."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def last_line(text: str) -> str:
    """The last line with something in it, whole."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


class NotebookLine:
    """The run's time and progress in a place of the page that is overwritten."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.progress = RunProgress()
        self._drawn = 0.0
        self._place: Any = None

    def __call__(self, event: Event) -> None:
        if not self.progress.take(event):
            return
        now = time.monotonic()
        if not isinstance(event, Output | Delta) or now - self._drawn > EVERY_S:
            self._drawn = now
            self._draw()

    def text(self) -> str:
        """The line as it stands."""
        return short(f"{clock(time.monotonic() - self.started)} {self.progress.line()}", WIDTH)

    def _draw(self) -> None:
        display = importlib.import_module("IPython.display").display  # there in every notebook, and no need of ours

        mime_bundle = {"text/plain": self.text()}
        if self._place is None:
            self._place = display(mime_bundle, raw=True, display_id=True)
        else:
            self._place.update(mime_bundle, raw=True)
