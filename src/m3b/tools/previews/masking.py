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
_SHOWN = 2001
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
    one = partial(_record, numbers=_numbers(path)) if suffix in _RECORDS else masked_line
    if suffix in _TABLES:
        shown = _table(path, lines)
    else:
        shown = [one(line) for line in (lines if suffix in _RECORDS else _mask_markup_lines(path, lines, offset))]
    return shown, "personal data masked" if shown != lines else ""


def _mask_markup_lines(path: Path, lines: list[str], offset: int) -> list[str]:
    """The lines with what headings and elements in other lines say to name a person masked."""
    with open_for_reading(path, path.name) as file:
        head = file.read(MAX_PARSED).decode("utf-8", "replace")
    masked = mask_markup(head)
    if masked == head:
        return lines
    before, after = (text.split("\n")[offset : offset + len(lines)] for text in (head, masked))
    changed = {
        at: new.rstrip("\r")[:_SHOWN] for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new
    }
    return [changed.get(at, line) for at, line in enumerate(lines)]


def _table(path: Path, lines: list[str]) -> list[str]:
    from m3b.dataset.tables.text_tables import read_delimited

    with open_for_reading(path, path.name) as file:
        head = file.read(1 << 18)
    frame, info = read_delimited(head, suffix=path.suffix.lower(), is_partial=len(head) == 1 << 18)
    separator = info.separator or ","
    rows = [[cell or "" for cell in row] for row in frame[:, :_SHOWN].head(200).iter_rows()]
    found = personal_columns(frame.columns[:_SHOWN], rows)
    if not found:
        return [scrub(line) for line in lines]
    result = []
    for line in lines:
        cells = next(csv.reader([line], delimiter=separator), [])
        if [cell.strip() for cell in cells] == frame.columns:
            result.append(line)
            continue
        out = io.StringIO()
        kept = [mask(cell) if index in found else scrub(cell) for index, cell in enumerate(cells)]
        csv.writer(out, delimiter=separator, lineterminator="").writerow(kept)
        result.append(out.getvalue())
    return result


def _numbers(path: Path) -> set[str]:
    """Record numbers that the objects around them show to be such: a line alone does not."""
    with open_for_reading(path, path.name) as file:
        head = file.read(MAX_PARSED + 1)
    found: set[str] = set()
    texts = [head] if path.suffix.lower() == ".json" and len(head) <= MAX_PARSED else head.splitlines()
    for text in (one for one in texts if b"identifier" in one):
        with contextlib.suppress(ValueError, RecursionError):
            found |= record_numbers(parse_data_json(text))
    return found


def _record(line: str, numbers: set[str]) -> str:
    keys = Siblings(match[1] for match in _PAIR.finditer(line))

    def one(match: re.Match[str]) -> str:
        value = match[3].strip('"')
        if not is_personal(match[1], [value], keys) and not (match[1] == "value" and value in numbers):
            return match[0]
        return f'"{match[1]}"{match[2]}{json.dumps(mask(value))}'

    return scrub(_PAIR.sub(one, line))


_ELEMENT = re.compile(r"<([\w.:-]{1,60})((?: [^<>]{0,200})?)>([^<>]{1,500})</\1>")
_OPENED = re.compile(r"<([\w.:-]{1,60})((?: [^<>]{1,500}?)?)(/?>)")
_ATTRIBUTE = re.compile(r"""([\w.:-]{1,60})=(["'])([^"'<>]{1,300})\2""")
_BESIDE = re.compile(
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
        line = _BESIDE.sub(_beside, _OPENED.sub(_opened, _ELEMENT.sub(_element, line)))
    found = _LINE.match(line)
    if found and is_personal(found[2], [found[4].strip().strip("\"'")]):
        return f"{found[1]}{found[2]}{found[3]}{mask(found[4])}"
    return scrub(line)


def _element(found: re.Match[str]) -> str:
    """The element, its text masked where its name says so, or an attribute: `<field name="Date of Birth">`."""
    names = (found[1].rpartition(":")[2], *(one[3] for one in _ATTRIBUTE.finditer(found[2])))
    shown = mask(found[3]) if any(is_personal(html.unescape(name), [found[3]]) for name in names) else found[3]
    return f"<{found[1]}{found[2]}>{shown}</{found[1]}>"


def _opened(found: re.Match[str]) -> str:
    """A tag with its attributes masked by their names, or by what the element or another attribute says that the value is."""
    headings = (found[1].rpartition(":")[2], *(one[3] for one in _ATTRIBUTE.finditer(found[2])))
    values = next((_VALUE_ATTRIBUTES for heading in headings if is_personal(html.unescape(heading))), frozenset())

    def attribute(one: re.Match[str]) -> str:
        name = one[1].rpartition(":")[2]
        if is_personal(one[3]) or not (name in values or is_personal(name, [one[3]])):
            return one[0]
        return f"{one[1]}={one[2]}{mask(one[3])}{one[2]}"

    return f"<{found[1]}{_ATTRIBUTE.sub(attribute, found[2])}{found[3]}"


def _beside(found: re.Match[str]) -> str:
    value = found[3].strip()
    if value.startswith("[masked ") or not is_personal(html.unescape(found[2]), [value]):
        return found[0]
    return f"{found[1]}{mask(value)}"
