"""Rows out of JSON, JSON lines and XML: lists of records wherever they lie, records by key, lists by key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from m3b.data.delimited import decode
from m3b.data.opening import Unreadable
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.rows import Cell, Rows
from m3b.isolation.untrusted import TooDeep, parse_data_json

_DEEPEST = 8
WHOLE = "(document)"
"""Where in a document the row lies that is all of it."""
_MAX_ITEMS = 50_000


def read_json(path: Path, limits: SurveyLimits, size: int) -> list[Rows]:
    """Every table of a JSON file or of JSON lines."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if _is_lines(head):
        return [_json_lines(path, limits)]
    if size > limits.table_bytes:
        raise Unreadable("large", path.name)
    text = decode(path.read_bytes())[0]
    try:
        value = parse_data_json(text)
        found = list(islice(tables_in(value, limits), 40))
        return found if found or not isinstance(value, dict) or not value else [_whole(value)]
    except (TooDeep, RecursionError) as error:
        raise Unreadable("deep", path.name) from error


def _whole(document: dict[str, Any]) -> Rows:
    """A document without lists of records as one row: of use where many of one form lie beside their images."""
    table = Rows("json", [], record_path=WHOLE)
    table.add(flat(document))
    return table


def _is_lines(head: bytes) -> bool:
    lines = [line for line in head.split(b"\n")[:3] if line.strip()]
    try:
        first = parse_data_json(lines[0]) if lines else None
    except ValueError:
        return False
    return isinstance(first, dict) and (len(lines) > 1 and lines[1].lstrip()[:1] == b"{")


def _json_lines(path: Path, limits: SurveyLimits) -> Rows:
    table = Rows("jsonl", [])
    with path.open("rb") as file:
        for line in file:
            if len(table.rows) >= limits.rows or file.tell() > limits.table_bytes:
                table.exact = False
                break
            try:
                record = parse_data_json(line) if line.strip() else None
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                table.add(flat(record))
    return table


def tables_in(value: Any, limits: SurveyLimits, place: str = "", depth: int = 0) -> Iterator[Rows]:
    """The lists of records in a JSON value, records by key, and lists of plain values by key."""
    if depth > 4:
        return
    if isinstance(value, list):
        records = [one for one in value if isinstance(one, dict)]
        if records and 2 * len(records) >= len(value):
            table = Rows("json", [], record_path=place or "[]", exact=len(records) <= limits.rows)
            for one in records[: limits.rows]:
                table.add(flat(one))
            yield table
        elif value and all(isinstance(one, str | int | float) for one in value):
            yield Rows("json", ["0"], [{"0": str(one)} for one in value[: limits.rows]], record_path=place or "[]",
                       header=False)  # fmt: skip
        return
    if not isinstance(value, dict) or not value:
        return
    kinds = {type(one) for one in value.values()}
    if kinds == {dict} and len(value) > 8:
        table = Rows("json", ["(key)"], record_path=place or "{}", exact=len(value) <= limits.rows)
        for key, one in islice(value.items(), limits.rows):
            table.add({"(key)": key, **flat(one)})
        yield table
    elif all(isinstance(one, str | int | float | bool) for one in value.values()) and len(value) > 8:
        pairs: list[dict[str, Cell]] = [{"(key)": key, "(value)": str(one)} for key, one in value.items()]
        yield Rows("json", ["(key)", "(value)"], pairs[: limits.rows], record_path=place or "{}")
    elif kinds == {list} and not all(_holds_records(one) for one in value.values()):
        if len(value) > 40:
            keyed: list[dict[str, Cell]] = [{"(key)": key} for key in value]
            yield Rows("json", ["(key)"], keyed[: limits.rows], record_path=place or "{}")
            return
        columns: dict[str, Cell] = {
            key: [str(item) for item in one[: limits.rows] if not isinstance(item, dict | list)]
            for key, one in value.items()
        }
        yield Rows("json", list(columns), [columns], record_path=place or "{}")
    else:
        for key, one in value.items():
            yield from tables_in(one, limits, f"{place}.{key}" if place else key, depth + 1)


def _holds_records(value: Any) -> bool:
    return bool(value) and isinstance(value[0], dict)


def flat(record: dict[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Cell]:
    """A nested record as one row: `a.b` for fields of fields, lists of plain values as lists, others counted."""
    row: dict[str, Cell] = {}
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and depth < _DEEPEST:
            row.update(flat(value, f"{name}.", depth + 1))
        elif isinstance(value, list):
            if value and all(isinstance(one, dict) for one in value):
                inner: dict[str, list[str]] = {}
                for one in value[:_MAX_ITEMS]:
                    for field_name, cell in flat(one, f"{name}[].", depth + 1).items() if depth < _DEEPEST else ():
                        inner.setdefault(field_name, []).extend(cell if isinstance(cell, list) else [cell])
                row.update(inner)
            elif not any(isinstance(one, list | dict) for one in value):
                row[name] = [_plain_text(one) for one in value[:_MAX_ITEMS]]
            elif all(_is_box(one) for one in value):
                row[name] = [",".join(map(str, one)) for one in value[:_MAX_ITEMS]]
            else:
                row[name] = f"[{len(value)}]"  # lists of lists: outlines, matrices
        else:
            row[name] = _plain_text(value)
    return row


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) in (4, 6) and all(type(one) in (int, float) for one in value)


def _plain_text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --- XML ----------------------------------------------------------------------------------------------------------


def xml_root(path: Path) -> Any:
    """The root element of an XML file that declares no entities of its own.

    Raises:
        Unreadable: it declares entities (a bomb, or a reach for other files).
        ValueError: it is not XML.
    """
    from xml.etree import ElementTree

    data = path.read_bytes()
    if b"<!ENTITY" in data:
        raise Unreadable("bomb", path.name)
    try:
        return ElementTree.fromstring(data)  # nosec B314  # entities were refused above
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def read_xml(path: Path) -> Rows:
    """Repeated children of the root as rows, else the whole document as one."""
    root = xml_root(path)
    children = list(root)
    tags = {child.tag for child in children}
    table = Rows("xml", [], record_path=_tag(root))
    if len(tags) == 1 and len(children) > 1 and any(len(child) or child.attrib for child in children):
        table.record_path += f"/{_tag(children[0])}"
        for child in children[:_MAX_ITEMS]:
            table.add(_leaves(child))
    else:
        table.add(_leaves(root))
    return table


def _leaves(element: Any) -> dict[str, Cell]:
    found: dict[str, list[str]] = {}
    stack = [(element, "", 0)]
    while stack:
        node, name, depth = stack.pop()
        for key, value in node.attrib.items():
            found.setdefault(f"{name}@{key}" if name else f"@{key}", []).append(value)
        if not len(node) and (node.text or "").strip():
            found.setdefault(name or _tag(node), []).append(node.text.strip())
        if depth < 64:
            for child in reversed(node):
                labelled = _tag(child) + "".join(f"[{value}]" for key, value in child.attrib.items() if key == "Label")
                stack.append((child, f"{name}.{labelled}" if name else labelled, depth + 1))
    return {name: cells[0] if len(cells) == 1 else cells for name, cells in found.items()}


def _tag(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]
