"""The report of a run folder, with what only the run knows: the next steps, and how long the network was trained."""

from __future__ import annotations

import contextlib
import time

from m3b.errors import M3bError
from m3b.isolation.sandbox import Sandbox
from m3b.report import ReaderOpener, ReportNotes, draw_report_pictures, read_run_files, write_report
from m3b.run.folder import RunFolder
from m3b.run.next_steps import list_next_steps, read_training_amount
from m3b.run.result import STATUSES, Result
from m3b.run.watching import load_progress


def draw_run_pictures(run: RunFolder, open_picture_reader: ReaderOpener, sandbox: Sandbox) -> None:
    """Draw the pictures of the report while the run still has its readers; what cannot be drawn is left out."""
    draw_report_pictures(read_run_files(run.path), open_picture_reader, sandbox)


def write_run_report(run: RunFolder, *, should_draw: bool = True) -> str:
    """Write `report.html` of a run in whatever state, and return its path; see `m3b.report.write_report`.

    Args:
        should_draw: whether pictures are drawn that the run does not have yet.

    Raises:
        OSError: the folder cannot be written to.
    """
    return str(write_report(run.path, None, collect_notes(run), should_draw=should_draw))


def collect_notes(run: RunFolder, *, is_file: bool = True) -> ReportNotes:
    """Return what the files of a run do not say: next steps, amount of training, what it does at the moment.

    Args:
        is_file: whether the report is a file that stays as it is, and not made anew at each look.
    """
    amount = read_training_amount(run)
    training = (amount.steps, amount.epochs, amount.minutes) if amount else None
    with contextlib.suppress(M3bError, OSError, ValueError, TypeError, KeyError, AttributeError):
        record = run.load_record()
        raw = record.get("result")
        if isinstance(raw, dict) and raw.get("status") in STATUSES:
            steps = list_next_steps(run, record, Result.from_json(raw))
            shown = [(step.text, step.command) for step in steps if step.code != "open_report"]
            return ReportNotes(tuple(shown), training)
    return ReportNotes(training=training, activity=_describe_activity(run, is_file))


def _describe_activity(run: RunFolder, is_file: bool) -> tuple[str, ...]:
    """Return what a run does at the moment, and how to see it later; empty if it is not at work."""
    with contextlib.suppress(M3bError, OSError, ValueError):
        if run.is_busy:
            refresh = (
                f"This page was written at {time.strftime('%H:%M:%S')} and does not change by itself: "
                f"`{run.format_command('report')}` writes it anew, `{run.format_command('show')} --watch` follows the run."
            )
            return (*load_progress(run).describe_now(time.time()), *([refresh] if is_file else []))
    return ()
