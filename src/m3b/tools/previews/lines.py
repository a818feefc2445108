"""The lines about a file, and the same as data."""

from __future__ import annotations

from collections.abc import Iterable

from m3b.facts import FileSummary


class Lines(list[str]):
    """Lines of text with their summary; its `path` is set by whoever knows how agents spell it."""

    def __init__(self, lines: Iterable[str], summary: FileSummary) -> None:
        super().__init__(lines)
        self.summary = summary
