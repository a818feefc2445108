"""What people see of m3b's objects in a console and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

MAX_PART_CHARS = 60
"""Characters of one part of a representation."""


def shorten(text: object, max_chars: int = MAX_PART_CHARS) -> str:
    """One line, cut at its end."""
    line = " ".join(str(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def format_file_name(image: tuple[str, ...]) -> str:
    """The file's name, or that of the first of several and how many follow."""
    first, further_count = (image or ("",))[0], len(image) - 1
    return shorten(Path(first).name or first) + (f" and {further_count} more" if further_count > 0 else "")


def make_html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A titled table of two columns; everything is escaped, empty values are left out."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows
        if value not in (None, "", (), [])
    )
    return f"<div><strong>{html.escape(title)}</strong><table>{lines}</table></div>"
