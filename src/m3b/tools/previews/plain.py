"""Text, Markdown and anything else that people read."""

from __future__ import annotations

from pathlib import Path

from m3b.data.phi import Phi
from m3b.dataset.tables.text_tables import decode_text
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.lines import count_lines
from m3b.tools.previews.markup_tables import mask_markup
from m3b.tools.previews.masking import masked_line
from m3b.tools.text import pluralize, shorten

LONGEST = 4000
"""Characters of a line that are looked at: what is masked must be whole, of what is shown 200 are enough."""


def preview(path: Path, phi: Phi) -> list[str]:
    """Return the first lines and the number of all lines, and the columns of what is a table."""
    from m3b.dataset.tables import TABLE_SUFFIXES
    from m3b.tools.previews import tables

    with open_for_reading(path, path.name) as file:
        head = file.read(1 << 16)
    text, encoding = decode_text(head)
    lines = [shorten(line.rstrip("\r"), LONGEST) for line in text.split("\n")[:25]]
    total = count_lines(path)
    shown = lines
    if phi == "mask":
        masked = mask_markup(text).split("\n")[:25]
        shown = [masked_line(shorten(line.rstrip("\r"), LONGEST)) for line in masked]
    is_personal = shown != lines
    shown = [shorten(line, 200) for line in shown]
    described = [f"text, {encoding}, {pluralize(total, 'line')}; the first:", *shown]
    if is_personal or path.suffix.lower() not in TABLE_SUFFIXES:
        return described
    return tables.add_table(described, path, phi)
