"""The lines about a file, and the same as data; the number of lines of a text file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from m3b.facts import FileSummary
from m3b.tools.paths import open_for_reading

_BLOCK_BYTES = 1 << 20


class Lines(list[str]):
    """Lines of text with their summary; its `path` is set by whoever knows how agents spell it."""

    def __init__(self, lines: Iterable[str], summary: FileSummary) -> None:
        super().__init__(lines)
        self.summary = summary


def count_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    count, last = 0, b"\n"
    with open_for_reading(path, path.name) as file:
        while block := file.read(_BLOCK_BYTES):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")
