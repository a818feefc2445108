"""Locking the test split, and noticing afterwards whether anything was tampered with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from m3b import untrusted
from m3b.data import kinds
from m3b.data.index import LABELS, TEST, TRAIN, Record, read_records
from m3b.errors import DataError
from m3b.writing import write_text_atomically

INTEGRITY_CLEAN = "clean"
INDEX_FILES = (TRAIN, TEST, LABELS)
RAW_FOLDER = "data"
"""The folder of `work` in which the links to the raw data lie."""


def sha256_or_missing(root: Path, name: str) -> str:
    """Hex digest of a plain file below a folder, or `missing`."""
    try:
        return untrusted.hash_file(root, name)
    except OSError:
        return "missing"


def fingerprint_folder(folder: Path, *, change_times: bool = True) -> str:
    """A digest of names, sizes and times of everything below a folder.

    Args:
        change_times: count the change times (ctime) too. The kernel sets them and no script can put them back, so that
            even a write that restores size and modification time shows; but a hard link to a file sets it as well,
            by whomever. Where the sandbox keeps scripts from writing to the data they are left out.
    """
    lines = []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            try:
                stat = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue
            changed = f" {stat.st_ctime_ns}" if change_times else ""
            lines.append(f"{parent}/{name} {stat.st_size} {stat.st_mtime_ns}{changed} {stat.st_ino}")
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def check_integrity(
    work: Path,
    locked: Path,
    hashes: Mapping[str, str],
    raw_before: str,
    raw_after: str,
    task: str = "diagnosis",
    *,
    derived_digest: str | None = None,
) -> str:
    """`clean`, or everything that was found, joined by semicolons.

    Args:
        derived_digest: the digest, now, of the locked files that scripts made for the cases; None where there are none.
    """
    violations = [
        f"locked copy of {Path(name).name} changed"
        for name in INDEX_FILES
        if sha256_or_missing(locked, name) != hashes[name]
    ]
    for name in (TRAIN, LABELS):
        if sha256_or_missing(work, name) != hashes[f"work/{name}"]:
            violations.append(f"{Path(name).name} changed after it was locked")
    if hashes.get("made") != derived_digest:
        violations.append("locked images or masks changed")
    if raw_before != raw_after:
        violations.append("raw data changed during the run")
    overlap = _count_test_images_in_training(work, locked, task)
    if overlap:
        violations.append(f"{overlap} test images in the training index")
    return "; ".join(violations) or INTEGRITY_CLEAN


def _count_test_images_in_training(work: Path, locked: Path, task: str) -> int:
    try:
        test = {path for record in read_records(locked / TEST, task) for path in _image_paths_of(record, task)}
        training = [kinds.parse(item, task) for item in untrusted.read_json(work, TRAIN)]
    except (DataError, OSError, ValueError, TypeError):
        return 0  # a file that is gone or broken is named already, by its hash
    return sum(any(path in test for path in _image_paths_of(record, task)) for record in training)


def _image_paths_of(record: Record, task: str) -> tuple[str, ...]:
    return record.images if kinds.separate(record, task) else (record.key,)


def save_hashes(locked: Path, hashes: Mapping[str, str], raw_fingerprint: str) -> None:
    """Keep the hashes beside the locked files, for a resumed run and for provenance."""
    text = json.dumps({"index": dict(hashes), "raw_data": raw_fingerprint}, indent=1)
    write_text_atomically(locked / "hashes.json", text)
