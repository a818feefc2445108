"""The report of a run: one self-contained HTML page."""

from .page import collect_report_values, draw_report_pictures, list_case_answers, write_report
from .pictures import ReaderOpener
from .run_files import ReportNotes, read_run_files

__all__ = [
    "ReaderOpener",
    "collect_report_values",
    "ReportNotes",
    "draw_report_pictures",
    "list_case_answers",
    "read_run_files",
    "write_report",
]
