"""Shared parts of the data set readers: listing files, tables, JSON, collecting cases, errors of broken layouts."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.bench.datasets.definitions import RawCase, RawDataset
from m3b.errors import DataError

MAX_MISSING = 0.5
"""Maximum share of listed cases without files; with more, the data set is an incomplete download."""

csv.field_size_limit(10_000_000)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares numbers by value: `2.png` before `10.png`."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]


def is_junk(name: str) -> bool:
    """Return whether a file is left by an operating system: `.DS_Store`, `._x.nii.gz`, `__MACOSX`, `Thumbs.db`."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def describe_contents(folder: Path, limit: int = 8) -> str:
    """Return the content of a folder in a few words, for error messages."""
    try:
        names = sorted((entry.name for entry in folder.iterdir() if not is_junk(entry.name)), key=natural_key)
    except OSError as error:
        return f"it cannot be listed: {error.strerror}"
    rest_text = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"it holds {', '.join(names[:limit])}{rest_text}" if names else "it is empty"


def require_entries(folder: Path, *names: str, description: str) -> None:
    """Check that a folder contains all `names`.

    Raises:
        DataError: a name is missing; the message says which, and what the folder contains.
    """
    missing_names = [name for name in names if not (folder / name).exists()]
    if missing_names:
        raise DataError(
            f"{folder} is not {description}: {', '.join(missing_names)} missing; {describe_contents(folder)}."
        )


def list_files(folder: Path, *suffixes: str) -> list[Path]:
    """Return the files with one of the suffixes (lower case, with dots) in natural order, without junk."""
    if not folder.is_dir():
        return []
    matches = [file for file in folder.iterdir() if not is_junk(file.name) and file.name.lower().endswith(suffixes)]
    return sorted((file for file in matches if file.is_file()), key=lambda file: natural_key(file.name))


def list_folders(folder: Path) -> list[Path]:
    """Return the folders inside `folder` in natural order, without junk."""
    subfolders = [entry for entry in folder.iterdir() if entry.is_dir() and not is_junk(entry.name)]
    return sorted(subfolders, key=lambda entry: natural_key(entry.name))


def get_only_file(folder: Path, suffix: str, description: str) -> Path:
    """Return the only file with a suffix.

    Raises:
        DataError: there is none, or several.
    """
    matches = list_files(folder, suffix)
    if len(matches) != 1:
        names_text = ", ".join(file.name for file in matches[:5]) or describe_contents(folder)
        raise DataError(
            f"{folder} must contain exactly one {suffix} file with {description}; found {len(matches)}: {names_text}."
        )
    return matches[0]


def read_rows(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a header, all values as text.

    Raises:
        DataError: the file cannot be read, or a column is missing.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            missing_columns = [name for name in columns if name not in header]
            if missing_columns:
                raise DataError(
                    f"{file} has no column {', '.join(missing_columns)}; its columns are {', '.join(header)}."
                )
            return [
                {key: (value or "").strip() for key, value in row.items() if isinstance(key, str)} for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"The table {file} cannot be read: {error}.") from error


def read_json(file: Path, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """Read a JSON file whose top level is a list or an object.

    Raises:
        DataError: the file cannot be read, or its top level is of another type.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}.") from error
    if not isinstance(value, kind):
        raise DataError(
            f"{file} must contain a JSON {'list' if kind is list else 'object'}, not {type(value).__name__}."
        )
    return value


def resolve_inside(folder: Path, path: str, source: Path) -> str:
    """Return a path from a list of the data set in normal form; it must stay inside the folder of the data set.

    Raises:
        DataError: the path is absolute or leads out of the folder.
    """
    normalized = PurePosixPath(path.replace("\\", "/"))
    if not path or normalized.is_absolute() or ".." in normalized.parts:
        raise DataError(f"{source} names {path!r}, which is not inside {folder}. Paths must be relative to it.")
    return normalized.as_posix()


def relative_path(folder: Path, file: Path) -> str:
    """Return `file` relative to the folder of the data set, with forward slashes."""
    return file.relative_to(folder).as_posix()


@dataclass
class CaseCollector:
    """Collects the cases and exclusions of a data set; `finish` checks that the data set is complete."""

    folder: Path
    name: str
    layout: str
    cases: list[RawCase] = field(default_factory=list)
    exclusions: dict[str, list[str]] = field(default_factory=dict)
    missing: int = 0

    def exclude(self, reason: str, case_name: str, *, missing: bool = False) -> None:
        """Exclude a case; `missing` means that its file does not exist."""
        self.exclusions.setdefault(reason, []).append(case_name)
        self.missing += missing

    def finish(self) -> RawDataset:
        """Return the data set.

        Raises:
            DataError: there is no case, two cases have the same name, or most of the listed files are missing.
        """
        notes = tuple(
            f"{len(excluded)} {reason}: {_format_few(excluded)}" for reason, excluded in self.exclusions.items()
        )
        exclusion_text = f" Left out: {'; '.join(notes)}." if notes else ""
        if not self.cases:
            raise DataError(
                f"No case of {self.name} was found in {self.folder}; {describe_contents(self.folder)}.{exclusion_text}"
            )
        if self.missing > MAX_MISSING * (self.missing + len(self.cases)):
            raise DataError(
                f"{self.folder} lists {self.missing + len(self.cases)} cases of {self.name}, but {self.missing} of them"
                f" have no file. Is the download complete?{exclusion_text}"
            )
        names = [case.name for case in self.cases]
        duplicates = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if duplicates:
            raise DataError(f"{self.folder} contains several cases of the same name: {_format_few(duplicates)}.")
        return RawDataset(tuple(self.cases), self.layout, notes)


def _format_few(names: Iterable[str], limit: int = 3) -> str:
    name_list = list(names)
    return ", ".join(name_list[:limit]) + (f" and {len(name_list) - limit} more" if len(name_list) > limit else "")
