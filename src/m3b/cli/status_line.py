"""The moving lines of a run on a terminal: current activity with a progress bar, and the whole run."""

from __future__ import annotations

import time

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from m3b.progress import RunProgress, format_clock
from m3b.writing import escape_control_codes

REFRESHES_PER_SECOND = 8
BAR_WIDTHS = (20, 12, 8)
"""Widths of the progress bar, the preferred one first; narrower ones if the text needs the room."""
MIN_TEXT_WIDTH = 24


class StatusLine:
    """The moving lines at the bottom of the screen, drawn from the progress of a run.

    The stage, the figures and the time left are never cut before the bar has become narrow or has gone.
    """

    def __init__(self, console: Console, progress: RunProgress) -> None:
        self._console, self._progress = console, progress
        self._spinner = Spinner("dots")
        self._live = self._make_live()

    def _make_live(self) -> Live:
        return Live(
            get_renderable=self.render,
            console=self._console,
            transient=True,
            refresh_per_second=REFRESHES_PER_SECOND,
        )

    def start(self) -> None:
        self._live = self._make_live()
        self._live.start(refresh=True)

    def stop(self) -> None:
        self._live.stop()

    def render(self, now: float | None = None) -> RenderableType:
        """Return the two lines for the present width of the terminal.

        Args:
            now: seconds since 1970; the present by default.
        """
        if self._progress.is_ended:
            return Text("")
        now = time.time() if now is None else now
        width = max(20, self._console.width - 1)  # a full last column would wrap on some terminals
        return Group(self._render_activity(now, width), Text(self._format_totals(now, width), style="dim"))

    def _render_activity(self, now: float, width: int) -> RenderableType:
        progress, count = self._progress, self._progress.count
        text = escape_control_codes(
            ": ".join(filter(None, [progress.stage, progress.describe_activity()])) or "starting"
        )
        text_width = cell_len(text)
        left_s = count.estimate_left_s(now) if count is not None else None
        left = f"{format_clock(left_s)} left" if left_s is not None else self._format_waiting_time(now)
        room = width - 2 - cell_len(left) - 1
        bar_width = next((size for size in BAR_WIDTHS if text_width + 1 + size <= room), 0)
        if not bar_width and room - BAR_WIDTHS[-1] - 1 >= MIN_TEXT_WIDTH and not progress.describe_figures():
            bar_width = BAR_WIDTHS[-1]
        text_room = room - (bar_width + 1 if bar_width else 0)
        row = Table.grid(padding=(0, 1, 0, 0))
        cells: list[RenderableType] = [self._spinner, Text(_fit(text, text_room), no_wrap=True)]
        if bar_width:
            share = count.get_share(now) if count is not None else None
            cells.append(
                ProgressBar(total=1.0, completed=share, width=bar_width)
                if share is not None
                else ProgressBar(total=None, pulse=True, width=bar_width)
            )
        row.add_row(*cells, Text(left, no_wrap=True))
        return row

    def _format_waiting_time(self, now: float) -> str:
        """Return how long the activity has lasted, if its end cannot be told."""
        started_at = self._progress.activity_started_at
        return "" if started_at is None else f"for {format_clock(max(0.0, now - started_at))}"

    def _format_totals(self, now: float, width: int) -> str:
        line = ""
        for part in self._progress.format_totals(now):
            longer_line = f"{line} · {part}" if line else f"  {part}"
            if cell_len(longer_line) <= width:
                line = longer_line
        return line


def _fit(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{set_cell_size(text, max(1, width - 1)).rstrip()}…"
