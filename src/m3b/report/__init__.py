"""The report of a run: one self-contained HTML page."""

from .page import write_report
from .pictures import ReaderOpener
from .run_files import ReportNotes

__all__ = ["ReaderOpener", "ReportNotes", "write_report"]
