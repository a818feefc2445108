"""Texts of a case: from its path, a table's row, a header, another array of its container, or a list of names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from m3b.data.spec.accounting import Accounting
from m3b.data.spec.array_values import ArrayValues
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.model import Files, FromList, FromMember, FromPath, FromTable, FromTag, Value
from m3b.data.spec.patterns import PatternError, built_in, compiled, fields, filled
from m3b.data.survey.keys import key as normal

Row = Mapping[str, str]
ReadRows = Callable[[str, FromTable], Sequence[Row]]
"""The rows of the table at a path below the data folder, as the source describes it."""
ReadLines = Callable[[str], Sequence[str]]
"""The lines of a list that are not empty."""

SEPARATOR = "\x1f"
"""Between the values of a cell that holds a list."""


def found_in(value: FromPath, text: str) -> str:
    """What `find` takes of a text; all of it without one.

    Raises:
        PatternError: `find` is no valid expression.
    """
    if not value.find:
        return text
    try:
        hit = re.search(value.find, text)
    except re.error as error:
        raise PatternError(f"The expression {value.find!r} cannot be used: {error}.") from None
    return (hit.group(1) if hit.re.groups else hit.group()) or "" if hit else ""


def folder_of(value: FromTable, table: str, slots: Mapping[str, str]) -> str:
    """The folder whose files alone a table speaks of; empty where it may name any."""
    key = next((key for pattern, key in value.within.items() if compiled(pattern).match(table) is not None), "")
    return filled(key, dict(slots)).strip("/")


def below(path: str, folder: str) -> bool:
    """Whether a path is a folder's, or lies below it; every path lies below the empty one."""
    return not folder or f"{path}/".startswith(f"{folder}/")


@dataclass
class Sources:
    """Answers `Value`s for cases; tables and lists are read once each.

    Args:
        conflicts: keys for which rows of a table disagree: no value is taken for those.
    """

    folder: DataFolder
    rows: ReadRows
    lines: ReadLines
    accounting: Accounting
    conflicts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _tables: dict[str, dict[str, dict[str, tuple[str, ...]]]] = field(default_factory=dict)
    _lists: dict[str, dict[str, str]] = field(default_factory=dict)
    _arrays: ArrayValues | None = None

    def text(self, value: Value, case: CaseDraft) -> str | None:
        """The text of a case; None where the source does not name it, or names it with different texts."""
        texts = self.texts(value, case)
        if len(texts) > 1:
            self.conflicts[case.key] = texts
            return None
        return texts[0] if texts else None

    def texts(self, value: Value, case: CaseDraft) -> tuple[str, ...]:
        """All different texts of a case: several where a table has several rows for it."""
        match value:
            case FromPath():
                text = found_in(value, filled(value.value, case.slots))
                return (text,) if text else ()
            case FromTag():
                found = self.folder.lookup(f"{{tag.{value.keyword}}}", case.slots).get(f"tag.{value.keyword}", "")
                return (found,) if found else ()
            case FromMember():
                return self._member(value, case)
            case FromList():
                side = self._listed(value).get(normal(value.rule, filled(value.image, case.slots)))
                side = side or value.rest
                return (side,) if side else ()
            case FromTable():
                keys = self.texts(value.through, case) if value.through else (filled(value.image, case.slots),)
                tables = [table for folder, table in self._table(value).items() if below(case.name, folder)]
                made = [normal(value.rule, key) for key in keys]
                return tuple(dict.fromkeys(text for table in tables for key in made for text in table.get(key, ())))

    def absent(self, value: FromTable, cases: Sequence[CaseDraft]) -> int:
        """How many names a table gives that neither a case nor another file of the folder has."""
        named = {key for table in self._table(value).values() for key in table}
        for case in cases:
            keys = self.texts(value.through, case) if value.through else (filled(value.image, case.slots),)
            named -= {normal(value.rule, key) for key in keys}
        slots = set(fields(value.image))
        for path in self.folder.files if named and not value.through else ():
            own = built_in(path)
            if slots <= own.keys():
                named.discard(normal(value.rule, filled(value.image, own)))
        return len(named)

    def _table(self, value: FromTable) -> dict[str, dict[str, tuple[str, ...]]]:
        """The folder that rows speak of (empty: any) -> the key of a row -> its different cells."""
        known = value.model_dump_json()
        if known not in self._tables:
            self._tables[known] = self._read_table(value)
        return self._tables[known]

    def _read_table(self, value: FromTable) -> dict[str, dict[str, tuple[str, ...]]]:
        every: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
        files = self.folder.items(Files(pattern=value.file))
        if not files:
            raise PatternError(f"There is no table {value.file!r} below the data folder.")
        for item in files:
            rows = self.rows(item.path, value)
            columns = set(rows[0]) if rows else set()
            found = every[folder_of(value, item.path, item.slots)]
            for name in (*fields("".join((value.row, *value.also))), *fields(value.column)):
                if rows and name not in columns and name not in item.slots:
                    raise PatternError(f"{item.path} has no column {name!r}; it has {', '.join(sorted(columns))}.")
            if rows and "{" not in value.column and value.column not in columns:
                raise PatternError(f"{item.path} has no column {value.column!r}; it has {', '.join(sorted(columns))}.")
            for row in rows:
                whole = {**item.slots, **row}
                cell = filled(value.column, dict(whole)) if "{" in value.column else row.get(value.column, "")
                for name in (one for key in (value.row, *value.also) for one in _each(key, whole)):
                    if cell.strip() and (key := normal(value.rule, name)):
                        found[key].setdefault(cell.strip())
        self.accounting.use((item.path for item in files), "table")
        return {folder: {name: tuple(cells) for name, cells in found.items()} for folder, found in every.items()}

    def _listed(self, value: FromList) -> dict[str, str]:
        known = value.model_dump_json()
        if known not in self._lists:
            found: dict[str, str] = {}
            for side, patterns in value.lists.items():
                for pattern in patterns:
                    items = self.folder.items(Files(pattern=pattern))
                    if not items:
                        raise PatternError(f"There is no list {pattern!r} below the data folder.")
                    for item in items:
                        for line in self._names(value, item.path):
                            found.setdefault(normal(value.rule, line), side)
                    self.accounting.use((item.path for item in items), "table")
            self._lists[known] = found
        return self._lists[known]

    def _names(self, value: FromList, path: str) -> Sequence[str]:
        """What a list names: its lines, or the cells of a column."""
        if not value.column:
            return self.lines(path)
        cell = FromTable(file=path, row=f"{{{value.column}}}", column=value.column)
        rows = self.rows(path, cell)
        if rows and value.column not in rows[0]:
            raise PatternError(f"{path} has no column {value.column!r}; it has {', '.join(sorted(rows[0]))}.")
        return [name for row in rows for name in row.get(value.column, "").split(SEPARATOR) if name.strip()]

    def _member(self, value: FromMember, case: CaseDraft) -> tuple[str, ...]:
        """A value of another array: at the case's own place where the key ends with [#], else the whole as one text."""
        if self._arrays is None:
            self._arrays = ArrayValues(self.folder.root, frozenset(self.folder.files))
        item = case.items[0]
        path = filled(value.file, item.slots) if value.file else item.path
        name = filled(value.key.removesuffix("[#]"), item.slots)
        text = self._arrays.text(path, name, int(item.slots["index"]) if value.key.endswith("[#]") else None)
        if text and value.file:
            self.accounting.use([path], "array")
        return (text,) if text else ()


def _each(key: str, row: Row) -> Sequence[str]:
    """The key of a row; of a cell with several values (lines of one text), one for each."""
    text = filled(key, dict(row))
    return text.split(SEPARATOR) if SEPARATOR in text else (text,)
