"""Locking the test split, and noticing afterwards whether anything was tampered with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from m3b.data.index import LABELS, TEST, TRAIN, Mask, Record, read_records, write_records
from m3b.errors import DataError

CLEAN = "clean"
INDEX_FILES = (TRAIN, TEST, LABELS)
RAW = "data"
"""The folder of `work` in which the links to the raw data lie."""
TARGETS = "targets"
"""The folder of `locked` with masks of test cases."""
LOCKED = "locked/"
COPY = f"{LOCKED}{TARGETS}/"


def sha256(file: Path) -> str:
    """Hex digest of a file, or `missing`."""
    if not file.is_file():
        return "missing"
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(path: Path) -> str:
    """Hex digest of a file, or of the names and contents of all files below a folder; or `missing`."""
    if not path.is_dir():
        return sha256(path)
    lines = [f"{file.relative_to(path)} {sha256(file)}" for file in sorted(path.rglob("*")) if file.is_file()]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def lock_index(work: Path, locked: Path, task: str = "diagnosis") -> dict[str, str]:
    """Copy the accepted index out of the agents' reach and return hashes by file name.

    What the test cases rest on and a script of the run could change, since it is no raw data, is locked too: masks are
    copied to `locked/targets/`, and the locked `test.json` names these copies; images are hashed.

    Returns:
        Hashes of the three index files and of those masks and images, as they lie in `work`; and of what is different
        in `locked`, under names that start with `locked/`.
    """
    locked.mkdir(parents=True, exist_ok=True)
    for name in INDEX_FILES:
        target = locked / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work / name, target)
    hashes = {name: sha256(locked / name) for name in INDEX_FILES}
    try:
        test = read_records(locked / TEST, task)
    except DataError:
        return hashes  # of another task than was said; the check has refused it
    images = {path for record in test for path in record.files if _made(path)}
    masks = {path for record in test for path in record.targets if _made(path)}
    hashes |= {path: digest(work / path) for path in sorted(images | masks)}
    if masks:
        copies = _copy_targets(work, locked, sorted(masks))
        hashes |= {f"{COPY}{Path(copy).name}": digest(work / copy) for copy in copies.values()}
        records = [replace(record, mask=_moved(record.mask, copies)) for record in test]
        write_records(locked / TEST, records, task)
        hashes[f"{LOCKED}{TEST}"] = sha256(locked / TEST)
    return hashes


def _made(path: str) -> bool:
    """Whether a path names something that was made in the run; raw data is watched as a whole."""
    return path.split("/")[0] != RAW


def _copy_targets(work: Path, locked: Path, paths: Sequence[str]) -> dict[str, str]:
    """Where the copies lie, counted from `work` as the paths themselves are."""
    folder = locked / TARGETS
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copies = {}
    for number, path in enumerate(paths):
        copy = folder / f"{number:05d}_{Path(path).name}"
        if (work / path).is_dir():
            shutil.copytree(work / path, copy)
        else:
            shutil.copyfile(work / path, copy)
        copies[path] = os.path.relpath(copy, work)
    return copies


def _moved(mask: Mask | None, copies: Mapping[str, str]) -> Mask | None:
    def move(path: str) -> str:
        file, mark, item = path.partition("#")
        return f"{copies.get(file, file)}{mark}{item}"

    if mask is None or isinstance(mask, str):
        return mask and move(mask)
    if isinstance(mask, Mapping):
        return {name: move(path) for name, path in mask.items()}
    return tuple(map(move, mask))


def fingerprint(folder: Path, *, change_times: bool = True) -> str:
    """A digest of names, sizes and times of everything below a folder.

    Args:
        change_times: count the change times (ctime) too. The kernel sets them and no script can put them back, so that
            even a write that restores size and modification time shows; but a hard link to a file sets it as well,
            by whomever. Where the sandbox keeps scripts from writing to the data they are left out.
    """
    lines = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            try:
                stat = os.lstat(os.path.join(place, name))
            except FileNotFoundError:
                continue
            changed = f" {stat.st_ctime_ns}" if change_times else ""
            lines.append(f"{place}/{name} {stat.st_size} {stat.st_mtime_ns}{changed} {stat.st_ino}")
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def integrity(
    work: Path, locked: Path, hashes: dict[str, str], raw_before: str, raw_after: str, task: str = "diagnosis"
) -> str:
    """`clean`, or everything that was found, joined by semicolons."""
    found = []
    for name in INDEX_FILES:
        if sha256(locked / name) != hashes.get(f"{LOCKED}{name}", hashes.get(name)):
            found.append(f"locked copy of {Path(name).name} changed")
        if sha256(work / name) != hashes.get(name):
            found.append(f"{Path(name).name} changed after it was locked")
    found += _changed_files(work, locked, hashes)
    if raw_before != raw_after:
        found.append("raw data changed during the run")
    overlap = _overlap(work, locked, task)
    if overlap:
        found.append(f"{overlap} test images in the training index")
    return "; ".join(found) or CLEAN


def _changed_files(work: Path, locked: Path, hashes: Mapping[str, str]) -> list[str]:
    """Masks and images of test cases that are no longer what they were; of masks the copies count for the score."""
    made = {name: value for name, value in hashes.items() if name not in INDEX_FILES and not name.startswith(LOCKED)}
    changed = [name for name, value in made.items() if digest(work / name) != value]
    found = []
    if changed:
        some = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        found.append(f"{len(changed)} files of test cases changed after they were locked ({some})")
    kept = Counter(digest(copy) for copy in (locked / TARGETS).glob("*"))
    spoilt = Counter(value for name, value in hashes.items() if name.startswith(COPY)) - kept
    if spoilt:
        found.append(f"{spoilt.total()} locked masks changed")
    return found


def _overlap(work: Path, locked: Path, task: str) -> int:
    try:
        test = {path for record in read_records(locked / TEST, task) for path in _images(record, task)}
        return sum(any(path in test for path in _images(record, task)) for record in read_records(work / TRAIN, task))
    except DataError:
        return 0  # a file that is gone or broken is named already, by its hash


def _images(record: Record, task: str) -> tuple[str, ...]:
    return record.images if task == "report" else (record.key,)


def save_hashes(locked: Path, hashes: dict[str, str], raw: str) -> None:
    """Keep the hashes beside the locked files, for a resumed run and for provenance."""
    text = json.dumps({"index": hashes, "raw_data": raw}, indent=1)
    (locked / "hashes.json").write_text(text, encoding="utf-8")
