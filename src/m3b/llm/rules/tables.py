"""Reading the preview of a table: which column is the image, which the label, which the patient?"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from m3b.llm.rules.words import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    PATIENT_COLUMNS,
    REST,
    SPLIT_COLUMNS,
    STOP,
    UNCLEAR,
    folded,
    plain,
    rank,
    words,
)

MAX_CLASSES = 30
WORD = r"[^\W_]+"
BINARY = {"0", "1", "0.0", "1.0", "yes", "no", "true", "false", "y", "n"}
FILE = re.compile(
    r"\.(png|jpe?g|tiff?|bmp|gif|dcm|dicom|nii|nii\.gz|nrrd|mha|mhd|np[yz]|pt|pkl|pck|h5|hdf5)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Column:
    """A column as the preview shows it; `values` maps those shown to their counts."""

    name: str
    kind: str
    distinct: int
    values: dict[str, int]
    whole: bool
    """Whether `values` holds all of the column's values."""
    samples: tuple[str, ...] = ()
    binary: bool = False
    """Whether it holds 0 and 1, or yes and no, and nothing else."""

    @property
    def names_files(self) -> bool:
        return bool(self.samples) and all(FILE.search(sample.strip()) for sample in self.samples)


@dataclass(frozen=True)
class Table:
    """A table as the preview shows it."""

    path: str
    rows: int
    columns: tuple[Column, ...]


def tables(briefing: str) -> list[Table]:
    """The tables that a briefing previews: delimited text, JSON and JSON lines."""
    found = []
    heads = list(re.finditer(r"^(data/\S.*?): [\d.,]+ [KMGT]?i?B, (.*)$", briefing, re.MULTILINE))
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(briefing)
        body, kind = briefing[head.end() : end], head.group(2)
        table = None
        if kind.startswith("table"):
            table = _delimited(head.group(1), kind, body)
        elif kind.startswith("JSON"):
            table = _json(head.group(1), kind, body)
        if table and table.columns:
            found.append(table)
    return found


def _delimited(path: str, kind: str, body: str) -> Table | None:
    rows = re.search(r"([\d,]+) rows?", kind)
    block = re.search(r"\n  columns[^\n]*\n((?:    [^\n]*\n?)+)", body)
    if not rows or not block:
        return None
    columns = [column for line in block.group(1).splitlines() if (column := _column(line))]
    first = re.search(r"\n  first rows:\n((?:    [^\n]*\n?)+)", body)
    marks = {"tab": "\t", "semicolon": ";", "bar": "|", "space": " "}
    mark = next((mark for name, mark in marks.items() if f"{name}-separated" in kind), ",")
    shown = [next(csv.reader([line[4:]], delimiter=mark), []) for line in first.group(1).splitlines()] if first else []
    shown = [row for row in shown if len(row) == len(columns)]
    with_samples = [replace(one, samples=tuple(row[at] for row in shown)) for at, one in enumerate(columns)]
    return Table(path, _number(rows.group(1)), tuple(with_samples))


def _json(path: str, kind: str, body: str) -> Table | None:
    """A JSON list of records, or JSON lines; fields of fields are called `a.b`, as the indexing script does."""
    rows = re.search(r"([\d,]+) (?:items?|records?)", kind)
    if not rows:
        return None
    columns: list[Column] = []
    above: list[tuple[int, str]] = []
    for line in body.splitlines():
        found = re.match(r"( +)([^\s:][^:]*): (object|text|integer|number|boolean)\b(.*)$", line)
        if not found or found.group(2) in ("each item", "structure"):
            continue
        indent, name = len(found.group(1)), found.group(2)
        above = [(depth, outer) for depth, outer in above if depth < indent]
        full = ".".join([*(outer for _, outer in above), name])
        if found.group(3) == "object":
            above.append((indent, name))
        else:
            columns.append(_field(full, found.group(3), found.group(4)))
    return Table(path, _number(rows.group(1)), tuple(columns))


def _field(name: str, kind: str, rest: str) -> Column:
    distinct = re.search(r"([\d,]+) distinct(?:, such as '(.*)')?", rest)
    values = {} if distinct else _values(rest.split(": ", 1)[1] if ": " in rest else "")
    span = re.search(r": (\S+) to (\S+)$", rest) if kind in ("integer", "number") else None
    samples = (distinct.group(2),) if distinct and distinct.group(2) else ()
    binary = kind == "boolean" or (span is not None and span.groups() == ("0", "1"))
    number = _number(distinct.group(1)) if distinct else 2 if binary else len(values)
    if span and not binary:
        number = MAX_CLASSES + 1
    return Column(name, kind, number, values or ({"0": 1, "1": 1} if binary else {}), not distinct, samples, binary)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _values(listed: str) -> dict[str, int]:
    pairs = re.findall(r"(?:^|, )(.+?) x ([\d,]*\d)(?=, |$)", listed.replace("most often", "").strip())
    return {value.strip(): _number(count) for value, count in pairs}


def _column(line: str) -> Column | None:
    found = re.match(r"    (.+?): (text|integer|number|date|boolean|empty)\b(.*)$", line)
    if not found:
        return None
    name, kind, rest = found.groups()
    distinct = re.search(r"([\d,]+) distinct", rest)
    listed = rest.rsplit("distinct:", 1)[1] if "distinct:" in rest else ""
    values = _values(listed)
    whole = bool(listed) and "most often" not in listed
    binary = whole and 0 < len(values) <= 2 and {value.lower() for value in values} <= BINARY
    number = _number(distinct.group(1)) if distinct else len(values)
    return Column(name.strip(), kind, number, values, whole, binary=binary)


def image_column(table: Table) -> Column | None:
    """The column whose cells look like files, else the one with nearly a value a row whose name fits best."""
    many = [column for column in table.columns if column.distinct >= 0.5 * table.rows and column.kind != "number"]
    files = [column for column in many if column.names_files]
    return _best(files, IMAGE_COLUMNS) or next(iter(files), None) or _best(many, IMAGE_COLUMNS)


def folder_column(table: Table) -> Column | None:
    """The column that names another patient in every row: it may be what his file or folder is called."""
    return _best([column for column in table.columns if column.distinct == table.rows], PATIENT_COLUMNS)


def patient_column(table: Table, image: Column) -> Column | None:
    """The column that names the patient, if one is called like that."""
    return _best([column for column in table.columns if column.name != image.name], PATIENT_COLUMNS)


def split_column(table: Table) -> Column | None:
    """The column with the data set's own split, if its values say train and test."""
    for column in table.columns:
        low = {value.lower() for value in column.values}
        if rank(column.name, SPLIT_COLUMNS) is not None and low & {"test", "testing"} and low & {"train", "training"}:
            return column
    return None


def label_column(table: Table, request: str) -> Column | None:
    """The column whose values or name the request speaks of, else the one that is called like a label."""
    small = [c for c in table.columns if 2 <= c.distinct <= MAX_CLASSES and c.whole and _is_class(c)]
    lists = [c for c in table.columns if rank(c.name, LABEL_COLUMNS) is not None and separator(c)]
    asked = words(request) - STOP

    def fit(column: Column) -> tuple[int, int]:
        shared = len(asked & words(" ".join(column.values))) + len(asked & words(column.name))
        place = rank(column.name, LABEL_COLUMNS)
        named = len(LABEL_COLUMNS) * 2 - place if place is not None else 0
        return (2 * shared + (named > 0) * 3, named)

    best = max([*small, *lists], key=fit, default=None)
    return best if best is not None and fit(best) > (0, 0) else None


def flag_columns(table: Table) -> list[Column]:
    """Columns that say yes or no to a finding each, where there are several."""
    flags = [c for c in table.columns if c.binary and _is_class(c) and "," not in c.name]
    return flags if len(flags) > 1 else []


def named_flags(flags: list[Column], request: str) -> list[Column]:
    """Those that the request names, where it names several and leaves others out or has no need of them."""
    asked = {folded(word) for word in words(request) - STOP}
    named = [flag for flag in flags if asked & {folded(word) for word in words(flag.name)}]
    return named if len(named) > 1 else []


def separator(column: Column) -> str:
    """What stands between several labels in one cell, if there are such cells."""
    for mark in ("|", ";"):
        single = {value for value in column.values if mark not in value}
        joined = [value.split(mark) for value in column.values if mark in value]
        if joined and any(part.strip() in single for parts in joined for part in parts):
            return mark
    return ""


def _is_class(column: Column) -> bool:
    shape = rank(column.name, (*SPLIT_COLUMNS, *PATIENT_COLUMNS, "sex", "gender", "age", "view", "modality", "site"))
    return shape is None or rank(column.name, LABEL_COLUMNS) is not None


def names_of(column: Column, listed: str) -> list[str]:
    """Options that name the labels of a column of numbers: from the card's list, else after the column itself."""
    if not column.values or not all(value.removesuffix(".0").isdecimal() for value in column.values):
        return []
    if not listed and set(column.values) == {"0", "1"} and rank(column.name, LABEL_COLUMNS) is None:
        listed = f"0=no {column.name},1={column.name}" if "," not in column.name else ""
    return ["--names", listed] if listed else []


def mapping(values: Sequence[str], request: str) -> list[str]:
    """Options that reduce the labels to those that the request names: one against the rest, or some of several."""
    clear = [value for value in values if not words(value) & UNCLEAR and any(char.isalnum() for char in value)]
    hits = _named(clear, request)
    if len(clear) <= 2:
        return ["--positive", hits[0]] if len(hits) == 1 and len(clear) == len(values) == 2 else []
    if len(hits) == 1 or (hits and words(request) & REST):
        main = max(hits, key=len)
        alike = [value for value in clear if _parts(value) & _parts(main) or words(main) <= words(value)]
        others = [value for value in clear if value not in alike]
        if not others or any("|" in value or "=" in value or "*" in value for value in clear):
            return []
        return ["--map", f"{main}={'|'.join(alike)}", "--map", f"other={'|'.join(others)}", "--positive", main]
    if 2 <= len(hits) < len(clear) and not any("|" in value or "*" in value for value in hits):
        return [part for value in hits for part in ("--map", f"{value}={value}")]
    return []


def _named(values: Sequence[str], request: str) -> list[str]:
    """The values that a request names, as a whole or by one of their parts (`a/b/c`)."""
    asked, low = words(request) - REST, f" {' '.join(re.findall(WORD, plain(request)))} "
    found = []
    for value in values:
        whole = " ".join(re.findall(WORD, plain(value)))
        in_script = any(ord(char) > 0x2E80 for char in value) and plain(value) in plain(request)
        alike = _folded(whole) and _folded(whole) <= {folded(word) for word in asked - STOP}
        if in_script or (len(value) > 1 and f" {whole} " in low) or _parts(value) & asked - STOP or alike:
            found.append(value)
    longest = [v for v in found if not any(v != other and words(v) < words(other) for other in found)]
    return longest


def _folded(text: str) -> set[str]:
    return {folded(word) for word in words(text)} if len(text) > 2 else set()


def _parts(value: str) -> set[str]:
    return {plain(part).strip() for part in re.split(r"[/;]", value) if part.strip()}


def _best(columns: list[Column], known: tuple[str, ...]) -> Column | None:
    ranked = [(place, at) for at, column in enumerate(columns) if (place := rank(column.name, known)) is not None]
    return columns[min(ranked)[1]] if ranked else None
