"""What executing a spec reads from the data folder: the list of files, headers, tables, lists and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable
from m3b.data.reading import shared
from m3b.data.spec.model import FromTable
from m3b.data.spec.patterns import fields
from m3b.data.spec.sources import SEPARATOR, Row
from m3b.data.spec.value_sources import ROW
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.reading_tables import read_rows
from m3b.data.survey.walk import walk
from m3b.errors import DataError

MOST_ROWS = 1_000_000
"""Of one table; a survey is content with fewer."""


class Readers:
    """Reads below one data folder.

    Args:
        root: the data folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._header = lru_cache(maxsize=100_000)(self._read_header)
        self._files: list[str] | None = None
        self.undecodable: tuple[str, ...] = ()
        """Escaped paths of files that `files` leaves out because their paths are not UTF-8."""

    def files(self) -> list[str]:
        """Every regular file, in natural order, as they were when first asked for; links are not followed."""
        if self._files is None:
            self._files = self._walk()
        return self._files

    def _walk(self) -> list[str]:
        tree = walk(self.root, SurveyLimits())
        self.undecodable = tuple(tree.undecodable)
        natural = shared().natural_key
        return sorted((folder.path(name) for folder in tree.folders for name in folder.names), key=natural)

    def lookup(self, wanted: str, slots: dict[str, str]) -> dict[str, str]:
        """Adds the DICOM header fields (`{tag.PatientID}`) that a key asks for."""
        keywords = tuple(name[4:] for name in fields(wanted) if name.startswith("tag."))
        missing = tuple(name for name in keywords if f"tag.{name}" not in slots)
        return {**slots, **self._header(slots["path"], missing)} if missing else slots

    def _read_header(self, path: str, keywords: tuple[str, ...]) -> dict[str, str]:
        import pydicom
        from pydicom.errors import InvalidDicomError

        try:
            header: Any = pydicom.dcmread(self.root / path, stop_before_pixels=True, specific_tags=list(keywords))
        except (OSError, InvalidDicomError, ValueError):
            return {f"tag.{name}": "" for name in keywords}
        return {f"tag.{name}": str(header.get(name, "") or "").strip() for name in keywords}

    def rows(self, path: str, source: FromTable) -> Sequence[Row]:
        """The rows of a table, cells as texts; the values of a list in one cell are divided by `SEPARATOR`.

        Raises:
            DataError: there is no such table in the file.
        """
        file = self.root / path
        try:
            tables = read_rows(file, file.suffix.lower(), SurveyLimits(rows=MOST_ROWS))
        except (Unreadable, ValueError, OSError) as error:
            raise DataError(f"{path} cannot be read as a table: {error}.") from error
        fitting = [one for one in tables if source.sheet in ("", one.sheet) and source.records in ("", one.record_path)]
        if not fitting:
            there = ", ".join(one.sheet or one.record_path or "the only one" for one in tables) or "none"
            raise DataError(f"{path} has no table {source.sheet or source.records!r}; tables in it: {there}.")
        rows = enumerate(fitting[0].rows)
        return [{"(file)": path, ROW: str(at), **{name: _text(cell) for name, cell in row.items()}} for at, row in rows]

    def lines(self, path: str) -> Sequence[str]:
        """The lines of a list that are not empty."""
        text = (self.root / path).read_bytes()[: 64 * 2**20].decode("utf-8", "replace")
        return [line.strip() for line in text.splitlines() if line.strip()]


def _text(cell: str | list[str]) -> str:
    return cell if isinstance(cell, str) else SEPARATOR.join(cell)
