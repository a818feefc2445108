"""The moving line of a run on a terminal: current activity, a progress bar, and the time left."""

from __future__ import annotations

import re
import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from m3b.writing import escape_control_codes

PROGRESS_PATTERN = re.compile(r"\b(\d+) of (\d+) (s|images|cases|files)\b")
"""Progress in the output of scripts and checks; if it is in seconds, the bar moves on until the next line."""
DESCRIPTION_WIDTH = 60


class _TimedBarColumn(BarColumn):
    def render(self, task: Task) -> ProgressBar:
        start_time = task.fields.get("begun")
        if start_time is not None and task.total is not None:
            task.completed = min(task.total, time.monotonic() - start_time)
        return super().render(task)


class _RemainingTimeColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        remaining_s = task.total - task.completed if task.fields.get("begun") is not None else task.time_remaining
        return Text("" if remaining_s is None else f"{int(remaining_s) // 60}:{int(remaining_s) % 60:02d} left")


class StatusLine:
    """The moving line at the bottom of the screen."""

    def __init__(self, console: Console) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            _TimedBarColumn(bar_width=20),
            _RemainingTimeColumn(),
        )
        self._width = max(20, min(console.width - 36, 3 * DESCRIPTION_WIDTH))
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("", total=None, begun=None)

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def describe(self, text: str) -> None:
        self._progress.update(self._task, description=escape(escape_control_codes(text)[: self._width]))

    def update_from_output(self, line: str) -> None:
        """Show the progress that a line of output states; other lines are ignored."""
        match = PROGRESS_PATTERN.search(line)
        if match is None:
            return
        done, total = float(match.group(1)), float(match.group(2))
        if total <= 0 or done > total:
            return
        start_time = time.monotonic() - done if match.group(3) == "s" else None
        self._progress.update(self._task, total=total, completed=done, begun=start_time)

    def reset_progress(self) -> None:
        """Clear the progress, since the duration of the next activity is unknown."""
        self._progress.reset(self._task, total=None, begun=None)
