"""Representations of m3b's objects in a console and in a notebook: one line, tables and pictures."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

MAX_PART_CHARS = 60
"""Maximum length of one part of a representation."""

MAX_LIST_CHARS = 120


def shorten(text: object, max_chars: int = MAX_PART_CHARS) -> str:
    """Return a text as one line, cut at its end."""
    line = " ".join(str(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def format_json_value(value: object) -> str:
    """Return a JSON value as text, with four digits of each number, as `[99.02, 125.9]`; lists are cut at their end."""

    def format_item(item: object) -> str:
        if isinstance(item, list | tuple):
            return f"[{', '.join(map(format_item, item))}]"
        return f"{item:.4g}" if isinstance(item, float) else str(item)

    text = format_item(value)
    return shorten(text, MAX_LIST_CHARS) if isinstance(value, list | tuple) else text


def format_file_name(image: tuple[str, ...]) -> str:
    """Return the file name of an image; for several files, the first name and how many follow."""
    first, further_count = (image or ("",))[0], len(image) - 1
    return shorten(Path(first).name or first) + (f" and {further_count} more" if further_count > 0 else "")


def make_html_table(title: str, rows: Iterable[tuple[str, object]], *parts: str) -> str:
    """Return a titled table with two columns; everything is escaped, rows with empty values are omitted.

    Args:
        parts: HTML to put below the table, made by the functions of this module.
    """
    lines = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows
        if value not in (None, "", (), [])
    )
    return f"<div><strong>{html.escape(title)}</strong><table>{lines}</table>{''.join(parts)}</div>"


MAX_PICTURES = 6
PATIENT_NOTE = "These pictures show patients: clear the output before you share the notebook."


def make_html_grid(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a header; everything is escaped."""

    def make_cells(tag: str, cells: Iterable[object]) -> str:
        return "".join(f"<{tag} style='text-align:left'>{html.escape(str(cell))}</{tag}>" for cell in cells)

    head = make_cells("th", header)
    lines = "".join(f"<tr>{make_cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{lines}</table>"


def make_html_link(path: str | Path, text: str) -> str:
    """Return a link to a file of this machine, with its path beside it, since not every notebook opens such links."""
    file = Path(path)
    return (
        f"<div><a href='{html.escape(file.absolute().as_uri())}'>{html.escape(text)}</a> {html.escape(str(file))}</div>"
    )


def make_html_pictures(pictures: Iterable[tuple[bytes, str]]) -> str:
    """Return pictures side by side, each with its caption, and a note that they show patients; '' if there are none.

    Args:
        pictures: JPEG or PNG files with captions; other contents are omitted.
    """
    pictures = list(pictures)
    figures: list[str] = []
    width = 300 if len(pictures) > 1 else 520
    for content, caption in pictures:
        kind = "jpeg" if content.startswith(b"\xff\xd8\xff") else "png" if content.startswith(b"\x89PNG\r\n") else ""
        if kind and len(figures) < MAX_PICTURES:
            data = base64.b64encode(content).decode()
            text = html.escape(shorten(caption, 160))
            figures.append(
                f"<figure style='margin:0;max-width:{width}px'><img style='max-width:100%' alt='{text}' "
                f"src='data:image/{kind};base64,{data}'><figcaption>{text}</figcaption></figure>"
            )
    if not figures:
        return ""
    grid = f"<div style='display:flex;flex-wrap:wrap;gap:12px'>{''.join(figures)}</div>"
    return f"{grid}<div><small>{PATIENT_NOTE}</small></div>"


INTERVAL_WIDTH, INTERVAL_HEIGHT = 220, 22


def make_html_interval(value: float, low: float | None, high: float | None, baseline: float | None) -> str:
    """Return a drawing of a value from 0 to 1 with its interval (line) and the baseline (tick); '' for other values."""
    positions = [position for position in (value, low, high, baseline) if position is not None]
    if not all(0 <= position <= 1 for position in positions):
        return ""
    scale, middle = INTERVAL_WIDTH - 12, INTERVAL_HEIGHT // 2

    def x(position: float) -> str:
        return f"{6 + position * scale:.1f}"

    axis = f"<line x1='6' x2='{6 + scale}' y1='{middle}' y2='{middle}' stroke='#bbb'></line>"
    interval = ""
    if low is not None and high is not None:
        interval = (
            f"<line x1='{x(low)}' x2='{x(high)}' y1='{middle}' y2='{middle}' stroke='#1f6fb2' stroke-width='4'></line>"
        )
    tick = ""
    if baseline is not None:
        tick = f"<line x1='{x(baseline)}' x2='{x(baseline)}' y1='3' y2='{INTERVAL_HEIGHT - 3}' stroke='#a33'></line>"
    dot = f"<circle cx='{x(value)}' cy='{middle}' r='5' fill='#1f6fb2'></circle>"
    label = "value, 95 % interval and image-blind baseline from 0 to 1"
    return (
        f"<svg width='{INTERVAL_WIDTH}' height='{INTERVAL_HEIGHT}' role='img' aria-label='{label}'>"
        f"{axis}{interval}{tick}{dot}</svg>"
    )
