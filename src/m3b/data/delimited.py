"""How a text table is written: its encoding, its delimiter, whether its first row names the columns."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

_DIGITS = re.compile(r"\d+")
_LEAST_BELOW = 3
"""Rows from which on a first row that looks like all of them is one of them."""


@dataclass(frozen=True)
class Layout:
    """How a table is written. `header` is false when the first row is data."""

    delimiter: str
    encoding: str
    header: bool
    names: list[str]


def decode(data: bytes) -> tuple[str, str]:
    """Text and the name of its encoding: a byte order mark decides, else UTF-8, else Windows-1252."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data[: len(data) // 2 * 2 if name == "utf-16" else None].decode(name, "replace"), name
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            continue
    return data.decode("cp1252", "replace"), "cp1252"


def sniff(head: bytes, suffix: str = ".csv", *, whole: bool = True) -> Layout:
    """Delimiter, encoding and header from the start of a file."""
    text, encoding = decode(head)
    if not whole and (end := text.rfind("\n")) > 0:
        text = text[: end + 1]
    delimiter = "\t" if suffix in (".tsv", ".tab") and "\t" in text else _delimiter(text)
    rows = [row for row in islice(parse(io.StringIO(text, newline=""), delimiter), 50) if row]
    first = rows[0] if rows else []
    header = _is_header(rows)
    names = _unique(first) if header else [str(index) for index in range(len(first))]
    return Layout(delimiter, encoding, header, names)


def is_table(text: str) -> bool:
    """Whether a text of unknown kind is a table: at least three rows, all with the same two or more cells."""
    rows = [row for row in islice(parse(io.StringIO(text[:20000], newline=""), _delimiter(text)), 21) if row][:20]
    return len(rows) >= 3 and len(rows[0]) >= 2 and len({len(row) for row in rows[:-1]}) == 1


def _delimiter(text: str) -> str:
    """The delimiter that cuts the first rows into most equally many cells."""
    sample = text[:65536]
    best, score = ",", 0.0
    for one in (",", "\t", ";", "|"):
        if one not in sample:
            continue
        widths = [len(row) for row in islice(parse(io.StringIO(sample, newline=""), one), 30) if row]
        if not widths or widths[0] < 2:
            continue
        same = sum(1 for width in widths if width == widths[0]) / len(widths)
        if same * (1 + min(widths[0], 50) / 100) > score:
            best, score = one, same * (1 + min(widths[0], 50) / 100)
    return best


def _is_header(rows: list[list[str]]) -> bool:
    if not rows or any(_number(cell) for cell in rows[0] if cell.strip()):
        return False
    if any(_is_path(cell) and _is_column_of_paths(rows[1:], at) for at, cell in enumerate(rows[0])):
        return False
    if any(_runs_on(cell, [row[at] for row in rows[1:] if len(row) > at]) for at, cell in enumerate(rows[0])):
        return False
    if len(rows) > 1 and len(set(rows[0])) < len(rows[0]):
        return any(_number(cell) for row in rows[1:] for cell in row)
    return bool(any(cell.strip() for cell in rows[0]))


def _is_column_of_paths(rows: list[list[str]], at: int) -> bool:
    """Whether cells below look like paths too: `AP/PA` and `M/F` are names of columns."""
    below = [row[at] for row in rows if len(row) > at]
    return not below or any(_is_path(cell) for cell in below)


def _runs_on(cell: str, below: list[str]) -> bool:
    """Whether a cell is a numbered name as all below it are (`ROCO_00001`), rather than what they are called by."""
    shapes = {_DIGITS.sub("#", one.strip()) for one in (cell, *below)}
    return len(below) >= _LEAST_BELOW and len(shapes) == 1 and "#" in shapes.pop() and len(set(below)) > 1


def _is_path(cell: str) -> bool:
    return ("/" in cell and " " not in cell.strip()) or cell.lower().endswith((".png", ".jpg", ".nii.gz", ".dcm"))


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for index, raw in enumerate(names):
        name = raw.strip() or f"(column {index})"
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def parse(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The rows of delimited lines; broken ones are left out."""
    allow_long_cells()
    reader = csv.reader((line.replace("\0", "") for line in lines), delimiter=delimiter)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue


def allow_long_cells() -> None:
    """Let one cell hold 16 MiB."""
    if csv.field_size_limit() < 16 * 2**20:
        csv.field_size_limit(16 * 2**20)
