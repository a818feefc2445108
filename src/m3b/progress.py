"""One line in a notebook that says where a run is; nothing anywhere else."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from m3b.events import Called, Event, Output, Replied, RoleStarted, RunEnded, StageBegun, Waiting
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


class NotebookLine:
    """The run's stage, time, actions, tokens and what is being done, in a place of the page that is overwritten."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.stage, self.doing = "starting", ""
        self.actions = self.tokens = 0
        self._drawn = 0.0
        self._place: Any = None

    def __call__(self, event: Event) -> None:
        if not self._take(event):
            return
        now = time.monotonic()
        if not isinstance(event, Output) or now - self._drawn > EVERY_S:
            self._drawn = now
            self._draw()

    def _take(self, event: Event) -> bool:
        """Whether the event moves the line."""
        match event:
            case RoleStarted():
                self.stage, self.doing = event.title, ""
            case Called(arguments=arguments):
                self.actions += event.cost
                self.doing = f"{event.name} {arguments.get('command') or arguments.get('path') or ''}".strip()
            case Replied():
                self.tokens += event.usage.input_tokens + event.usage.output_tokens
            case Output():
                lines = [line.strip() for line in event.text.splitlines() if line.strip()]
                self.doing = lines[-1] if lines else self.doing
            case StageBegun():
                self.doing = event.text
            case Waiting():
                self.doing = f"waiting {event.seconds:.0f} s: {event.reason}"
            case RunEnded(result=result):
                self.stage, self.doing = str(result.get("status", "ended")), str(result.get("reason", ""))
            case _:
                return False
        return True

    def text(self) -> str:
        """The line as it stands."""
        spent = int(time.monotonic() - self.started)
        parts = [
            f"{spent // 60}:{spent % 60:02d} {self.stage}",
            f"{self.actions} action{'' if self.actions == 1 else 's'}",
            f"{self.tokens:,} tokens",
        ]
        return short(" · ".join([*parts, *([self.doing] if self.doing else [])]), WIDTH)

    def _draw(self) -> None:
        display = importlib.import_module("IPython.display").display  # there in every notebook, and no need of ours

        shown = {"text/plain": self.text()}
        if self._place is None:
            self._place = display(shown, raw=True, display_id=True)
        else:
            self._place.update(shown, raw=True)
