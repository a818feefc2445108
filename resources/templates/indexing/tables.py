"""Tables that name images and labels: CSV, TSV, JSON and JSON lines, and how their names lead to files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from layouts import HALF_WORDS, Case, in_mask_folder, is_image, natural, stem

LIST = "\x1f"
"""Stands between the items of a JSON list in one cell."""
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>"})
YES = ("1", "1.0", "true", "yes", "y", "t", "x", "+", "positive", "pos", "present")
NO = ("", "0", "0.0", "false", "no", "n", "f", "-", "negative", "neg", "absent", "-1", "-1.0", "uncertain", "nan", "na")


def read_rows(file: Path, asked: Iterable[str] = ()) -> list[dict[str, str]]:
    """Rows of a table, all values as text; what means a missing value is empty.

    Args:
        asked: the columns that will be used; all numbers mean that the table has no header.
    """
    text = decode(file.read_bytes())
    if file.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        rows = _from_json(file, text, [name for name in asked if name])
    else:
        rows = _from_text(file, text, [name for name in asked if name])
    return [{key: "" if value in MISSING else value for key, value in row.items()} for row in rows]


def decode(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def _from_text(file: Path, text: str, asked: list[str]) -> list[dict[str, str]]:
    csv.field_size_limit(2**27)
    delimiter = _delimiter(text, file.suffix.lower())
    lines = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    if not lines:
        return []
    names = _names(lines[0])
    if asked and all(name.isdecimal() for name in asked) and not set(asked) <= set(names):
        names, lines = [str(at) for at in range(len(lines[0]))], [[], *lines]
    return [dict(zip(names, (*map(str.strip, row), *[""] * len(names)), strict=False)) for row in lines[1:]]


def _names(header: list[str]) -> list[str]:
    """Column names, made unique; those without a name are called by their place."""
    seen: dict[str, int] = {}
    names = []
    for at, cell in enumerate(header):
        name = cell.strip() or f"(column {at})"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _delimiter(text: str, suffix: str) -> str:
    """The one that cuts the first rows into most equally many cells."""
    head = text[:65536]
    if suffix in (".tsv", ".tab") and "\t" in head:
        return "\t"
    best, score = ",", 0.0
    for one in ",\t;|":
        widths = [len(row) for row in islice(csv.reader(io.StringIO(head, newline=""), delimiter=one), 30) if row]
        if widths and widths[0] > 1:
            same = sum(width == widths[0] for width in widths) / len(widths)
            if same * (1 + min(widths[0], 50) / 100) > score:
                best, score = one, same * (1 + min(widths[0], 50) / 100)
    return best


def _from_json(file: Path, text: str, asked: list[str]) -> list[dict[str, str]]:
    try:
        if file.suffix.lower() == ".json":
            value = json.loads(text)
        else:
            value = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise SystemExit(f"{file} is not valid JSON: {error}.") from None
    items = _records(value, asked)
    if items is None:
        raise SystemExit(f"{file} holds no list of records; name a file that does, or write a table with a script.")
    return [_flat(item) for item in items]


def _records(value: Any, asked: list[str]) -> list[dict[str, Any]] | None:
    """The records in a JSON value: a list, a list inside an object, or an object of one entry an image."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)] or None
    if not isinstance(value, dict):
        return None
    lists = {key: found for key, item in value.items() if isinstance(item, list) and (found := _records(item, asked))}
    if lists and all(key.lower() in HALF_WORDS for key in lists):
        return [{"(part)": HALF_WORDS[key.lower()], **item} for key, found in lists.items() for item in found]
    if lists:
        return max(lists.values(), key=lambda found: (sum(name in _flat(found[0]) for name in asked), len(found)))
    if value and all(isinstance(item, dict) for item in value.values()):
        return [{"(key)": key, **item} for key, item in value.items()]
    return [{"(key)": key, "(value)": item} for key, item in value.items()] or None


def _flat(item: dict[str, Any], before: str = "") -> dict[str, str]:
    row: dict[str, str] = {}
    for key, value in item.items():
        if isinstance(value, dict):
            row.update(_flat(value, f"{before}{key}."))
        elif isinstance(value, list):
            row[f"{before}{key}"] = LIST.join(str(part).strip() for part in value)
        else:
            row[f"{before}{key}"] = "" if value is None else str(value).strip()
    return row


def join_tables(rows: list[dict[str, str]], others: list[dict[str, str]], on: str, file: Path) -> list[dict[str, str]]:
    """Rows with the columns of another table's row of the same value in `on` (`column`, or `mine=theirs`).

    Raises:
        SystemExit: there is no such column, or no value is in both.
    """
    mine, _, theirs = on.partition("=")
    shared = [name for name in (rows[0] if rows else ()) if others and name in others[0]]
    mine = mine or next(iter(shared), "")
    theirs = theirs or mine
    if not rows or not others or mine not in rows[0] or theirs not in others[0]:
        raise SystemExit(
            f"--join {file}: give --on COL or --on COL=COL; columns of both: {', '.join(shared) or 'none'}."
        )
    known: dict[str, dict[str, str]] = {}
    for other in others:
        known.setdefault(_folded(other[theirs]), other)
    joined = [{**known[key], **row} for row in rows if (key := _folded(row.get(mine, ""))) in known]
    print(f"joined on {mine}: {len(joined)} of {len(rows)} rows")
    if not joined:
        raise SystemExit(f"--join {file}: no value of {mine!r} is also in {theirs!r}.")
    return joined


def _folded(name: str) -> str:
    """Keys of two tables are the same whatever their case and an image's ending."""
    return stem(name.strip()).lower()


class Finder:
    """Finds the file that a table means by a path, a name, or a name without its ending."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_name: dict[str, list[Path]] = {}
        self.by_number: dict[int, list[Path]] = {}
        for path in sorted(folder.rglob("*"), key=lambda p: natural(p.as_posix())):
            if path.name.startswith("."):
                continue
            folderish = path.is_dir()
            if not folderish and not (path.is_file() and is_image(path.name)):
                continue
            bare = stem(path.name)
            for name in {path.name.lower(), bare.lower()}:
                self.by_name.setdefault(name, []).append(path)
            if bare.isdecimal() and not folderish:
                self.by_number.setdefault(int(bare), []).append(path)

    def find(self, name: str) -> Path | None:
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        if not parts:
            return None
        if ".." not in parts and (direct := self.folder.joinpath(*parts)) and _exists(direct):
            return direct
        last = parts[-1].lower()
        found = self.by_name.get(last) or self.by_name.get(stem(last))
        if not found and last.isdecimal():
            found = self.by_number.get(int(last))
        if not found:
            return None
        tail = [part.lower() for part in parts]
        return min(found, key=lambda p: (-_same_tail([q.lower() for q in p.parts], tail), in_mask_folder(p)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a text that is no name, such as a whole report
        return False


def _same_tail(one: list[str], other: list[str]) -> int:
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        count += 1
    return count


def from_table(
    rows: list[dict[str, str]],
    finder: Finder,
    *,
    image: str,
    labels: list[str],
    separator: str,
    patient: str,
    split: str,
) -> tuple[list[Case], list[str]]:
    """Cases of a table, and the image names for which there is no file.

    Several `labels` columns are read as one yes/no column a class. An unlabelled case of a single-label table has the
    one label "".
    """
    if len(labels) > 1:
        _only_yes_and_no(rows, labels)
    several = bool(separator) or any(LIST in row.get(labels[0], "") for row in rows)
    cases, absent = [], []
    for row in rows:
        path = finder.find(row.get(image, ""))
        if path is None:
            absent.append(row.get(image, ""))
            continue
        text = row.get(labels[0], "")
        if len(labels) > 1:
            values = [name for name in labels if row.get(name, "").lower() in YES]
        elif several:
            parts = text.replace(separator, LIST).split(LIST) if separator else text.split(LIST)
            values = [part.strip() for part in parts if part.strip()]
        else:
            values = [text]
        values = list(dict.fromkeys(values))
        cases.append(Case(path.as_posix(), values, row.get(patient, ""), row, row.get(split, "")))
    return cases, absent


def _only_yes_and_no(rows: list[dict[str, str]], labels: list[str]) -> None:
    for name in labels:
        other = {value for row in rows if (value := row.get(name, "")).lower() not in (*YES, *NO)}
        if other:
            raise SystemExit(
                f"--label with several columns wants yes/no columns; {name!r} holds {', '.join(sorted(other)[:5])}. "
                "Name one column."
            )


def join_rows(cases: list[Case]) -> list[Case]:
    """One case an image: rows that name the same file are put together, with all of their labels."""
    joined: dict[str, Case] = {}
    for case in cases:
        first = joined.setdefault(str(case.image), case)
        first.values = list(dict.fromkeys(v for v in (*first.values, *case.values) if v))
    return list(joined.values())
