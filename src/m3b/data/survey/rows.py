"""A table in memory, whatever it was read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Format = Literal["csv", "xlsx", "json", "jsonl", "xml", "list", "text"]
Cell = str | list[str]
MAX_COLUMNS = 2_000


@dataclass
class Rows:
    """One table in memory: a name to a cell for every row; a cell of several values is a list."""

    format: Format
    names: list[str]
    rows: list[dict[str, Cell]] = field(default_factory=list)
    sheet: str = ""
    record_path: str = ""
    delimiter: str = ""
    encoding: str = ""
    header: bool = True
    exact: bool = True

    def add(self, row: dict[str, Cell]) -> None:
        """One more row; columns that it has and others did not are new columns."""
        for name in row:
            if name not in self.known and len(self.names) < MAX_COLUMNS:
                self.names.append(name)
                self.known.add(name)
        self.rows.append(row)

    def __post_init__(self) -> None:
        self.known = set(self.names)
