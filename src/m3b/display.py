"""Representations of m3b's objects in a console and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

MAX_PART_CHARS = 60
"""Maximum length of one part of a representation."""


def shorten(text: object, max_chars: int = MAX_PART_CHARS) -> str:
    """Return a text as one line, cut at its end."""
    line = " ".join(str(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def format_file_name(image: tuple[str, ...]) -> str:
    """Return the file name of an image; for several files, the first name and how many follow."""
    first, further_count = (image or ("",))[0], len(image) - 1
    return shorten(Path(first).name or first) + (f" and {further_count} more" if further_count > 0 else "")


def make_html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a titled table with two columns; everything is escaped, rows with empty values are omitted."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows
        if value not in (None, "", (), [])
    )
    return f"<div><strong>{html.escape(title)}</strong><table>{lines}</table></div>"
