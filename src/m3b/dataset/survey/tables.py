"""The tables of a folder: each file, or files of one form stacked, with the facts of their columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from m3b.data.phi import cell, mask, scrub
from m3b.dataset.inventory import with_path_columns
from m3b.dataset.survey.facts import Column, Pairing, SurveyLimits, TableFacts, ValueCount
from m3b.dataset.survey.groups import Group, make_group, spread
from m3b.dataset.survey.names import RECORD_SUFFIXES, TABLE_FORMATS, Piece
from m3b.dataset.survey.walk import sort_naturally
from m3b.dataset.survey.words import is_placeholder, role_hint, side_of
from m3b.dataset.tables import (
    FILE_COLUMN,
    ROW_COLUMN,
    LoadedTable,
    TableError,
    TableLimits,
    describe_columns,
    load_table,
)
from m3b.dataset.tables.loading import TableForm
from m3b.isolation.untrusted import announce_opening

_MAX_SEPARATE = 8
"""Files of one name template up to which each is loaded by itself, to see whether they have the same columns."""
_MIN_COMMON_COLUMNS = 0.8
_MIN_COMMON_ROWS = 0.9
"""Keys that all files have, as a part of those of any, from which on the files are no parts of one table."""
_LINE_COLUMNS = frozenset({"0", "text", "line"})
"""Columns of small text files that hold one text or a line each; each file is then one text."""
_MAX_STACKED = 5_000
_MAX_COLUMNS = 300
_MAX_PLACES = 6
"""Places in one document or workbook whose rows are loaded as tables."""
_SECONDS = 20.0


@dataclass
class SurveyTable:
    """A loaded table with its facts, and what the file itself says that the codes of a column mean."""

    facts: TableFacts
    frame: pl.DataFrame
    code_names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Id of the facts."""
        return self.facts.id


def load_tables(
    groups: Sequence[Group],
    root: Path,
    limits: SurveyLimits,
    annotation_files: frozenset[str],
    is_late: Callable[[], bool],
) -> list[SurveyTable]:
    """Return the tables of all groups, without those that only show a form.

    Args:
        annotation_files: files of annotation formats, which are not loaded as tables.
    """
    tables: list[SurveyTable] = []
    for group in groups:
        paths = [
            path for path in group.paths if path not in annotation_files and not is_placeholder(path.rpartition("/")[2])
        ]
        has_tables = group.format in TABLE_FORMATS or (len(paths) > 1 and set(group.facts.suffixes) <= RECORD_SUFFIXES)
        if not has_tables or not paths or is_late() or len(tables) >= limits.tables:
            continue
        loaded = _load_group(group, paths, root, limits)
        for files, table in loaded:
            if len(tables) < limits.tables:
                tables.append(_describe(f"t{len(tables) + 1}", files, table, group))
    return tables


def load_vectors(
    groups: Sequence[Group],
    root: Path,
    limits: SurveyLimits,
    tables: Sequence[SurveyTable],
    item_files: Collection[int],
    pairings: Sequence[Pairing],
) -> list[SurveyTable]:
    """Return groups of array files that hold nothing but values of items as tables.

    Args:
        tables: that there are already.
        item_files: how many files the items lie in. As many files are stacked; of others those of each name, or of each part of
            a name that tells apart the files of the same items (`train_labels.npy`, `train_patients.npy`).
    """
    slots = {
        pairing.partner_group: pairing.extra_slot
        for pairing in pairings
        if pairing.per_image[0] == pairing.per_image[2]
    }
    loaded = []
    for group in groups:
        name = [slots[group.id]] if slots.get(group.id) else ["path"]
        names = with_path_columns(group.frame, name).select("path", name=pl.col(name[0]).str.extract(r"([^/]*)$"))
        by_name = [part["path"].to_list() for _, part in names.group_by("name", maintain_order=True)]
        for paths in [group.paths] if len(group.paths) in item_files else by_name:
            part = _part_of(group, paths)
            loaded += [(group, stack) for stack in _load_stacked(part, paths, root, limits)]
    return [
        _describe(f"t{number}", files, table, group)
        for number, (group, (files, table)) in enumerate(loaded, len(tables) + 1)
        if number <= limits.tables
    ]


@dataclass(frozen=True)
class _Loaded:
    """A table and how a manifest would name it."""

    table: LoadedTable
    sheet: str = ""
    records: str = ""
    files: int = 1
    exact: bool = True
    form: TableForm = "auto"


def _load_group(group: Group, paths: list[str], root: Path, limits: SurveyLimits) -> list[tuple[str, _Loaded]]:
    if len(paths) > _MAX_SEPARATE:
        lists = _find_side_lists(paths)
        other_paths = [path for path in paths if path not in lists]
        return [
            *_load_stacked(_part_of(group, other_paths), other_paths, root, limits),
            *(_load_group(_name_part(group, lists), lists, root, limits) if lists else []),
        ]
    loaded_files: list[tuple[str, _Loaded]] = []
    for path in paths:
        loaded_files += [(path, loaded) for loaded in _load_file(root, path, limits)]
    if len(loaded_files) == len({path for path, _ in loaded_files}) > 1:
        # Parts of one table are stacked, so that the part of their names that differs is a column.
        alike = _group_by_columns(loaded_files)
        stacked: list[tuple[str, _Loaded]] = []
        for members in (part for tables in alike for part in _divide_by_rows(group, tables)):
            stacked += _stack_members(group, members, root, limits) if len(members) > 1 else members
        return stacked
    return loaded_files


def _find_side_lists(paths: Sequence[str]) -> list[str]:
    """Files called like two parts of a split or more, among many others that are not."""
    sides = {path: side_of(path.rpartition("/")[2].partition(".")[0]) for path in paths}
    lists = [path for path, side in sides.items() if side]
    return lists if len(lists) <= _MAX_SEPARATE and len({sides[path] for path in lists}) > 1 else []


def _stack_members(
    group: Group, members: list[tuple[str, _Loaded]], root: Path, limits: SurveyLimits
) -> list[tuple[str, _Loaded]]:
    """The members as one table, if it has all of their rows or leaves out repeated ones; else as they are."""
    paths = [path for path, _ in members]
    stack = _load_stacked(_part_of(group, paths), paths, root, limits)
    rows = sum(len(member.table.frame) for _, member in members)
    if stack and (stack[0][1].files < len(paths) or len(stack[0][1].table.frame) == rows):
        return stack
    return members


def _group_by_columns(loaded_files: Sequence[tuple[str, _Loaded]]) -> list[list[tuple[str, _Loaded]]]:
    groups: list[list[tuple[str, _Loaded]]] = []
    for path, loaded in loaded_files:
        columns = set(loaded.table.frame.columns)
        for members in groups:
            member_columns = set(members[0][1].table.frame.columns)
            if len(columns & member_columns) >= _MIN_COMMON_COLUMNS * len(columns | member_columns):
                members.append((path, loaded))
                break
        else:
            groups.append([(path, loaded)])
    return groups


def _divide_by_rows(group: Group, members: list[tuple[str, _Loaded]]) -> list[list[tuple[str, _Loaded]]]:
    """Divide files by a part of their names if those with each of its values are of the same rows: they answer other questions."""
    keys: dict[str, set[str]] = {}
    for path, loaded in members:
        names = [name for name in loaded.table.frame.columns if name not in (FILE_COLUMN, ROW_COLUMN)]
        if len(names) < 2 or not loaded.exact or loaded.table.frame[names[0]].is_duplicated().any():
            return [members]
        keys[path] = set(loaded.table.frame[names[0]].cast(pl.String).drop_nulls().to_list())
    rows = group.frame.filter(pl.col("path").is_in(pl.Series(list(keys)).implode()))
    for _, column, _ in group.slot_pieces():
        values = dict(rows.select("path", column).iter_rows())
        parts: dict[str, set[str]] = defaultdict(set)
        for path, value in values.items():
            parts[value] |= keys[path]
        common, union = set.intersection(*parts.values()), set.union(*parts.values())
        if len(parts) > 1 and len(common) > 1 and len(common) >= _MIN_COMMON_ROWS * len(union):
            return [[member for member in members if values[member[0]] == value] for value in parts]
    return [members]


def _part_of(group: Group, paths: Sequence[str]) -> Group:
    if len(paths) == len(group.frame):
        return group
    return make_group(
        group.frame.filter(pl.col("path").is_in(pl.Series(list(paths)).implode())), group.shape, group.suffix
    )


def _name_part(group: Group, paths: Sequence[str]) -> Group:
    """Some files of a group, whose pattern matches no others: it has their values of each slot."""
    part = make_group(
        group.frame.filter(pl.col("path").is_in(pl.Series(list(paths)).implode())), group.shape, group.suffix
    )
    part.levels = [[_with_values(piece, part.frame) for piece in level] for level in part.levels]
    return part


def _limits(limits: SurveyLimits) -> TableLimits:
    return TableLimits(megabytes=max(limits.table_bytes >> 20, 1), seconds=_SECONDS)


def _load_file(root: Path, path: str, limits: SurveyLimits) -> list[_Loaded]:
    """The main table of a file, and those of its other sheets or places."""
    announce_opening(str(root), path)
    main = _load(root, [path], limits)
    if main is None:
        return []
    info = main.info
    loaded = [_Loaded(main, records=info.records if len(info.places) > 1 else "", exact=not info.partial)]
    for place, rows in sorted(info.places.items(), key=lambda item: (-item[1], item[0]))[:_MAX_PLACES]:
        if place != info.records and rows > 1 and (table := _load(root, [path], limits, records=place)):
            loaded.append(_Loaded(table, records=place, exact=not table.info.partial))
    for sheet in info.sheets[:_MAX_PLACES]:
        if sheet != info.sheet and (table := _load(root, [path], limits, sheet=sheet)) and len(table.frame) > 1:
            loaded.append(_Loaded(table, sheet=sheet, exact=not table.info.partial))
    return loaded


def _load(
    root: Path, files: Sequence[str] | Mapping[str, Mapping[str, str]], limits: SurveyLimits, **options: Any
) -> LoadedTable | None:
    try:
        table = load_table(root, files, limits=_limits(limits), **options)
    except (TableError, OSError, ValueError, pl.exceptions.PolarsError):
        return None
    return table if table.frame.width > 1 and len(table.frame) else None


def _load_stacked(group: Group, paths: list[str], root: Path, limits: SurveyLimits) -> list[tuple[str, _Loaded]]:
    columns = [column for _, column, piece in group.slot_pieces() if piece.slot not in ("", "*")]
    sampled_paths = spread(paths, _MAX_STACKED)
    slots = group.frame.filter(pl.col("path").is_in(pl.Series(sampled_paths).implode())).select("path", *columns)
    files = {row[0]: dict(zip(columns, row[1:], strict=True)) for row in slots.iter_rows()}
    table = _load(root, files, limits)
    form: TableForm = "auto"
    if len(paths) > _MAX_SEPARATE and (
        table is None or {*table.frame.columns} - {FILE_COLUMN, ROW_COLUMN, *columns} <= _LINE_COLUMNS
    ):
        texts = _load(root, files, limits, form="text") if group.format == "text" else None
        table, form = (texts, "text") if texts is not None else (table, form)
    if table is None:
        return []
    if 2 < len(paths) <= _MAX_SEPARATE and len(columns) == 1 and (unions := _find_unions(table.frame)):
        parts = _name_part(group, [path for path in paths if path not in unions])
        smaller = _load(root, {path: values for path, values in files.items() if path not in unions}, limits)
        if smaller is not None:
            return [(parts.pattern, _Loaded(smaller, files=len(paths) - len(unions)))]
    return [
        (
            group.pattern,
            _Loaded(
                table, files=len(paths), exact=len(sampled_paths) == len(paths) and not table.info.partial, form=form
            ),
        )
    ]


def _find_unions(frame: pl.DataFrame) -> set[str]:
    """Files whose rows are those of several other files together, as a list of training and validation is."""
    names = [name for name in frame.columns if name not in (FILE_COLUMN, ROW_COLUMN)]
    if len(names) != 2:  # the slot and one column
        return set()
    rows = {str(file): set(part[names[1]].drop_nulls().to_list()) for (file,), part in frame.group_by(FILE_COLUMN)}
    unions: set[str] = set()
    for file, file_rows in sorted(rows.items(), key=lambda item: (-len(item[1]), item[0])):
        parts = [
            part_rows
            for name, part_rows in rows.items()
            if name != file and name not in unions and part_rows and part_rows < file_rows
        ]
        if len(parts) > 1 and set().union(*parts) == file_rows and sum(map(len, parts)) == len(file_rows):
            unions.add(file)
    return unions


def _with_values(piece: Piece, frame: pl.DataFrame) -> Piece:
    if not piece.slot or piece.slot == "*":
        return piece
    return replace(piece, choices=tuple(sort_naturally(frame[piece.slot].unique().to_list())))


def _describe(id: str, files: str, loaded: _Loaded, group: Group) -> SurveyTable:
    frame, info = loaded.table.frame, loaded.table.info
    names = [name for name in frame.columns if name != ROW_COLUMN][:_MAX_COLUMNS]
    facts = TableFacts(
        id=id,
        files=files,
        form=loaded.form,
        sheet=loaded.sheet,
        records=loaded.records,
        group=group.id,
        file_count=loaded.files,
        rows=len(frame),
        columns=tuple(_column_facts(frame, names, info.units)),
        notes=tuple(info.notes[:8]) + tuple(info.title_rows[:4]),
        exact=loaded.exact,
    )
    return SurveyTable(facts, frame, info.code_names)


def _column_facts(frame: pl.DataFrame, names: Sequence[str], units: Mapping[str, str]) -> list[Column]:
    columns = []
    for fact in describe_columns(frame.select(names)):
        show = mask if fact.sensitive == "identity" else cell if fact.sensitive else scrub
        values = (
            tuple(ValueCount(text=show(text), count=count) for text, count in fact.values)
            if fact.distinct <= 60
            else ()
        )
        columns.append(
            Column(
                name=fact.name,
                kind=fact.kind,
                distinct=fact.distinct,
                missing=fact.missing,
                values=values,
                examples=tuple(show(text)[:80] for text, _ in fact.values[:3]),
                low=None if fact.sensitive == "identity" else fact.low,
                high=None if fact.sensitive == "identity" else fact.high,
                unit=fact.unit or units.get(fact.name, ""),
                decimal_comma=fact.decimal_comma,
                separator=fact.separator,
                role_hint=_hint(fact.name, fact.kind, [text for text, _ in fact.values]),
                is_integer=fact.is_integer,
                sensitive=fact.sensitive,
            )
        )
    return columns


def _hint(name: str, kind: str, values: list[str]) -> str:
    """Return what a column is about; numbers and names of classes are labels, and no masks, whatever the column is called."""
    if name == FILE_COLUMN:
        return "file"
    hint = (role_hint(values) if 2 <= len(values) <= 8 else "") or role_hint([name])
    return "label" if hint == "mask" and kind in ("number", "category", "boolean", "list") else hint
