"""Progress of predictions: a bar on a terminal or in a notebook, lines in a log, or a function of the caller."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MIN_LINE_INTERVAL_S = 10.0


@contextmanager
def report_progress(progress: bool | Callable[[int, int], None], total: int) -> Iterator[Callable[[int, int], None]]:
    """Yield the function to call with the number of predictions so far and of cases.

    Args:
        progress: a function of the caller; True for a bar with the time left, which is a line every ten seconds if standard
            error is no terminal; False for nothing.
    """
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda done, total: None
    elif sys.stderr.isatty() or "ipykernel" in sys.modules:
        with _show_bar(total) as advance:
            yield advance
    else:
        yield _LineWriter().advance


@contextmanager
def _show_bar(total: int) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left"))
    # lines on standard output move the bar down only if both are one terminal
    redirects = sys.stdout.isatty()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=redirects, redirect_stderr=redirects
    ) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _LineWriter:
    """Writes a line about every ten seconds, for logs."""

    def __init__(self) -> None:
        self._began = self._written_at = time.monotonic()

    def advance(self, done: int, total: int) -> None:
        """Write how many are done and how long the others will take, if it is time."""
        now = time.monotonic()
        if now - self._written_at < MIN_LINE_INTERVAL_S or done >= total:
            return
        self._written_at = now
        left_s = round((now - self._began) / done * (total - done))
        sys.stderr.write(f"predicted {done} of {total} images, about {left_s // 60}:{left_s % 60:02d} left\n")
        sys.stderr.flush()
