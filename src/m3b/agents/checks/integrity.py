"""Locking the test split, and noticing afterwards whether anything was tampered with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from m3b.data.index import LABELS, TEST, TRAIN, read_index
from m3b.errors import DataError

CLEAN = "clean"
INDEX_FILES = (TRAIN, TEST, LABELS)


def sha256(file: Path) -> str:
    """Hex digest of a file, or `missing`."""
    if not file.is_file():
        return "missing"
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def lock_index(work: Path, locked: Path) -> dict[str, str]:
    """Copy the accepted index out of the agents' reach and return its hashes by file name."""
    locked.mkdir(parents=True, exist_ok=True)
    for name in INDEX_FILES:
        target = locked / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work / name, target)
    return {name: sha256(locked / name) for name in INDEX_FILES}


def fingerprint(folder: Path) -> str:
    """A digest of names, sizes and change times of everything below a folder.

    The change time (ctime) is set by the kernel and cannot be put back by a script, so that even a write that
    restores size and modification time shows.
    """
    lines = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            try:
                stat = os.lstat(os.path.join(place, name))
            except FileNotFoundError:
                continue
            lines.append(f"{place}/{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}")
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def integrity(work: Path, locked: Path, hashes: dict[str, str], raw_before: str, raw_after: str) -> str:
    """`clean`, or everything that was found, joined by semicolons."""
    found = []
    for name in INDEX_FILES:
        if sha256(locked / name) != hashes.get(name):
            found.append(f"locked copy of {Path(name).name} changed")
        if sha256(work / name) != hashes.get(name):
            found.append(f"{Path(name).name} changed after it was locked")
    if raw_before != raw_after:
        found.append("raw data changed during the run")
    overlap = _overlap(work, locked)
    if overlap:
        found.append(f"{overlap} test images in the training index")
    return "; ".join(found) or CLEAN


def _overlap(work: Path, locked: Path) -> int:
    try:
        test = {record.key for record in read_index(locked).test}
        return sum(record.key in test for record in read_index(work).train)
    except DataError:
        return 0  # a file that is gone or broken is named already, by its hash


def save_hashes(locked: Path, hashes: dict[str, str], raw: str) -> None:
    """Keep the hashes beside the locked files, for a resumed run and for provenance."""
    text = json.dumps({"index": hashes, "raw_data": raw}, indent=1)
    (locked / "hashes.json").write_text(text, encoding="utf-8")
