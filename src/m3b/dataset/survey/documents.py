"""Small text files of a folder, whole; legends that they and small tables hold; files of equal bytes."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from m3b.data.phi import scrub
from m3b.dataset.archives import local_file
from m3b.dataset.inventory import Inventory
from m3b.dataset.survey.facts import Container, Document, Duplicates, Legend, SurveyLimits
from m3b.dataset.survey.groups import Group
from m3b.dataset.survey.tables import SurveyTable
from m3b.dataset.tables import Legend as TableLegend
from m3b.dataset.tables import find_legend_in_frame, find_legends
from m3b.dataset.tables.text_tables import decode_text
from m3b.isolation.untrusted import announce_opening

MAX_TEXT = 4096
"""Characters of a text file that are kept."""
_MAX_DOCUMENTS = 30
_MAX_PROSE_ROWS, _MAX_PROSE_COLUMNS = 60, 3
"""Of a sheet of notes in a workbook."""
_SENTENCE = re.compile(r"(?:\S+\s+){3}\S|[\u3400-\u9fff]{8}")
"""Four words, or as much without spaces."""
_MAX_LEGEND_BYTES = 4 * 2**20
_MAX_LEGEND_TEXT = 2**16
"""Characters of prose in which legends are looked for."""
_MAX_LEGEND_FILES = 60
_MAX_LEGENDS = 60
_MAX_NAMES = 400
_TEXT_SUFFIXES = (".txt", ".md", ".rst", ".names", ".list", ".lst", ".cfg", ".ini", ".yml", ".yaml", ".toml")
_LABEL_SUFFIXES = (".ctbl", ".label", ".lut", ".lsetp", ".xml")
"""Suffixes of files in which segmentation tools list labels."""
_READ_SUFFIXES = (*_TEXT_SUFFIXES, *_LABEL_SUFFIXES, ".json", ".csv", ".tsv")
_LICENSES = ("licen", "copying", "citation", "authors", "changelog")


def read_documents(
    groups: Sequence[Group], root: Path, lists: frozenset[str] = frozenset(), tables: Sequence[SurveyTable] = ()
) -> tuple[list[Document], dict[str, str]]:
    """Return the small documents of a folder, and the texts in which legends may stand (path -> text).

    Args:
        lists: files of long tables, which are no documents.
        tables: whose sheets of prose are documents, called `FILE#SHEET`.
    """
    paths = [
        path
        for group in groups
        if len(group.frame) <= 4
        and (group.format in ("text", "document", "json", "table") or set(group.facts.suffixes) <= set(_LABEL_SUFFIXES))
        for path in group.paths
    ]
    paths = [path for path in paths if path.lower().endswith(_READ_SUFFIXES) or "." not in path.rpartition("/")[2]]
    paths.sort(key=lambda path: (path.count("/"), path))
    documents: list[Document] = []
    texts: dict[str, str] = {}
    for path in paths[:_MAX_LEGEND_FILES]:
        text, size = _read_text(root, path)
        if text is None:
            continue
        if path not in lists:
            texts[path] = text
        name = path.rpartition("/")[2].lower()
        is_document = path not in lists and (name.endswith(_TEXT_SUFFIXES) or "." not in name)
        if is_document and not name.startswith(_LICENSES) and len(documents) < _MAX_DOCUMENTS and text.strip():
            documents.append(Document(path=path, text=scrub(text[:MAX_TEXT]), bytes=size, cut=len(text) > MAX_TEXT))
    for table in tables:
        if len(documents) < _MAX_DOCUMENTS and (text := _prose_of_sheet(table)):
            path = f"{table.facts.files}#{table.facts.sheet}"
            size = len(text.encode())
            documents.append(Document(path=path, text=scrub(text[:MAX_TEXT]), bytes=size, cut=len(text) > MAX_TEXT))
    return documents, texts


def _prose_of_sheet(table: SurveyTable) -> str:
    """Return the rows of a further sheet of a workbook if some of its cells are sentences; empty otherwise."""
    columns = [column.name for column in table.facts.columns]
    if not table.facts.sheet or len(table.frame) > _MAX_PROSE_ROWS or len(columns) > _MAX_PROSE_COLUMNS:
        return ""
    rows = [[cell for cell in row if cell] for row in table.frame.select(pl.col(columns).cast(pl.String)).iter_rows()]
    heads = [[name for name in columns if not name.isdecimal()]]
    has_sentence = any(_SENTENCE.search(cell) for row in (*heads, *rows) for cell in row)
    return "\n".join(" ".join(row) for row in (*heads, *rows) if row) if has_sentence else ""


def _read_text(root: Path, path: str) -> tuple[str | None, int]:
    announce_opening(str(root), path)
    try:
        size = local_file(root, path).stat().st_size
        if size > _MAX_LEGEND_BYTES:
            return None, size
        data = local_file(root, path).read_bytes()
    except OSError:
        return None, 0
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None, size
    return decode_text(data)[0], size


def collect_legends(
    texts: Mapping[str, str], tables: Sequence[SurveyTable], containers: Mapping[str, Container]
) -> list[Legend]:
    """Return what codes and short names mean, as documents, small tables and lists of names in containers say.

    Args:
        containers: by the pattern of their files.
    """
    documents = {
        path: text if path.lower().endswith((".json", ".yml", ".yaml")) else text[:_MAX_LEGEND_TEXT]
        for path, text in texts.items()
        if not path.lower().endswith((".csv", ".tsv"))
    }
    table_legends = find_legends(documents)
    for table in tables:
        if len(table.frame) <= _MAX_NAMES and (legend := find_legend_in_frame(table.frame, table.facts.files)):
            table_legends.append(legend)
        table_legends += [
            TableLegend(dict(names), table.facts.files, column) for column, names in table.code_names.items()
        ]
    legends = [
        Legend(
            source=legend.source, names=tuple(legend.codes.items())[:_MAX_NAMES], hint=legend.column, kind=legend.kind
        )
        for legend in table_legends[:_MAX_LEGENDS]
    ]
    for pattern, container in containers.items():
        for member in container.members:
            names = [value.text for value in member.values]
            if member.kind == "text" and 1 < member.distinct == member.length == len(names) <= _MAX_NAMES:
                source = f"{pattern}#{member.key}"
                pairs = [match.groups() for name in names if (match := re.fullmatch(r"(-?\d+)=(.+)", name))]
                if len(pairs) == len(names):
                    legends.append(
                        Legend(source=source, names=tuple((code, name) for code, name in pairs), kind="codes")
                    )
                else:
                    codes = tuple((str(place), name) for place, name in enumerate(names))
                    legends.append(Legend(source=source, names=codes, kind="list"))
    return list(dict.fromkeys(legends))


def _find_copied_groups(
    groups: Sequence[Group], sets: Sequence[Sequence[str]], group_of: Mapping[str, str]
) -> tuple[str, ...]:
    """Groups all of whose files are those of a larger group too, or of an earlier one with as many files."""
    ranked = sorted(groups, key=lambda group: -len(group.frame))
    rank = {group.id: place for place, group in enumerate(ranked)}
    copies = Counter[str]()
    for paths in sets:
        first = min(rank[group_of[path]] for path in paths)
        copies.update(group_of[path] for path in paths if rank[group_of[path]] > first)
    return tuple(group.id for group in groups if copies[group.id] == len(group.frame))


def find_duplicates(
    inventory: Inventory, groups: Sequence[Group], limits: SurveyLimits, is_late: Callable[[], bool]
) -> Duplicates | None:
    """Return the files of equal bytes, compared by size and then by hash, as far as the limits allow."""
    sized = inventory.files.filter(pl.col("bytes") > 0).filter(pl.col("bytes").is_duplicated())
    group_of: dict[str, str] = {}
    for group in groups:
        if not group.facts.stray and len(group.frame) > 1:
            group_of |= dict.fromkeys(group.frame.join(sized, on="path", how="semi")["path"].to_list(), group.id)
    by_size: dict[int, list[str]] = defaultdict(list)
    for path, size in sized.iter_rows():
        if path in group_of:
            by_size[size].append(path)
    room = limits.hashed_bytes
    by_hash: dict[bytes, list[str]] = defaultdict(list)
    compared = 0
    for size, paths in sorted(by_size.items()):
        if len(paths) < 2 or size * len(paths) > room or is_late():
            continue
        room -= size * len(paths)
        for path in paths:
            announce_opening(str(inventory.root), path)
            try:
                with local_file(inventory.root, path).open("rb") as stream:
                    by_hash[hashlib.file_digest(stream, "blake2b").digest()].append(path)
                compared += 1
            except OSError:
                continue
    sets = [paths for paths in by_hash.values() if len(paths) > 1]
    if not compared:
        return None
    return Duplicates(
        sets=len(sets),
        files=sum(map(len, sets)),
        compared=compared,
        crossing_folders=sum(len({path.rpartition("/")[0] for path in paths}) > 1 for paths in sets),
        copied_groups=_find_copied_groups(groups, sets, group_of),
        examples=tuple(tuple(paths[:3]) for paths in sorted(sets)[:5]),
    )
