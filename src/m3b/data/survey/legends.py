"""Numbers with names: lists and mappings in small documents that say what the values of masks and labels mean."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import reduce
from itertools import islice
from typing import Any

from m3b.data.delimited import decode, parse, sniff
from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.table_facts import Legend
from m3b.isolation.untrusted import parse_data_json

MAX_BYTES = 4 * 2**20
MAX_FILES = 40
MAX_NAMES = 400
_WORDS = re.compile(r"label|class|categor|name|structure|organ|finding|legend|lookup|vocab|index", re.IGNORECASE)
_COLUMNS = {
    "name": ("name", "class", "label", "class_name", "structure", "organ"), "number": ("id", "value", "index", "number", "pixel"),
    "r": ("r", "red"), "g": ("g", "green"), "b": ("b", "blue"),
}  # fmt: skip
_NAME = re.compile(r"[^\W\d_].{0,79}", re.DOTALL)


def legends_of(found: Gathering) -> list[Legend]:
    """The legends of a folder's JSON documents, and of text lists that are called after labels or classes."""
    made: list[Legend] = []
    looked = 0
    for group in found.groups:
        if group.fact.kind not in ("json", "list", "text", "table") or len(group.paths) > 4:
            continue
        for path in group.paths:
            full = found.tree.root / path
            called = bool(_WORDS.search(path.rpartition("/")[2]))
            if (
                looked >= MAX_FILES
                or (group.fact.kind != "json" and not called)
                or path.lower().endswith((".xlsx", ".xlsm"))
            ):
                continue
            looked += 1
            try:
                if full.stat().st_size > MAX_BYTES:
                    continue
                text = attempt(lambda full=full: decode(full.read_bytes())[0], full)  # type: ignore[misc]
                made += _in_text(group.fact.kind, path, text, called)
            except (Unreadable, OSError, ValueError, RecursionError):
                continue
    return made


def _in_text(kind: str, path: str, text: str, called: bool) -> Iterator[Legend]:
    if kind == "json":
        return _in_json(path, text, called)
    return _in_table(path, text) if kind == "table" else _in_lines(path, text)


def _in_table(path: str, text: str) -> Iterator[Legend]:
    """Rows with a name and its number, or its colour as red, green and blue (a number as `m3b.data.pixels` makes it)."""
    layout = sniff(text[: 1 << 16].encode(), ".csv")
    rows = list(islice(parse(io.StringIO(text, newline=""), layout.delimiter), MAX_NAMES + 2))
    header = [cell.strip().casefold() for cell in rows[0]] if rows else []
    at = {role: next((at for at, cell in enumerate(header) if cell in words), -1) for role, words in _COLUMNS.items()}
    colours = [at[one] for one in ("r", "g", "b")]
    numbers = colours if min(colours) >= 0 else [at["number"]]
    if at["name"] < 0 or min(numbers) < 0:
        return
    pairs = []
    for row in rows[1:]:
        cells = [row[one].strip() if one < len(row) else "" for one in (at["name"], *numbers)]
        if not all(cell.isdigit() for cell in cells[1:]) or not _NAME.fullmatch(cells[0]):
            return
        pairs.append((reduce(lambda whole, cell: whole * 256 + int(cell), cells[1:], 0), cells[0]))
    if 1 < len({number for number, _ in pairs}) == len(pairs) <= MAX_NAMES:
        yield Legend(path=path, names=tuple(sorted(pairs)), numbered=True)


def _in_json(path: str, text: str, called: bool) -> Iterator[Legend]:
    for place, value, named in _places(parse_data_json(text), "", called, 0):
        if isinstance(value, list) and named and (names := _list(value)):
            yield Legend(path=path, place=place, names=names, numbered=False)
        elif isinstance(value, dict) and (names := _mapping(value)):
            yield Legend(path=path, place=place, names=names, numbered=True)


def _places(value: Any, place: str, called: bool, depth: int) -> Iterator[tuple[str, Any, bool]]:
    yield place, value, called or bool(_WORDS.search(place))
    if isinstance(value, dict) and depth < 3:
        for key, one in list(value.items())[:200]:
            yield from _places(one, f"{place}.{key}" if place else str(key), called, depth + 1)


def _list(value: list[Any]) -> tuple[tuple[int, str], ...]:
    """A list of names by place, from 0; records with a number and a name by that number."""
    if not 1 < len(value) <= MAX_NAMES:
        return ()
    if all(isinstance(one, str) and _NAME.fullmatch(one.strip()) for one in value) and len(set(value)) == len(value):
        return tuple((at, one.strip()) for at, one in enumerate(value))
    return ()


def _mapping(value: dict[str, Any]) -> tuple[tuple[int, str], ...]:
    """`{"1": "liver"}`, or `{"liver": 1}`."""
    if not 1 < len(value) <= MAX_NAMES:
        return ()
    pairs: list[tuple[Any, Any]] = list(value.items())
    if all(isinstance(number, int) and not isinstance(number, bool) for _, number in pairs):
        pairs = [(number, name) for name, number in pairs]
    found = []
    for number, name in pairs:
        if not (str(number).isdigit() and isinstance(name, str) and _NAME.fullmatch(name.strip())):
            return ()
        found.append((int(number), name.strip()))
    numbers = [number for number, _ in found]
    return tuple(sorted(found)) if len(set(numbers)) == len(numbers) and min(numbers) in (0, 1) else ()


def _in_lines(path: str, text: str) -> Iterator[Legend]:
    """A name a line, or a number and a name."""
    lines = [line.strip() for line in text.splitlines() if line.strip()][: MAX_NAMES + 1]
    numbered = [re.fullmatch(r"(\d{1,4})\s*[,;:=\t ]\s*(.+)", line) for line in lines]
    if lines and all(numbered):
        names = _mapping({one[1]: one[2].strip(" \"'") for one in numbered if one})
        if names:
            yield Legend(path=path, names=names, numbered=True)
    elif (names := _list(list(lines))) and all(_no_path(name) for _, name in names):
        yield Legend(path=path, names=names, numbered=False)


def _no_path(name: str) -> bool:
    return "/" not in name and not re.search(r"\.\w{2,4}$", name) and len(name.split()) <= 6
