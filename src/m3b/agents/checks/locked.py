"""An accepted index in `locked/`: moved there with all that was made for its cases, hashed, and what training gets of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from m3b.agents.checks.integrity import INDEX_FILES, RAW_FOLDER
from m3b.data.index import LABELS, TRAIN, Index, Record, read_index
from m3b.data.kinds import to_json
from m3b.data.records import UNKNOWN_PATIENT
from m3b.untrusted import hash_file, is_folder, remove_tree, walk
from m3b.writing import sync_folder

RESERVED_NAMES = ("model", "raw.json", "hashes.json", "scores.json", "predictions.json", "data_audit.json", RAW_FOLDER)
"""Names in `locked/` that m3b uses itself."""


def list_derived_files(records: Sequence[Record]) -> list[str]:
    """What of the records' files was made in the run, by path below `work`; the rest is raw data."""
    paths = {path for record in records for path in (*record.files, *record.targets)}
    return sorted(path for path in paths if path.split("/")[0] != RAW_FOLDER)


def lock_index(frozen: Path, locked: Path, task: str) -> dict[str, str]:
    """Move an accepted hand-over to `locked`, where m3b reads it from now on, and return its hashes.

    Returns:
        Of the index files, by name; of those that training gets, under `work/`; and of all files that scripts made for
        the cases together, under `made`.
    """
    for entry in locked.iterdir():
        if entry.name not in RESERVED_NAMES or entry.name == RAW_FOLDER:
            remove_tree(entry)
    for entry in frozen.iterdir():
        entry.rename(locked / entry.name)
    frozen.rmdir()
    for name in INDEX_FILES:
        _sync_file(locked / name)
    sync_folder(locked)
    index = read_index(locked, task)
    hashes = {name: hash_file(locked, name) for name in INDEX_FILES}
    hashes[f"work/{TRAIN}"] = hashlib.sha256(serialize_training_index(index)).hexdigest()
    hashes[f"work/{LABELS}"] = hashes[LABELS]
    if derived_files := list_derived_files(index.records):
        hashes["made"] = digest_derived_files(locked, derived_files)
    return hashes


def _sync_file(file: Path) -> None:
    """Have a file on the disk before the journal says that it is locked."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def digest_derived_files(locked: Path, paths: Sequence[str]) -> str:
    """One digest of all files that scripts made for the cases, as they are locked; links and what is gone count too."""
    lines = []
    for path in paths:
        names = [path]
        if is_folder(locked, path):
            names = [f"{path}/{entry.name}" for entry in walk(locked, path) if entry.kind != "folder"]
        for name in sorted(names):
            try:
                lines.append(f"{name} {hash_file(locked, name)}")
            except OSError as error:
                lines.append(f"{name} {error.strerror}")
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def serialize_training_index(index: Index) -> bytes:
    """`train.json` as those get it who train: patients under invented names, which sort as the true ones do, unknown ones
    stay unknown; without attributes."""
    names = sorted({record.patient for record in index.train})
    width = max(4, len(str(len(names))))
    unknown_patients = {record.patient for record in index.train if not record.patient_known}
    pseudonym = {
        name: f"{UNKNOWN_PATIENT if name in unknown_patients else 'p'}{number:0{width}d}"
        for number, name in enumerate(names, start=1)
    }
    records = [
        to_json(replace(record, patient=pseudonym[record.patient], attributes={}), index.task) for record in index.train
    ]
    return json.dumps(records, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")
