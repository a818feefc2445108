"""Writing a copy of a folder without some people: files by owner, rows and records of tables by what they name."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import DataError

from .datasets import RawCase
from .identity import MEDICAL_SUFFIX, PatientLookup, strip_suffixes

OPAQUE_SUFFIXES = (
    ".zip",
    ".7z",
    ".tar",
    ".tgz",
    ".tar.gz",
    ".rar",
    ".xlsx",
    ".xls",
    ".parquet",
    ".npz",
    ".h5",
    ".hdf5",
    ".db",
    ".sqlite",
)
"""Files that may hold anybody's data and are not taken apart here: the agent's copy goes without them."""


@dataclass(frozen=True)
class Removal:
    """What has to go.

    Args:
        files: relative paths.
        tokens: names of cases and stems of files.
        patients: as the reader names them.
    """

    files: frozenset[str]
    tokens: set[str] = field(hash=False)
    patients: frozenset[str] = frozenset()
    patient_lookup: PatientLookup = field(default_factory=PatientLookup)

    @classmethod
    def from_cases(cls, cases: Iterable[RawCase], patients: Iterable[str], lookup: PatientLookup) -> Removal:
        case_list = list(cases)
        files = {path for case in case_list for path in (*case.images, case.mask) if path}
        numbered_slices = {
            path
            for path in files
            if strip_suffixes(path).isdigit() and len(strip_suffixes(path)) < 5 and _is_slice(case_list, path)
        }
        tokens = {strip_suffixes(path) for path in files - numbered_slices} | {case.name for case in case_list}
        return cls(frozenset(files), tokens, frozenset(patients), lookup)

    def is_hidden_path(self, path: str) -> bool:
        """Whether a file is somebody's who is hidden; `path` is relative, or a bare name from a table."""
        path = path.replace("\\", "/").removeprefix("./")
        patient = self.patient_lookup.find_patient(path)
        return (
            path in self.files
            or strip_suffixes(path) in self.tokens
            or (patient is not None and patient in self.patients)
        )

    def is_hidden_row(self, row: dict[str, Any]) -> bool:
        """Whether a row or record speaks of somebody who is hidden."""
        for key, value in row.items():
            if not isinstance(value, str) or not value:
                continue
            if key in self.patient_lookup.id_columns and (
                value in self.patients or strip_suffixes(value) in self.tokens
            ):
                return True
            if MEDICAL_SUFFIX.search(value.strip()) and self.is_hidden_path(value.strip()):
                return True
        return False


def _is_slice(cases: list[RawCase], path: str) -> bool:
    return any(len(case.images) > 1 and path in case.images for case in cases)


def write_subset(source: Path, target: Path, removal: Removal, keep: set[str]) -> tuple[list[str], list[str]]:
    """Write the tables of `source` to `target` without what `removal` takes.

    Tables come first: a row of a hidden patient may name further files, which then go too.

    Args:
        keep: files of cases, which are never opaque.

    Returns:
        The files that belong there as they are, and the opaque ones that are left out.
    """
    text_files, files, withheld = [], [], []
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name).relative_to(source).as_posix()
            lower = name.lower()
            if lower.endswith((".csv", ".tsv", ".json", ".jsonl", ".txt")) and path not in keep:
                text_files.append(path)
            elif lower.endswith(OPAQUE_SUFFIXES) and path not in keep:
                withheld.append(path)
            else:
                files.append(path)
    tables = dict.fromkeys(text_files, "")
    for path in tables:
        _learn_tokens(source / path, removal)
    unchanged = [
        path
        for path in tables
        if not removal.is_hidden_path(path) and not _write_filtered(source / path, target / path, removal)
    ]
    return [*unchanged, *(path for path in files if not removal.is_hidden_path(path))], withheld


def _learn_tokens(file: Path, removal: Removal) -> None:
    """Rows of hidden patients name more files of theirs, which no reader lists: other visits, excluded groups."""
    if not file.name.lower().endswith((".csv", ".tsv")):
        return
    for row in _read_table(file)[1]:
        if removal.is_hidden_row(row):
            ids = {value for key, value in row.items() if key in removal.patient_lookup.id_columns and value}
            names = {value for value in row.values() if isinstance(value, str) and MEDICAL_SUFFIX.search(value.strip())}
            removal.tokens.update(strip_suffixes(value) for value in ids | names if value not in removal.patients)
            removal.tokens.update(f"I{value}" for value in ids if value.isdigit())
            removal.tokens.update(value[1:] for value in ids if value[:1] == "I" and value[1:].isdigit())


def _read_table(file: Path) -> tuple[list[str], list[dict[str, str]], bool]:
    """Header, rows and whether every field is quoted."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            is_quoted = stream.readline().lstrip().startswith('"')
            stream.seek(0)
            reader = csv.DictReader(stream, delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
            header = list(reader.fieldnames or ())
            return (
                header,
                [{key: value or "" for key, value in row.items() if isinstance(key, str)} for row in reader],
                is_quoted,
            )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"The table {file} cannot be read, so that hidden rows cannot be taken out: {error}."
        ) from error


def _write_filtered(source: Path, target: Path, removal: Removal) -> bool:
    """One text file written without what is hidden; False where nothing in it is, so that it may stay as it is."""
    kind = source.suffix.lower()
    if kind in (".csv", ".tsv"):
        header, rows, is_quoted = _read_table(source)
        kept_rows = [row for row in rows if not removal.is_hidden_row(row)]
        if len(kept_rows) == len(rows):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(
                stream,
                header,
                quoting=csv.QUOTE_ALL if is_quoted else csv.QUOTE_MINIMAL,
                delimiter="\t" if kind == ".tsv" else ",",
            )
            writer.writeheader()
            writer.writerows(kept_rows)
        return True
    text = _read_text(source)
    if kind == ".json":
        try:
            value = json.loads(text)
        except ValueError as error:
            raise DataError(f"{source} is no JSON, so that hidden records cannot be taken out: {error}.") from error
        kept_value = _filter_json(value, removal)
        changed, new_text = bool(kept_value != value), json.dumps(kept_value, ensure_ascii=False, indent=1) + "\n"
    else:
        lines = text.splitlines(keepends=True)
        kept_lines = [line for line in lines if not _is_hidden_line(line, kind, removal)]
        changed, new_text = len(kept_lines) != len(lines), "".join(kept_lines)
    if changed:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(new_text, encoding="utf-8")
    return changed


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as text, so that hidden names cannot be taken out: {error}.") from error


def _is_hidden_line(line: str, kind: str, removal: Removal) -> bool:
    if kind == ".jsonl":
        try:
            return removal.is_hidden_row(json.loads(line))
        except (ValueError, AttributeError):
            return False
    return any(removal.is_hidden_path(word) for word in line.replace(",", " ").split() if MEDICAL_SUFFIX.search(word))


def _filter_json(value: Any, removal: Removal) -> Any:
    """A JSON value without records, names and keys of hidden files; counts called `num...` follow their lists."""
    if isinstance(value, list):
        return [_filter_json(item, removal) for item in value if not _is_hidden_item(item, removal)]
    if isinstance(value, dict):
        kept_items = {
            key: _filter_json(item, removal)
            for key, item in value.items()
            if not (MEDICAL_SUFFIX.search(key) and removal.is_hidden_path(key))
        }
        for key in kept_items:
            counted_list = kept_items.get(key.removeprefix("num").lower()) if key.startswith("num") else None
            if isinstance(kept_items[key], int) and isinstance(counted_list, list):
                kept_items[key] = len(counted_list)
        return kept_items
    return value


def _is_hidden_item(item: Any, removal: Removal) -> bool:
    if isinstance(item, str):
        return bool(MEDICAL_SUFFIX.search(item)) and removal.is_hidden_path(item)
    if not isinstance(item, dict):
        return False
    text_fields = {k: v for k, v in item.items() if isinstance(v, str)}
    return removal.is_hidden_row(text_fields) or any(
        isinstance(v, list) and v and all(_is_hidden_item(x, removal) for x in v) for v in item.values()
    )
