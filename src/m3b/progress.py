"""One line in a notebook that says where a run is; nothing anywhere else."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from m3b.events import Event
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
        handler = getattr(self, f"_{event.kind}", None)
        if handler is None:
            return
        handler(event.data)
        now = time.monotonic()
        if event.kind != "output" or now - self._drawn > EVERY_S:
            self._drawn = now
            self._draw()

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

    # --- one method a kind of event that moves the line ------------------------------------------------------------

    def _role_started(self, data: dict[str, Any]) -> None:
        self.stage, self.doing = str(data.get("title", "")), ""

    def _call(self, data: dict[str, Any]) -> None:
        self.actions += int(data.get("cost", 1))
        arguments = data.get("arguments") or {}
        self.doing = f"{data.get('name', '')} {arguments.get('command') or arguments.get('path') or ''}".strip()

    def _reply(self, data: dict[str, Any]) -> None:
        usage = data.get("usage") or {}
        self.tokens += int(usage.get("input_tokens", 0)) + int(usage.get("output_tokens", 0))

    def _output(self, data: dict[str, Any]) -> None:
        lines = [line.strip() for line in str(data.get("text", "")).splitlines() if line.strip()]
        self.doing = lines[-1] if lines else self.doing

    def _stage(self, data: dict[str, Any]) -> None:
        self.doing = str(data.get("text", ""))

    def _waiting(self, data: dict[str, Any]) -> None:
        self.doing = f"waiting {data.get('seconds', 0):.0f} s: {data.get('reason', '')}"

    def _run_ended(self, data: dict[str, Any]) -> None:
        self.stage, self.doing = str(data.get("status", "ended")), str(data.get("reason", ""))
