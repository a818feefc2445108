"""Copy of a data folder without some patients: files are selected by patient, rows and records by the names in them."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.bench.datasets import RawCase
from m3b.errors import DataError

MEDICAL_SUFFIX = re.compile(
    r"((\.dcm)?\.(png|jpe?g)|\.nii(\.gz)?|\.pt|\.pck|\.xml|\.dcm|\.json|\.csv|\.mha|\.mhd|\.nrrd|\.npy)$", re.I
)


def strip_suffixes(name: str) -> str:
    """Return the last part of a path without the suffixes of medical files and without the `._` of macOS."""
    return MEDICAL_SUFFIX.sub("", PurePosixPath(name.replace("\\", "/")).name.removeprefix("._"))


@dataclass(frozen=True)
class PatientLookup:
    """How the patient of a file or row is found in one data set.

    Args:
        find_patient: relative path of a file -> patient, as named by the reader of the data set, or None if unknown.
        id_columns: columns (or JSON keys) with a patient, or with a case without file suffix.
    """

    find_patient: Callable[[str], str | None] = lambda path: None
    id_columns: tuple[str, ...] = ()


def _last_number(path: str) -> str | None:
    numbers = re.findall(r"\d+", strip_suffixes(path))
    return str(numbers[-1]) if numbers else None


def _match_stem(pattern: str, *, skip: str = "") -> Callable[[str], str | None]:
    """Return a lookup: the first group of `pattern` in the stem, or None for paths in which `skip` matches."""

    def find_patient(path: str) -> str | None:
        if skip and re.search(skip, path):
            return None
        match = re.match(pattern, strip_suffixes(path))
        return str(match[1]) if match else None

    return find_patient


def _match_last_number(*, skip: str) -> Callable[[str], str | None]:
    return lambda path: None if re.search(skip, path) else _last_number(path)


def _find_ccccii_patient(path: str) -> str | None:
    match = re.match(r"(?:.*/)?(?:CP|NCP|Normal)/([^/]+)/", path)
    return str(match[1]) if match else None


def _find_covid_patient(path: str) -> str | None:
    match = re.match(r"(coronacases|radiopaedia)(?:_org)?_(?:covid-19-pneumonia-)?(\d+)", strip_suffixes(path))
    return f"{match[1]}_{match[2]}" if match else None


def _find_brats_patient(path: str) -> str | None:
    from m3b.bench.datasets.radgenome import patient_of

    return patient_of(strip_suffixes(path))


PATIENT_LOOKUPS: Mapping[str, PatientLookup] = {
    "ADNI": PatientLookup(id_columns=("Subject", "Image Data ID")),
    "KneeMRI": PatientLookup(_match_stem(r"(\d+)-\d+$"), ("examId",)),
    "CC-CCII": PatientLookup(_find_ccccii_patient, ("patient_id",)),
    "CT-Kidney": PatientLookup(id_columns=("image_id",)),
    "BTCV": PatientLookup(_match_last_number(skip=r"(^|/)Testing/|\.(json|csv|md)$")),
    "VerSe": PatientLookup(_match_stem(r"(sub-[A-Za-z0-9]+)"), ("participant_id", "subject")),
    "OASIS": PatientLookup(
        lambda path: _last_number(strip_suffixes(path).removesuffix("_0000")) if ".nii" in path else None
    ),
    "COVID19": PatientLookup(_find_covid_patient),
    "INSTANCE22": PatientLookup(_match_last_number(skip=r"(^|/)evaluation/|\.(json|csv|md)$")),
    "MSD-Pancreas": PatientLookup(_match_stem(r"pancreas_(\d+)", skip=r"(^|/)imagesTs/")),
    "ChestX-Det10": PatientLookup(lambda path: strip_suffixes(path) if path.endswith(".png") else None),
    "CT-RATE": PatientLookup(_match_stem(r"((?:train|valid)_\d+)(?:_|$)")),
    "RadGenome-BrainMRI": PatientLookup(lambda path: _find_brats_patient(path) if ".nii" in path else None),
    "IU-Xray": PatientLookup(_match_stem(r"(?:CXR)?(\d+)(?:_|$)"), ("uid",)),
}
"""Name of a data set -> its patient lookup. In data sets without patients, each file or series is a patient (see their
readers)."""


TEXT_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".list", ".lst")
"""Tables and lists that are written again without hidden rows, lines and records."""
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
"""Files that may contain data of any patient and are not opened here: they are left out of the agent's copy."""


@dataclass(frozen=True)
class Removal:
    """What is removed from the copy.

    Args:
        files: relative paths of hidden files.
        tokens: names of hidden cases and stems of hidden files.
        patients: the hidden patients, as named by the reader of the data set.
    """

    files: frozenset[str]
    tokens: set[str] = field(hash=False)
    patients: frozenset[str] = frozenset()
    patient_lookup: PatientLookup = field(default_factory=PatientLookup)

    @classmethod
    def from_cases(cls, cases: Iterable[RawCase], patients: Iterable[str], lookup: PatientLookup) -> Removal:
        """Return the removal of these cases and patients."""
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
        """Return whether a file belongs to a hidden patient; `path` is relative, or a file name from a table."""
        path = path.replace("\\", "/").removeprefix("./")
        patient = self.patient_lookup.find_patient(path)
        return (
            path in self.files
            or strip_suffixes(path) in self.tokens
            or (patient is not None and patient in self.patients)
        )

    def is_hidden_row(self, row: dict[str, Any]) -> bool:
        """Return whether a row or record names a hidden patient, case or file."""
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

    def names_file(self, word: str) -> bool:
        """Return whether a word of a text file may be the name of a file."""
        return bool(MEDICAL_SUFFIX.search(word))

    def learn_row(self, row: dict[str, Any]) -> None:
        """Add the files that a row of a hidden patient names: no reader lists their other visits and excluded groups."""
        ids = {value for key, value in row.items() if key in self.patient_lookup.id_columns and value}
        names = {value for value in row.values() if isinstance(value, str) and MEDICAL_SUFFIX.search(value.strip())}
        self.tokens.update(strip_suffixes(value) for value in ids | names if value not in self.patients)
        self.tokens.update(f"I{value}" for value in ids if value.isdigit())
        self.tokens.update(value[1:] for value in ids if value[:1] == "I" and value[1:].isdigit())


def _is_slice(cases: list[RawCase], path: str) -> bool:
    return any(len(case.images) > 1 and path in case.images for case in cases)


def write_subset(source: Path, target: Path, removal: Removal, keep: set[str]) -> tuple[list[str], list[str]]:
    """Write the tables of `source` to `target` without the rows and records of `removal`.

    Tables are read first: a row of a hidden patient may name further files, which are then removed too.

    Args:
        keep: files of cases, which are never treated as tables or opaque files.

    Returns:
        The files that belong into the copy unchanged, and the opaque files that are left out.
    """
    text_files, files, withheld = [], [], []
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name).relative_to(source).as_posix()
            lower = name.lower()
            if lower.endswith(TEXT_SUFFIXES) and path not in keep:
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
    """Add the files that a table names for hidden patients."""
    if not file.name.lower().endswith((".csv", ".tsv")):
        return
    for row in read_table(file)[1]:
        if removal.is_hidden_row(row):
            removal.learn_row(row)


def read_table(file: Path) -> tuple[list[str], list[dict[str, str]], bool]:
    """Return the header, the rows, and whether fields are quoted."""
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
        raise DataError(f"The table {file} cannot be read, so hidden rows cannot be removed: {error}.") from error


def _write_filtered(source: Path, target: Path, removal: Removal) -> bool:
    """Write one text file without hidden content; return False, and write nothing, if it has no hidden content."""
    kind = source.suffix.lower()
    if kind in (".csv", ".tsv"):
        header, rows, is_quoted = read_table(source)
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
            raise DataError(f"{source} is not JSON, so hidden records cannot be removed: {error}.") from error
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
        raise DataError(f"{file} cannot be read as text, so hidden names cannot be removed: {error}.") from error


def _is_hidden_line(line: str, kind: str, removal: Removal) -> bool:
    if kind == ".jsonl":
        try:
            return removal.is_hidden_row(json.loads(line))
        except (ValueError, AttributeError):
            return False
    return any(removal.is_hidden_path(word) for word in line.replace(",", " ").split() if removal.names_file(word))


def _filter_json(value: Any, removal: Removal) -> Any:
    """Return a JSON value without records, names and keys of hidden files; counts named `num...` are updated."""
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
        return removal.names_file(item) and removal.is_hidden_path(item)
    if not isinstance(item, dict):
        return False
    text_fields = {k: v for k, v in item.items() if isinstance(v, str)}
    return removal.is_hidden_row(text_fields) or any(
        isinstance(v, list) and v and all(_is_hidden_item(x, removal) for x in v) for v in item.values()
    )
