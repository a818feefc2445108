"""JSON and JSON lines: structure with types and counts, a sample, COCO recognised."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from m3b.data.phi import MAX_LOOKED_VALUES, Phi, cell, is_personal, masked_json
from m3b.dataset.tables.text_tables import decode_text
from m3b.facts import DocumentSummary
from m3b.isolation.untrusted import parse_data_json
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.coco import coco, marked
from m3b.tools.previews.fields import NAMES, fields
from m3b.tools.previews.lines import Lines, count_lines
from m3b.tools.text import pluralize, shorten

_WHOLE_UP_TO = 32 * 2**20
_PREFIX = 2 * 2**20
_MAX_COUNTED_VALUES = 10_000
"""Values at one place that are counted; of more it is said."""
_MAX_NAMES = 64
_MAX_KEYS = 40


def preview(path: Path, phi: Phi) -> Lines:
    """Lines about a JSON or JSON-lines file; large ones are judged by their beginning, which is said."""
    with open_for_reading(path, path.name) as file:
        length = os.fstat(file.fileno()).st_size
        head = file.read(min(length, _PREFIX))
        lines = path.suffix.lower() in (".jsonl", ".ndjson") or _is_lines(head)
        if not lines and length <= _WHOLE_UP_TO:
            head += file.read()
    if lines:
        return _lines(path, head, phi)
    text, _ = decode_text(head)
    note = ""
    if length <= _WHOLE_UP_TO:
        value = parse_data_json(text)
    else:
        value, note = parse_data_json(closed(text)), f" (of the first {len(head) // 2**20} MiB only)"
    lines_about = [f"JSON{note}: {_kind(value)}", *(coco(value) or []), *structure(value, phi), *_sample(value, phi)]
    records = len(value) if isinstance(value, list) else 1
    return Lines(lines_about, DocumentSummary(records=records, fields=fields(value, phi), marked=tuple(marked(value))))


def _is_lines(head: bytes) -> bool:
    """Whether the first two lines are JSON objects of their own."""
    first = head.split(b"\n", 2)[:2]
    try:
        return len(first) == 2 and all(isinstance(parse_data_json(line), dict) for line in first if line.strip())
    except ValueError:
        return False


def _lines(path: Path, head: bytes, phi: Phi) -> Lines:
    total = count_lines(path)
    start = head if len(head) < _PREFIX else head[: head.rfind(b"\n") + 1]
    bad: Counter[str] = Counter()
    records = list(_parsed(start.split(b"\n")[:_MAX_COUNTED_VALUES], bad))
    of = "all" if len(head) < _PREFIX and total <= _MAX_COUNTED_VALUES else f"the first {len(records):,}"
    if not records:
        none = f"JSON lines: {pluralize(total, 'line')}, none of those read is valid JSON ({_first(bad)})"
        return Lines([none], DocumentSummary())
    lines = [f"JSON lines: {pluralize(total, 'record')}; fields, of {of}:", *structure(records, phi, top=False)]
    if bad:
        lines.append(f"{pluralize(bad.total(), 'line')} not valid JSON: {_first(bad)}")
    return Lines(lines + _sample(records, phi), DocumentSummary(records=total, fields=fields(records, phi)))


def _parsed(lines: Iterable[bytes], bad: Counter[str]) -> Iterator[Any]:
    for line in lines:
        if line.strip():
            try:
                yield parse_data_json(line)
            except (ValueError, RecursionError) as error:
                bad[shorten(str(error), 80)] += 1


def _first(bad: Counter[str]) -> str:
    return next(iter(bad), "")


def closed(text: str) -> str:
    """The beginning of a JSON text, made valid: cut behind the last complete element and closed."""
    stack: list[str] = []
    best: tuple[int, str] = (0, "null")
    at = 0
    while at < len(text):
        ch = text[at]
        if ch == '"':
            at = _string_end(text, at)
        elif ch in "[{":
            stack.append("]" if ch == "[" else "}")
            best = (at + 1, "".join(reversed(stack)))
        elif ch in "]}" and stack:
            stack.pop()
            best = (at + 1, "".join(reversed(stack)))
        elif ch == ",":
            best = (at, "".join(reversed(stack)))
        at += 1
    return text[: best[0]] + best[1]


def _string_end(text: str, at: int) -> int:
    """Where the string that opens at `at` closes; the text's end if it does not."""
    end = text.find('"', at + 1)
    while end > 0:
        slashes = 0
        while text[end - 1 - slashes] == "\\":
            slashes += 1
        if slashes % 2 == 0:
            return end
        end = text.find('"', end + 1)
    return len(text)


def structure(value: Any, phi: Phi, *, top: bool = True) -> list[str]:
    """The fields of a value, one a line, with types, counts and small vocabularies."""
    lines: list[str] = ["structure:"] if top else []
    _describe([value] if top else list(value), "", lines, phi, 0)
    return lines[:80] + (["  ..."] if len(lines) > 80 else [])


def _describe(values: list[Any], indent: str, lines: list[str], phi: Phi, depth: int) -> None:
    """Describe what several values at the same place have in common."""
    if depth > 6:
        return
    if records := [value for value in values if isinstance(value, dict)]:
        _fields(records, indent + "  ", lines, phi, depth)
    if lists := [value for value in values if isinstance(value, list)]:
        items = list(islice(chain.from_iterable(lists), _MAX_COUNTED_VALUES))
        if items and any(isinstance(item, dict | list) for item in items):
            lines.append(f"{indent}  each item{_of(len(items), sum(map(len, lists)))}: {_types(items)}")
            _describe(items, indent + "  ", lines, phi, depth + 1)
        elif depth == 0 and len(lists) == 1 and items:
            lines.append(f"{indent}  {_describe_items(items)}")


def _of(read: int, total: int) -> str:
    """What is said where not all values were counted."""
    return f" (of the first {read:,} of {total:,})" if read < total else ""


def _describe_items(items: list[Any]) -> str:
    """Short texts in their order, as lists of class names are; of others a summary."""
    if _is_names(items):
        return f"all items, in order: {', '.join(cell(item) for item in items)}"
    return f"items{_values(items)}"


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MAX_NAMES
        and all(isinstance(item, str) and len(item) <= 60 for item in value)
    )


def _fields(records: list[dict[str, Any]], indent: str, lines: list[str], phi: Phi, depth: int) -> None:
    counts = Counter(key for record in records for key in record)
    if len(counts) > _MAX_KEYS and _is_map(records, counts):
        values = list(islice(chain.from_iterable(record.values() for record in records), _MAX_COUNTED_VALUES))
        examples = ", ".join(repr(shorten(cell(str(key)), 60)) for key in list(counts)[:3])
        cut = _of(len(values), sum(map(len, records)))
        lines.append(f"{indent}{len(counts):,} keys such as {examples}; each{cut}: {_types(values)}")
        _describe(values, indent, lines, phi, depth + 1)
        return
    keys = list(counts)
    for key in keys[:_MAX_KEYS]:
        values = [record[key] for record in records if key in record]
        hidden = phi == "mask" and is_personal(str(key), values, keys)
        absent = f", in {counts[key]:,} of {len(records):,}" if counts[key] < len(records) else ""
        about = "; looks like personal data: masked" if hidden else _values(values)
        lines.append(f"{indent}{key}: {_types(values)}{absent}{about}")
        if not hidden:
            _describe(values, indent, lines, phi, depth + 1)
    if len(keys) > _MAX_KEYS:
        lines.append(f"{indent}... {len(keys) - _MAX_KEYS} more keys")


def _is_map(records: list[dict[str, Any]], counts: Counter[str]) -> bool:
    """Whether the keys are data (file names, ids) and not field names."""
    return len(records) == 1 or len(counts) > 4 * _MAX_KEYS


def _values(values: list[Any]) -> str:
    """Small vocabularies with counts, ranges of numbers, lengths of lists."""
    items = chain.from_iterable(value if isinstance(value, list) else (value,) for value in values)
    flat = list(islice(items, _MAX_COUNTED_VALUES))
    cut = _of(len(flat), sum(len(value) if isinstance(value, list) else 1 for value in values))
    words = [item for item in flat if isinstance(item, str)]
    numbers = [item for item in flat if isinstance(item, int | float) and not isinstance(item, bool)]
    if words:
        counts = Counter(words)
        if len(counts) <= 20 and (len(counts) < len(words) or len(words) <= 3):
            return f"{cut}: " + ", ".join(f"{shorten(cell(text), 60)} x {n:,}" for text, n in counts.most_common())
        return f"{cut}: {len(counts):,} distinct, such as {shorten(cell(words[0]), 80)!r}"
    if numbers:
        return f"{cut}: {min(numbers):g} to {max(numbers):g}"
    return ""


def _types(values: list[Any]) -> str:
    counts = Counter(NAMES.get(kind, kind.__name__) for kind in map(type, values))
    names = [name if len(counts) == 1 else f"{name} x {count:,}" for name, count in counts.most_common(4)]
    text = " or ".join(names)
    lengths = [len(value) for value in values if isinstance(value, list)]
    if lengths:
        low, high = min(lengths), max(lengths)
        text += f" of {low:,}" + (f" to {high:,}" if high > low else "") + (" items" if high != 1 else " item")
        inner = Counter(type(item) for value in values if isinstance(value, list) for item in value[:50])
        text += f" ({' or '.join(NAMES.get(kind, kind.__name__) for kind, _ in inner.most_common(3))})" if inner else ""
    return text


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"list of {pluralize(len(value), 'item')}"
    return NAMES.get(type(value), type(value).__name__)


def _shortened(record: Any) -> Any:
    if not isinstance(record, dict):
        return record
    fields = ((key, record[key]) for key in list(record)[:_MAX_KEYS])
    return {key: [*item[:5], "..."] if isinstance(item, list) and len(item) > 6 else item for key, item in fields}


def _sample(value: Any, phi: Phi) -> list[str]:
    if _is_names(value):
        return []  # shown whole already
    records = [
        _shortened(record) for record in (value[:MAX_LOOKED_VALUES] if isinstance(value, list) and value else [value])
    ]
    first = (masked_json(records) if phi == "mask" else records)[0]
    return ["sample: " + shorten(json.dumps(first, ensure_ascii=False, default=str), 500)]
