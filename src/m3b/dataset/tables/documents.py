"""Rows of JSON, JSON lines, XML, YAML and `key: value` documents."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from m3b.dataset.tables.headers import is_number, is_path, make_unique
from m3b.dataset.tables.labeling_tasks import list_answers
from m3b.dataset.tables.model import EMPTY_LIST, KEY_COLUMN, LIST_SEPARATOR, TableError, TableInfo, TableLimits

Row = dict[str, str]
_Layout = Literal["objects", "keyed objects", "named lists", "columns", "parts", "keyed values", "lists", "values"]
_RANKS: dict[_Layout, int] = {
    "objects": 2, "keyed objects": 2, "named lists": 2, "columns": 2, "parts": 2, "keyed values": 1, "lists": 0, "values": 0,
}  # fmt: skip
"""Layouts of rows in documents: of several places that with the highest rank, then with most rows, is read."""
_MAX_DEPTH = 8
_MAX_PLACES = 40
_MAX_COLUMNS = 2000
_MAX_YAML_BYTES = 4 << 20
_KEY_VALUE = re.compile(r"\s*([^:=\t#;][^:=\t]{0,60}?)\s*[:=\t]\s*(.*?)\s*")


def read_json(
    text: str, *, records: str = "", limits: TableLimits | None = None, is_stack: bool = False
) -> tuple[list[Row], TableInfo]:
    """Read the records of a JSON document, or of one document a line."""
    try:
        document, form = _load_documents(text)
    except RecursionError as error:
        raise TableError("this JSON is nested too deeply for a table; write its records into a list") from error
    return read_document(document, form, records=records, limits=limits, is_stack=is_stack)


def _load_documents(text: str) -> tuple[Any, str]:
    """Return the document of a text and its form: one, or a list of one a line."""
    try:
        return json.loads(text, parse_int=str, parse_float=str), "json"
    except ValueError as error:
        lines = [line for line in text.split("\n") if line.strip()]
        try:
            return [json.loads(line, parse_int=str, parse_float=str) for line in lines], "json lines"
        except ValueError:
            raise TableError(f"this JSON is damaged: {error}; write it again") from error


def read_yaml(text: str, *, records: str = "", limits: TableLimits | None = None) -> tuple[list[Row], TableInfo]:
    """Read the records of a small YAML document."""
    try:
        document = load_yaml(text)
    except ValueError as error:
        raise TableError(f"this YAML cannot be read: {error}") from error
    return read_document(document, "yaml", records=records, limits=limits)


def load_yaml(text: str) -> Any:
    """Return a small YAML document as texts, lists and objects.

    Raises:
        ValueError: it is damaged, too large, or repeats parts by aliases, which can fill the memory.
    """
    import yaml

    if len(text) > _MAX_YAML_BYTES:
        raise ValueError(
            f"it has {len(text) >> 20} MB, m3b reads up to {_MAX_YAML_BYTES >> 20} MB; write it as JSON or CSV"
        )
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.BaseLoader)):
            raise ValueError("it repeats parts by aliases (`*name`); write it without them")
        return yaml.load(text, Loader=yaml.BaseLoader)  # nosec B506  # BaseLoader makes texts, lists and objects only
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is damaged: {str(error)[:200]}") from error


def read_xml(
    data: bytes, *, records: str = "", limits: TableLimits | None = None, is_record: bool = False
) -> tuple[list[Row], TableInfo]:
    """Read the elements that repeat most in an XML document; attributes and children are columns.

    Args:
        is_record: whether the document is one record, with named elements (`<AbstractText Label="FINDINGS">`) as its fields.
    """
    element = _parse_xml(data)
    if is_record and not records:
        return _make_rows([_convert_element(element, 0, is_record=True)], limits or TableLimits())[0], TableInfo("xml")
    return read_document(_convert_element(element, 0), "xml", records=records, limits=limits)


def find_field_names(data: bytes) -> set[str]:
    """Return the names of all elements of an XML document that could be named fields of one record."""
    return {name for parent in _parse_xml(data).iter() for fields in _name_fields(parent).values() for name in fields}


def _parse_xml(data: bytes) -> Any:
    from xml.etree import ElementTree

    if b"<!ENTITY" in data or b"<!\0E\0N\0T\0I\0T\0Y" in data:
        raise TableError("this XML defines entities, which can fill the memory; write it again without them")
    try:
        return ElementTree.fromstring(data)  # nosec B314  # entities were refused above
    except (ElementTree.ParseError, ValueError) as error:
        raise TableError(f"this XML is damaged: {error}; write it again") from error


MAX_KEY_WORDS = 4
"""Words of a key; more are a sentence with a colon in it."""


def read_keys(text: str) -> Row | None:
    """Return the record of a small text of `key: value` lines, with `[section]`s before its keys; None if it is no such text."""
    row: Row = {}
    section = ""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    for line in lines:
        if line.startswith(("#", ";", "//")):
            continue
        if heading := re.fullmatch(r"\[([^\]]{1,60})\]", line):
            section = f"{heading[1]}."
            continue
        pair = _KEY_VALUE.fullmatch(line)
        if pair is None or f"{section}{pair[1]}" in row or len(pair[1].split()) > MAX_KEY_WORDS:
            return None
        row[f"{section}{pair[1]}"] = pair[2].strip("\"'")
    return row if row and (len(lines) > 1 or ":" in text or "=" in text) else None


def read_document(
    document: Any, form: str, *, records: str = "", limits: TableLimits | None = None, is_stack: bool = False
) -> tuple[list[Row], TableInfo]:
    """Return the records at a place of a document (`annotations`, `data.cases`), by default at the one with most rows.

    Records are a list of objects or of lists, an object of objects or of texts (its keys are the column `(key)`), lists of
    objects with the same keys (their names are the column `(key)`), an object of equally long lists, or a list of texts
    (column `value`). A document without any of them is one record.

    Args:
        is_stack: whether it is one of several documents, in which a list of texts beside texts, or of words alone, is a cell of
            the record.
    """
    limits = limits or TableLimits()
    document = list_answers(document) or document
    places = {place: count for place, count, _ in _find_places(document)}
    info = TableInfo(form, places=dict(sorted(places.items(), key=lambda item: -item[1])[:_MAX_PLACES]))
    if records:
        value = _follow(document, records)
        if value is None:
            known_places = (
                ", ".join(f"{place or '(whole document)'} ({count} rows)" for place, count in info.places.items())
                or "none"
            )
            raise TableError(f"records: {records!r} is not in the document; places with rows: {known_places}")
        place = records
    else:
        record_places = [item for item in _find_places(document) if not (is_stack and _is_cell(document, item[0]))]
        ranked = sorted(record_places, key=lambda item: (item[2], item[1]), reverse=True)
        place, value = (ranked[0][0], _follow(document, ranked[0][0])) if ranked else ("", document)
        if not ranked and form == "json lines":
            value = document
    info.records = place
    rows, is_partial = _make_rows(value, limits)
    if is_partial:
        info.partial = True
        info.notes.append(f"read in part: the first {len(rows):,} records")
    if not rows:
        raise TableError("the document holds no records")
    return rows, info


def _find_places(document: Any) -> Iterator[tuple[str, int, int]]:
    """Yield where rows lie, how many, and the rank of their layout."""
    stack: list[tuple[str, Any, int]] = [("", document, 0)]
    visited = 0
    while stack and visited < 10_000:
        place, value, depth = stack.pop()
        visited += 1
        layout, count = _find_layout(value)
        if layout:
            yield place, count, _RANKS[layout]
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            parts = _list_parts(value) if layout == "parts" else {}
            stack += [
                (f"{place}.{key}" if place else str(key), item, depth + 1)
                for key, item in list(value.items())[:200]
                if isinstance(item, (Mapping, list)) and key not in parts
            ]


def _is_cell(document: Any, place: str) -> bool:
    """Return whether a place holds a list of texts, beside a text, or a list of words that is all there is."""
    beside, texts = _follow(document, place.rpartition(".")[0]), _follow(document, place)
    if not place or _find_layout(texts)[0] != "values" or not isinstance(beside, Mapping):
        return False
    is_alone = len(beside) == 1 and not any(re.search(r"\d", str(text)) for text in texts)
    return is_alone or any(not isinstance(item, (Mapping, list)) for item in beside.values())


def _find_layout(value: Any) -> tuple[_Layout | None, int]:
    """Return how the rows of a value are laid out, and how many they are; None if it holds no rows."""
    if isinstance(value, list) and value:
        head = value[:50]
        if all(isinstance(item, Mapping) for item in head):
            return "objects", len(value)
        if all(isinstance(item, list) for item in head):
            are_rows = len({len(item) for item in head}) == 1 and 1 < len(head[0]) <= _MAX_COLUMNS and len(value) > 1
            is_named = are_rows and any(isinstance(item, str) and not is_number(item) for item in head[0])
            return ("named lists" if is_named else "lists", len(value)) if are_rows else (None, 0)
        is_flat = len(value) > 1 and not any(isinstance(item, (Mapping, list)) for item in head)
        return ("values", len(value)) if is_flat else (None, 0)
    if not isinstance(value, Mapping) or len(value) < 2:
        return None, 0
    items = list(value.values())
    if parts := _list_parts(value):
        return "parts", sum(map(len, parts.values()))
    if all(isinstance(item, Mapping) for item in items):
        return ("keyed objects", len(items)) if _share_keys(items) else (None, 0)
    if _is_keyed(value):
        return "keyed values", len(items)
    if all(isinstance(item, list) for item in items) and len({len(item) for item in items}) == 1 and len(items[0]) > 1:
        return "columns", len(items[0])
    return None, 0


def _list_parts(value: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the lists of an object that hold parts of the same records, such as `training` and `validation`: lists of objects
    with the same keys, that together are most of what its lists of objects hold."""
    lists = {
        str(key): item for key, item in value.items() if isinstance(item, list) and _find_layout(item)[0] == "objects"
    }
    keys = {name: frozenset(key for record in records[:200] for key in record) for name, records in lists.items()}
    counts = Counter(
        {
            common_keys: sum(len(lists[name]) for name in lists if keys[name] == common_keys)
            for common_keys in keys.values()
        }
    )
    common_keys, count = counts.most_common(1)[0] if counts else (frozenset(), 0)
    parts = {name: records for name, records in lists.items() if keys[name] == common_keys}
    return parts if len(parts) > 1 and 2 * count > counts.total() else {}


def _share_keys(objects: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether most objects have a common key, as records have and sections of a configuration have not."""
    counts = Counter(key for item in objects[:200] for key in item)
    return bool(counts) and counts.most_common(1)[0][1] >= 0.8 * min(len(objects), 200)


def _is_keyed(value: Mapping[str, Any]) -> bool:
    """Return whether the keys of an object of texts name cases: file names, or names that differ by their numbers."""
    if len(value) < 2 or any(isinstance(item, Mapping) for item in value.values()):
        return False
    keys = [str(key) for key in list(value)[:200]]
    if sum(is_path(key) for key in keys) > 0.8 * len(keys):
        return True
    shapes = Counter(re.sub(r"\d+", "#", key) for key in keys)
    shape, count = shapes.most_common(1)[0]
    return ("#" in shape and count > 0.8 * len(keys)) or (
        len(value) > 100 and len(set(map(str, value.values()))) < 0.5 * len(value)
    )


def _follow(document: Any, path: str) -> Any:
    value = document
    remaining_path = path
    while remaining_path:
        if not isinstance(value, Mapping):
            return None
        key = next(
            (
                key
                for key in sorted(value, key=len, reverse=True)
                if remaining_path == key or remaining_path.startswith(f"{key}.")
            ),
            None,
        )
        if key is None:
            return None
        value, remaining_path = value[key], remaining_path[len(key) + 1 :]
    return value


def _make_rows(value: Any, limits: TableLimits) -> tuple[list[Row], bool]:
    layout, _ = _find_layout(value)
    items: list[tuple[str | None, Any]]
    if layout in ("named lists", "lists"):
        items = [(None, item) for item in _name_lists(value)]
    elif layout in ("keyed objects", "keyed values"):
        items = [(str(key), item) for key, item in value.items()]
    elif layout == "parts":
        items = [(part, item) for part, records in _list_parts(value).items() for item in records]
    elif layout == "columns":
        items = [(None, dict(zip(value, cells, strict=True))) for cells in zip(*value.values(), strict=True)]
    else:
        items = [(None, item) for item in value] if isinstance(value, list) else [(None, value)]
    rows: list[Row] = []
    cells = 0
    for key, item in items:
        row: Row = {} if key is None else {KEY_COLUMN: key}
        _flatten(item, "", row, 0)
        rows.append(row)
        cells += len(row)
        if len(rows) >= limits.rows or cells >= limits.cells:
            return rows, len(rows) < len(items)
    return rows, False


def _name_lists(value: list[Any]) -> list[Any]:
    """Return objects instead of lists whose first names the columns (`[["image", "label"], ["a.png", 1], ...]`)."""
    from m3b.dataset.tables.headers import find_header

    texts = [[_as_text(cell) for cell in row] for row in value[:50] if isinstance(row, list)]
    layout = find_header(texts)
    names = make_unique(layout.names)
    return [dict(zip(names, row, strict=False)) for row in value[layout.first_row :] if isinstance(row, list)]


def _flatten(value: Any, prefix: str, row: Row, depth: int) -> None:
    """Write the leaves of a value into a row; names of nested ones are joined by dots."""
    if len(row) >= _MAX_COLUMNS:
        return
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for key, item in value.items():
            _flatten(item, f"{prefix}.{key}" if prefix else str(key), row, depth + 1)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        _flatten_objects(value, prefix, row, depth)
    elif isinstance(value, list) and not any(isinstance(item, (Mapping, list)) for item in value):
        row[prefix or "value"] = LIST_SEPARATOR.join(_as_text(item) for item in value) if value else EMPTY_LIST
    else:
        row[prefix or "value"] = _as_text(value)


def _flatten_objects(objects: Sequence[Any], prefix: str, row: Row, depth: int) -> None:
    """Write a list of objects into a row: of each key the list of its values; lists within are written as they are."""
    items: list[Row] = []
    for item in objects[:_MAX_COLUMNS]:
        items.append({})
        cells = {key: _as_text(value) if isinstance(value, list) else value for key, value in item.items()}
        _flatten(cells, prefix, items[-1], depth + 1)
    for name in dict.fromkeys(name for item in items for name in item):
        if len(row) < _MAX_COLUMNS:
            row[name] = LIST_SEPARATOR.join(item.get(name, "") for item in items)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:4096]


def _convert_element(element: Any, depth: int, *, is_record: bool = False) -> Any:
    """Return an XML element as texts, lists and objects: attributes and children by name, repeated children as lists.

    Args:
        is_record: whether repeated children with names are an object.
    """
    content: dict[str, Any] = {_cut_namespace(key): text for key, text in element.attrib.items()}
    fields = _name_fields(element) if is_record else {}
    if depth < _MAX_DEPTH + 2:
        groups: dict[str, list[Any]] = {}
        for child in element:
            tag = _cut_namespace(child.tag)
            values = groups.setdefault(tag, [])
            if tag not in fields:
                values.append(_convert_element(child, depth + 1, is_record=is_record))
        for tag, values in groups.items():
            content[tag] = fields.get(tag) or (values if len(values) > 1 else values[0])
    text = (element.text or "").strip()
    if not content:
        return text
    if text:
        content["text"] = text
    return content


def _name_fields(element: Any) -> dict[str, Row]:
    """Return tag -> name -> text of repeated children that hold a text and have their name as the only attribute; names of files,
    numbers, and names that differ by numbers are those of cases."""
    groups: dict[str, list[Any]] = {}
    for child in element:
        groups.setdefault(_cut_namespace(child.tag), []).append(child)
    fields: dict[str, Row] = {}
    for tag, children in groups.items():
        named = {
            next(iter(child.attrib.values())): (child.text or "").strip()
            for child in children
            if len(child.attrib) == 1 and not len(child)
        }
        is_complete = len(named) == len(children) > 1 and any(named.values())
        if is_complete and not _is_keyed(named) and not any(is_number(name) for name in named):
            fields[tag] = named
    return fields


def _cut_namespace(tag: Any) -> str:
    return str(tag).rpartition("}")[2]
