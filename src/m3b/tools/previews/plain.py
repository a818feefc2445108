"""Text, Markdown and anything else that people read."""

from __future__ import annotations

from pathlib import Path

from m3b.data.delimited import decode
from m3b.data.phi import Phi
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.blocks import count_lines
from m3b.tools.previews.masking import masked_line
from m3b.tools.text import pluralize, shorten

LONGEST = 4000
"""Characters of a line that are looked at: what is masked must be whole, of what is shown 200 are enough."""


def preview(path: Path, phi: Phi) -> list[str]:
    """First lines and the number of all lines; tables without a telling extension are shown as tables."""
    from m3b.dataset.tables import TABLE_SUFFIXES
    from m3b.tools.previews import loaded_tables, tables

    with open_for_reading(path, path.name) as file:
        head = file.read(1 << 16)
    text, encoding = decode(head)
    if path.suffix.lower() in (".txt", ".data", ".dat", "", ".list") and tables.is_table(text):
        return tables.preview(path, phi)
    lines = text.split("\n")[:25]
    total = count_lines(path, quotes=False).lines
    lines = [shorten(line.rstrip("\r"), LONGEST) for line in lines]
    shown = [masked_line(line) for line in lines] if phi == "mask" else lines
    is_personal = shown != lines
    shown = [shorten(line, 200) for line in shown]
    described = [f"text, {encoding}, {pluralize(total, 'line')}; the first:", *shown]
    if is_personal or path.suffix.lower() not in TABLE_SUFFIXES:
        return described
    return loaded_tables.add_table(described, path, phi)
