"""Lines of a data file as they are read, with what names a person masked."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.data.phi import Siblings, is_personal, mask, personal_columns, record_numbers, scrub
from m3b.isolation.untrusted import parse_data_json
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.markup_tables import mask_markup

if TYPE_CHECKING:
    from m3b.tools.context import PreviewContext

_TABLES = {".csv", ".tsv", ".tab"}
_CODE = {".py", ".sh", ".toml", ".cfg", ".ini"}
MAX_SHOWN_CELLS = 2001
"""Cells that a line of read_files can show: it is cut behind 2,000 characters."""
MAX_PARSED = 4 << 20
"""Bytes of a JSON file that are parsed to see what its values are; of a larger one, the lines of so much."""
_RECORDS = {".json", ".jsonl", ".ndjson"}
_PAIR = re.compile(r'"((?:[^"\\]|\\.){1,80})"(\s*:\s*)("(?:[^"\\]|\\.)*"|-?[\d.eE+-]+)')


def masked_lines(path: Path, lines: list[str], ctx: PreviewContext, offset: int = 0) -> tuple[list[str], str]:
    """The same lines, personal cells and values masked; and a note that says so, empty when nothing was.

    `offset` is the number of lines of the file before the first one.

    Raw data is masked, and so are copies of it in the working folder; code is shown as it is, for edits need its exact text.
    """
    suffix = path.suffix.lower()
    if ctx.phi == "allow":
        return lines, ""
    if (ctx.roots.is_writable(path) and suffix in _CODE) or ctx.roots.display_path(path).startswith("resources"):
        return lines, ""
    mask_line = partial(_record, numbers=_numbers(path)) if suffix in _RECORDS else masked_line
    if suffix in _TABLES:
        shown_lines = _table(path, lines)
    else:
        shown_lines = [
            mask_line(line) for line in (lines if suffix in _RECORDS else _mask_markup_lines(path, lines, offset))
        ]
    return shown_lines, "personal data masked" if shown_lines != lines else ""


def _mask_markup_lines(path: Path, lines: list[str], offset: int) -> list[str]:
    """The lines with what headings and elements in other lines say to name a person masked."""
    with open_for_reading(path, path.name) as file:
        head = file.read(MAX_PARSED).decode("utf-8", "replace")
    masked = mask_markup(head)
    if masked == head:
        return lines
    before, after = (text.split("\n")[offset : offset + len(lines)] for text in (head, masked))
    changed = {
        at: new.rstrip("\r")[:MAX_SHOWN_CELLS]
        for at, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new
    }
    return [changed.get(at, line) for at, line in enumerate(lines)]


def _table(path: Path, lines: list[str]) -> list[str]:
    from m3b.dataset.tables.text_tables import read_delimited

    with open_for_reading(path, path.name) as file:
        head = file.read(1 << 18)
    frame, info = read_delimited(head, suffix=path.suffix.lower(), is_partial=len(head) == 1 << 18)
    separator = info.separator or ","
    rows = [[cell or "" for cell in row] for row in frame[:, :MAX_SHOWN_CELLS].head(200).iter_rows()]
    personal = personal_columns(frame.columns[:MAX_SHOWN_CELLS], rows)
    if not personal:
        return [scrub(line) for line in lines]
    result = []
    for line in lines:
        cells = next(csv.reader([line], delimiter=separator), [])
        if [cell.strip() for cell in cells] == frame.columns:
            result.append(line)
            continue
        out = io.StringIO()
        masked_cells = [mask(cell) if index in personal else scrub(cell) for index, cell in enumerate(cells)]
        csv.writer(out, delimiter=separator, lineterminator="").writerow(masked_cells)
        result.append(out.getvalue())
    return result


def _numbers(path: Path) -> set[str]:
    """Record numbers that the objects around them show to be such: a line alone does not."""
    with open_for_reading(path, path.name) as file:
        head = file.read(MAX_PARSED + 1)
    numbers: set[str] = set()
    texts = [head] if path.suffix.lower() == ".json" and len(head) <= MAX_PARSED else head.splitlines()
    for text in (line for line in texts if b"identifier" in line):
        with contextlib.suppress(ValueError, RecursionError):
            numbers |= record_numbers(parse_data_json(text))
    return numbers


def _record(line: str, numbers: set[str]) -> str:
    keys = Siblings(match[1] for match in _PAIR.finditer(line))

    def mask_pair(match: re.Match[str]) -> str:
        value = match[3].strip('"')
        if not is_personal(match[1], [value], keys) and not (match[1] == "value" and value in numbers):
            return match[0]
        return f'"{match[1]}"{match[2]}{json.dumps(mask(value))}'

    return scrub(_PAIR.sub(mask_pair, line))


_ELEMENT = re.compile(r"<([\w.:-]{1,60})((?: [^<>]{0,200})?)>([^<>]{1,500})</\1>")
_OPENING_TAG = re.compile(r"<([\w.:-]{1,60})((?: [^<>]{1,500}?)?)(/?>)")
_ATTRIBUTE = re.compile(r"""([\w.:-]{1,60})=(["'])([^"'<>]{1,300})\2""")
_HEADING_WITH_TEXT = re.compile(
    r"(>\s{0,4}([^<>]{1,80}?)\s{0,4}[:：]?\s{0,4}</[\w.:-]{1,60}>\s{0,4}(?:<[^<>/]{1,100}>\s{0,4})?[:：]?\s{0,4})([^<>\s][^<>]{0,500})"
)
"""A heading in an element, and the text behind it or in the next one: `<th>Name</th><td>...</td>`, `<b>Name:</b> ...`."""
_VALUE_ATTRIBUTES = frozenset({"value", "val", "content", "data", "text"})
_LINE = re.compile(
    r"^(\s{0,40}(?:[-*#>|]\s{0,4})?\**)([^\W\d_][\w ,.'()/°º-]{0,40}?)(\**\s{0,4}[:：=]\**\s{0,4})(\S.{0,500})$"
)


def masked_line(line: str) -> str:
    """A line of a text, XML or YAML file: what elements, attributes and `key: value` name, and what free text holds."""
    if "<" in line:
        line = _HEADING_WITH_TEXT.sub(
            _mask_text_of_heading, _OPENING_TAG.sub(_mask_attributes, _ELEMENT.sub(_element, line))
        )
    match = _LINE.match(line)
    if match and is_personal(match[2], [match[4].strip().strip("\"'")]):
        return f"{match[1]}{match[2]}{match[3]}{mask(match[4])}"
    return scrub(line)


def _element(match: re.Match[str]) -> str:
    """The element, its text masked where its name says so, or an attribute: `<field name="Date of Birth">`."""
    names = (match[1].rpartition(":")[2], *(attribute[3] for attribute in _ATTRIBUTE.finditer(match[2])))
    text = mask(match[3]) if any(is_personal(html.unescape(name), [match[3]]) for name in names) else match[3]
    return f"<{match[1]}{match[2]}>{text}</{match[1]}>"


def _mask_attributes(match: re.Match[str]) -> str:
    """A tag with its attributes masked by their names, or by what the element or another attribute says that the value is."""
    headings = (match[1].rpartition(":")[2], *(pair[3] for pair in _ATTRIBUTE.finditer(match[2])))
    values = next((_VALUE_ATTRIBUTES for heading in headings if is_personal(html.unescape(heading))), frozenset())

    def attribute(pair: re.Match[str]) -> str:
        name = pair[1].rpartition(":")[2]
        if is_personal(pair[3]) or not (name in values or is_personal(name, [pair[3]])):
            return pair[0]
        return f"{pair[1]}={pair[2]}{mask(pair[3])}{pair[2]}"

    return f"<{match[1]}{_ATTRIBUTE.sub(attribute, match[2])}{match[3]}"


def _mask_text_of_heading(match: re.Match[str]) -> str:
    value = match[3].strip()
    if value.startswith("[masked ") or not is_personal(html.unescape(match[2]), [value]):
        return match[0]
    return f"{match[1]}{mask(value)}"
