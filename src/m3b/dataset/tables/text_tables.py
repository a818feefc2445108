"""Delimited text: encoding, separator, header, and rows as a frame."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import polars as pl

from m3b.dataset.tables.headers import HEAD_ROWS, Header, find_header, is_number
from m3b.dataset.tables.model import EMPTY_LIST, LIST_SEPARATOR, TableInfo, TableLimits

_SEPARATORS = ("\t", ";", ",", "|")
_HEAD_CHARACTERS = 1 << 18
_COMMENT = re.compile(r"\s*(#|%|//)")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_WRITTEN_LIST = re.compile(rf"\[\s*\]|\[\s*(?:(?:{_QUOTED})(?:\s*,\s*|\s*\]$))+(?<=\])")
"""A list of quoted texts in a cell, in the notation of JSON or Python."""
_MAX_LIST_CHARACTERS = 4096
_MAX_CELL_CHARACTERS = 16 * 2**20
_MIN_FOOTER_CHARACTERS = 12
_PROSE_WORDS_PER_LINE = 4


def decode_text(data: bytes) -> tuple[str, str]:
    """Return a text and its encoding: by byte order mark, UTF-16 without one, UTF-8, GB18030, Windows-1252.

    In GB18030 bytes above 127 come in pairs; in Windows-1252 they mostly stand alone, or as two letters within a word (`Größe`).
    """
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data[: len(data) // 2 * 2 if encoding == "utf-16" else None].decode(encoding, "replace"), encoding
    head = data[:4096]
    if len(head) > 3 and b"\0" in head:
        odd_zeros, even_zeros = head[1::2].count(0), head[::2].count(0)
        encoding = "utf-16-le" if odd_zeros > even_zeros else "utf-16-be"
        if max(odd_zeros, even_zeros) > 0.3 * len(head) / 2:
            return data[: len(data) // 2 * 2].decode(encoding, "replace"), encoding
    for cut in range(min(4, len(data) + 1)):
        try:
            return data[: len(data) - cut].decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            continue
    runs = re.findall(rb"[\x80-\xff]+", data[: 1 << 20])
    paired = sum(len(run) for run in runs if len(run) % 2 == 0)
    within_words = re.findall(rb"[A-Za-z][\x80-\xff]{2}[a-z]", data[: 1 << 20])
    if paired > 0.9 * sum(map(len, runs)) and len(within_words) < len(runs) / 2:
        for cut in range(2):
            try:
                return data[: len(data) - cut].decode("gb18030"), "gb18030"
            except UnicodeDecodeError:
                continue
    return data.decode("cp1252", "replace"), "cp1252"


def read_delimited(
    data: bytes,
    *,
    suffix: str = ".csv",
    header: int | None = None,
    is_partial: bool = False,
    limits: TableLimits | None = None,
) -> tuple[pl.DataFrame, TableInfo]:
    """Read a delimited text.

    Args:
        suffix: `.tsv` and `.tab` prefer tabs.
        header: number of the header row, -1 for none; found if None.
        is_partial: whether the file goes on after these bytes; its last line is then left out.
    """
    limits = limits or TableLimits()
    text, encoding = decode_text(data)
    text = text.replace("\0", "").lstrip("\ufeff")
    if is_partial and (end := text.rfind("\n")) > 0:
        text = text[: end + 1]
    text = _use_newlines(text)
    separator, text = _read_declared_separator(text)
    separator = separator or find_separator(text[:_HEAD_CHARACTERS], suffix)
    comments, text = _cut_comments(text, separator)
    info = TableInfo("delimited", separator, encoding, partial=is_partial)
    head = list(islice(_parse_rows(text[:_HEAD_CHARACTERS], separator), HEAD_ROWS))
    layout = find_header(head, header)
    if len(layout.names) > limits.columns:
        info.partial = True
        info.notes.append(f"read in part: the first {limits.columns:,} of {len(layout.names):,} columns")
        layout = replace(layout, names=layout.names[: limits.columns])
    width = len(layout.names)
    max_rows = min(limits.rows, max(1, limits.cells // max(width, 1)))
    if '"' in text or separator == " ":
        frame = _frame_rows(islice(_parse_rows(text, separator), layout.first_row, layout.first_row + max_rows), width)
    else:
        frame = _read_unquoted(text, separator, width, max_rows + layout.first_row).slice(layout.first_row)
    if frame.height >= max_rows:
        info.partial = True
        info.notes.append(f"read in part: the first {frame.height:,} rows")
    return finish_grid(frame, layout, info, comments), info


def finish_grid(frame: pl.DataFrame, layout: Header, info: TableInfo, comments: Iterable[str] = ()) -> pl.DataFrame:
    """Name the columns of a grid, and leave out blank columns and the notes below the last row."""
    frame = frame.rename(dict(zip(frame.columns, layout.names, strict=True)))
    frame, footers = _cut_footers(frame)
    blank = [
        name for name in frame.columns
        if name.startswith("(column ") and frame[name].null_count() == frame.height
        and (frame.height or layout.row < 0)
    ]  # fmt: skip
    frame = frame.drop(blank)
    info.header_row = layout.row
    info.title_rows = (*comments, *layout.titles, *footers)
    info.units = layout.units
    return frame


def find_separator(text: str, suffix: str = ".csv") -> str:
    """Return the separator that cuts most lines into equally many cells; empty if the lines have one cell each."""
    lines = [line for line in text.split("\n") if line.strip()]
    best, best_score = "", 0.0
    for separator in _SEPARATORS:
        if separator not in text:
            continue
        widths = [len(row) for row in islice(_parse_rows(text, separator), 60)]
        counts = Counter(width for width in widths if width > 1)
        if not counts:
            continue
        width, count = counts.most_common(1)[0]
        score = count / len(widths) * (1 + min(width, 50) / 500)
        if separator == "," and best == ";" and _has_decimal_commas(text):
            score *= 0.5
        if separator == "\t" and suffix in (".tsv", ".tab"):
            score *= 2
        if score > best_score:
            best, best_score = separator, score
    if best_score >= 0.4:
        return best
    widths = [len(line.split()) for line in lines[:60]]
    common = Counter(widths).most_common(1)
    if common and common[0][0] > 1 and common[0][1] >= 0.9 * len(widths) and len(widths) > 1:
        return " "
    return best if best_score >= 0.2 else ""


def is_prose(text: str) -> bool:
    """Return whether a text is sentences rather than rows: lines of several words that no separator cuts alike."""
    lines = [line for line in text.split("\n") if line.strip()][:60]
    n_words = sum(len(line.split()) for line in lines)
    if not lines or n_words <= _PROSE_WORDS_PER_LINE * len(lines):
        return False
    for separator in (*_SEPARATORS, " "):
        widths = Counter(len(row) for row in islice(_parse_rows("\n".join(lines), separator), 60) if len(row) > 1)
        if widths and widths.most_common(1)[0][1] >= 0.8 * len(lines) and len(lines) > 2:
            return False
    return True


def _has_decimal_commas(text: str) -> bool:
    return re.search(r"(?:^|;)\s*[+-]?\d+,\d+\s*(?:;|$)", text[:65536], re.MULTILINE) is not None


def _use_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _read_declared_separator(text: str) -> tuple[str, str]:
    """Return the separator that the first line declares (`sep=;`, as Excel writes it), and the text after it."""
    declared = re.match(r"\ufeff?sep=(.)\n", text)
    return (declared[1], text[declared.end() :]) if declared else ("", text)


def _cut_comments(text: str, separator: str) -> tuple[list[str], str]:
    """Return the comment lines at the start, and the text after them; a last one with as many cells as the rows is the header."""
    comments: list[str] = []
    start = 0
    while (line_end := text.find("\n", start)) > 0 and (
        _COMMENT.match(text[start:line_end]) or not text[start:line_end].strip()
    ):
        comments.append(text[start:line_end])
        start = line_end + 1
    comments = [line for line in comments if line.strip()]
    if not comments:
        return [], text
    body = text[start:]
    following = next(iter(_parse_rows(body[:_HEAD_CHARACTERS], separator)), [])
    header_text = _COMMENT.sub("", comments[-1], count=1).strip()
    names = next(iter(_parse_rows(header_text, separator)), [])
    if len(names) == len(following) > 1:
        comments, body = comments[:-1], f"{header_text}\n{body}"
    return [_COMMENT.sub("", line, count=1).strip() for line in comments], body


def _parse_rows(text: str, separator: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank; quoted cells may hold separators and newlines."""
    if csv.field_size_limit() < _MAX_CELL_CHARACTERS:
        csv.field_size_limit(_MAX_CELL_CHARACTERS)
    lines = io.StringIO(text, newline="")
    if separator in ("", " "):
        for line in lines:
            if line.strip():
                yield line.split() if separator else [line.strip().strip('"')]
        return
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue
        if any(cell.strip() for cell in row):
            yield row


def _read_unquoted(text: str, separator: str, width: int, max_rows: int) -> pl.DataFrame:
    """Read rows without quoted cells by polars, about ten times as fast as by Python's parser."""
    schema = {str(place): pl.String for place in range(width)}
    frame = pl.read_csv(
        text.encode("utf-8", "replace"),
        has_header=False,
        schema=schema,
        separator=separator or "\x1f",
        quote_char=None,
        truncate_ragged_lines=True,
        extra_columns="ignore",
        missing_columns="insert",
    )
    return clean_cells(frame).head(max_rows)


def _frame_rows(rows: Iterable[list[str]], width: int) -> pl.DataFrame:
    columns: list[list[str]] = [[] for _ in range(width)]
    for row in rows:
        if len(row) < width:
            row = [*row, *[""] * (width - len(row))]
        for column, cell in zip(columns, row, strict=False):
            column.append(cell)
    return clean_cells(
        pl.DataFrame({str(place): pl.Series(cells, dtype=pl.String) for place, cells in enumerate(columns)})
    )


def clean_cells(frame: pl.DataFrame) -> pl.DataFrame:
    """Strip all cells, make empty ones null, and leave out rows without any cell."""
    if not frame.width:
        return frame
    stripped = pl.all().str.strip_chars().str.strip_chars("\ufeff\u200b")
    frame = frame.with_columns(stripped)
    frame = frame.with_columns(pl.when(pl.all() == "").then(None).otherwise(pl.all()).name.keep())
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def read_written_lists(frame: pl.DataFrame) -> pl.DataFrame:
    """Join the items of lists of texts (`["a", "b"]`, `['a']`) in columns whose filled cells are all such lists."""
    is_list = pl.col(pl.String).str.starts_with("[").all() & pl.col(pl.String).str.contains("['\"]").any()
    for name in names_of_true(frame.select(is_list)):
        cells = frame[name].drop_nulls().unique()
        lists = {text: _parse_written_list(text) for text in cells.to_list()}
        if all(items is not None and not any(LIST_SEPARATOR in item for item in items) for items in lists.values()):
            joined_cells = {text: LIST_SEPARATOR.join(items) if items else EMPTY_LIST for text, items in lists.items()}
            frame = frame.with_columns(pl.col(name).replace_strict(joined_cells, default=None, return_dtype=pl.String))
    return frame


def names_of_true(answers: pl.DataFrame) -> list[str]:
    """Return the names of columns whose only cell is true: one query for all columns, of which there may be many thousands."""
    return [name for name, is_true in zip(answers.columns, next(answers.iter_rows(), ()), strict=False) if is_true]


def _parse_written_list(text: str) -> list[str] | None:
    """Return the quoted texts of a list; None if a cell is no list or its texts are numbers."""
    if len(text) > _MAX_LIST_CHARACTERS or not _WRITTEN_LIST.fullmatch(text):
        return None
    try:
        items = [item.strip() for item in ast.literal_eval(text)]
    except (ValueError, SyntaxError):
        return None
    return None if items and all(map(is_number, items)) else items


def _cut_footers(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Cut the last rows that hold a sentence in their first cell and nothing beside, while the rows above fill several cells."""
    footers: list[str] = []
    if frame.width < 3:
        return frame, footers
    while frame.height > 3:
        cells = [cell for cell in frame.row(frame.height - 1) if cell is not None]
        above = sum(
            cell is not None
            for cell in frame.row(frame.height - 2 - len(footers) if frame.height > 2 + len(footers) else 0)
        )
        is_note = (
            len(cells) == 1
            and len(cells[0]) >= _MIN_FOOTER_CHARACTERS
            and " " in cells[0]
            and frame.row(frame.height - 1)[0] is not None
        )
        if not is_note or (above < 2 and not footers):
            break
        footers.insert(0, cells[0])
        frame = frame.head(frame.height - 1)
    return frame, footers
