"""The tables of a folder: every file that holds rows, and groups of small files of one form as one table each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from m3b.data.opening import Unreadable, attempt
from m3b.data.phi import is_personal
from m3b.data.phi_shapes import IDENTIFIERS, beside_persons, unnamed
from m3b.data.survey.columns import column_of
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.kinds import TEXTS, cut
from m3b.data.survey.reading_documents import WHOLE
from m3b.data.survey.reading_tables import read_rows
from m3b.data.survey.reading_texts import BARE, RECORD
from m3b.data.survey.rows import Cell, Rows
from m3b.data.survey.table_facts import Table

TOGETHER = 12
"""More files of one group than this are one table."""
OBJECTS = ("name", "names", "address", "addresses", "contact")
"""Keys of objects that are all about who and where somebody is, beside others that name a person."""
FILE = "(file)"
"""The column that a table of several files has beside those of the files: each row's path."""


@dataclass
class Loaded:
    """A table's facts with its rows."""

    fact: Table
    names: list[str]
    rows: list[dict[str, Cell]] = field(default_factory=list)

    def cells(self, name: str) -> list[list[str]]:
        """A column as a list of values for each row."""
        separator = next((one.separator for one in self.fact.columns if one.name == name), "")
        return [_items(row.get(name, ""), separator) for row in self.rows]


def _items(cell: Cell, separator: str) -> list[str]:
    if isinstance(cell, list):
        return cell
    return [item.strip() for item in cell.split(separator)] if separator else [cell]


def load_tables(found: Gathering) -> list[Loaded]:
    """All tables, in the order of their groups and paths."""
    loaded: list[Loaded] = []
    for group in found.groups:
        if group.fact.kind not in TEXTS:
            continue
        if group.merged.count > TOGETHER:
            loaded += _together(found, group, len(loaded))
            continue
        for path in group.paths:
            if len(loaded) >= found.tree.limits.tables or found.tree.late:
                found.tree.notes.add("time" if found.tree.late else "tables", path)
                break
            for one in read(found, path):
                if one.rows and one.names and one.record_path not in (WHOLE, RECORD):
                    loaded.append(_loaded(f"t{len(loaded) + 1}", path, group.id, one, 1))
    return loaded


def read(found: Gathering, path: str) -> list[Rows]:
    """The tables of one file; what does not open becomes a note."""
    suffix = cut(path.rpartition("/")[2])[1]
    try:
        return attempt(lambda: read_rows(found.tree.root / path, suffix, found.tree.limits), found.tree.root, path)
    except Unreadable as error:
        found.tree.notes.add(error.code, path)
        return []


def _together(found: Gathering, group: Gathered, before: int) -> list[Loaded]:
    """Files of a group as one table, if their first ones have the same columns."""
    step = max(group.merged.count // 4, 1)
    samples = [rows for path in group.paths[::step][:4] if (rows := read(found, path))]
    written = _are_texts(samples)
    first = [rows[0] for some in samples if (rows := _wanted(some, written))]
    if len(first) < 2 or not _same(first) or all(one.format == "list" and len(one.rows) == 1 for one in first):
        return []
    limits = found.tree.limits
    whole = Rows(first[0].format, [FILE], header=first[0].header, delimiter=first[0].delimiter,
                 encoding=first[0].encoding, record_path=first[0].record_path)  # fmt: skip
    for count, path in enumerate(group.paths):
        if found.tree.late or len(whole.rows) >= limits.rows or count >= 20_000:
            whole.exact = False
            break
        for one in _wanted(read(found, path), written)[:1]:
            for row in one.rows:
                whole.add({FILE: path, **row})
    return [_loaded(f"t{before + 1}", group.paths[0], group.id, whole, group.merged.count)]


def _are_texts(samples: list[list[Rows]]) -> bool:
    """Whether files are texts of a case each, and no lists: all are prose, and one has headings or no line of a list."""
    texts = [rows[-1] for rows in samples if rows[-1].record_path == RECORD]
    return bool(texts) and len(texts) == len(samples) and any(
        BARE not in rows[-1].names or len(rows) == 1 or all(one.format == "list" for one in rows[:-1]) for rows in samples
    )  # fmt: skip


def _wanted(rows: list[Rows], written: bool) -> list[Rows]:
    return [one for one in rows if (one.record_path == RECORD) is written]


def _same(tables: list[Rows]) -> bool:
    common = set.intersection(*(set(one.names) for one in tables))
    return len(common) * 2 >= max(len(one.names) for one in tables)


def _loaded(id: str, path: str, group: str, rows: Rows, files: int) -> Loaded:
    columns = []
    for name in rows.names:
        cells = [row.get(name, "") for row in rows.rows]
        lists = any(isinstance(cell, list) for cell in cells)
        flat = [item for cell in cells for item in (cell if isinstance(cell, list) else [cell])]
        columns.append(partial(column_of, name, flat, [one for one in rows.names if one != name], lists=lists)())
    named = _beside_persons(rows) | _by_place(rows)
    columns = [one.model_copy(update={"sensitive": "identity"}) if one.name in named else one for one in columns]
    fact = Table(
        id=id, path=path, sheet=rows.sheet, record_path=rows.record_path, format=rows.format, group=group, files=files,
        delimiter=rows.delimiter, encoding=rows.encoding, header=rows.header, rows=len(rows.rows), exact=rows.exact,
        columns=tuple(columns),
    )  # fmt: skip
    return Loaded(fact, rows.names, rows.rows)


def _beside_persons(rows: Rows) -> set[str]:
    """Columns that name a person although nothing is written above them."""
    if not unnamed(rows.names):
        return set()
    cells = ([row.get(name, "") for row in rows.rows[:200]] for name in rows.names)
    found = beside_persons([[cell for cell in some if isinstance(cell, str)] for some in cells])
    return {rows.names[at] for at in found}


def _by_place(rows: Rows) -> set[str]:
    """Fields that name a person by the objects around them, as in FHIR (`identifier[].value`, `name[].family`)."""
    places = {name: [*_parts(rows.record_path), *_parts(name)] or [name] for name in rows.names}
    keys = [part for parts in places.values() for part in parts]
    found = {name for name, parts in places.items() if parts[-1:] == ["value"] and IDENTIFIERS & set(parts)}
    found |= {
        name
        for name, parts in places.items()
        if any(part in OBJECTS and is_personal(part, (), keys) for part in parts[:-1])
    }
    if {"family", "given"} <= set(keys):
        found |= {name for name, parts in places.items() if parts[-1] in ("family", "given")}
    return found


def _parts(path: str) -> list[str]:
    return [part for part in re.split(r"[.\[\]{}/]+", path) if part]
