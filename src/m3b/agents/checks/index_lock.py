"""The locked index: freezing, locking, hashes, and the part of the index that training gets."""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from m3b.data import kinds
from m3b.data.index import (
    LABELS,
    TEST,
    TRAIN,
    UNLABELLED,
    Index,
    Mask,
    Record,
    RecordFile,
    format_records,
    iterate_items,
    read_index,
    read_records,
    read_unlabelled,
    write_records,
    write_unlabelled,
)
from m3b.data.records import UNKNOWN_PATIENT, relocated
from m3b.data.schemas import json_schema
from m3b.data.sides import sides
from m3b.errors import DataError
from m3b.isolation import untrusted
from m3b.isolation.untrusted import UnsafePathError, hash_file, is_folder, read_blocks, remove_tree, walk
from m3b.isolation.untrusted.trees import copy_file
from m3b.writing import sync_folder, write_text_atomically

MAX_INDEX_BYTES = 2**30


def freeze_index(work: Path, target: Path, raw_folders: Mapping[str, Path], task: str) -> list[str]:
    """Copy an index and its derived files to `target`, with links to the raw data below `target/data`.

    Links are not followed, except those into the raw data, whose content is copied.

    Args:
        raw_folders: name in the records -> folder of raw data.

    Returns:
        Sentences on the keys of the index files that were excluded.

    Raises:
        DataError: a file cannot be copied: a link to another place, a pipe, a name that m3b uses itself.
    """
    remove_tree(target)
    (target / RAW_FOLDER).mkdir(parents=True)
    for name, folder in raw_folders.items():
        (target / RAW_FOLDER / name).symlink_to(folder, target_is_directory=True)
    notes: list[str] = []
    for name in (*INDEX_FILES, UNLABELLED):
        try:
            _copy_index_file(work, target, name)
        except FileNotFoundError:
            continue  # the check reports that it is missing; most indexes have no unlabelled part
        except OSError as error:
            raise DataError(f"{name} cannot be taken: {error.strerror}.") from error
    try:
        index = read_index(target, task)
    except DataError:
        return notes  # the check reports what is wrong
    for name in (TRAIN, TEST):
        notes += _describe_unknown_keys(target, name, task)
    index = replace(
        index,
        train=_normalize_paths(index.train),
        test=_normalize_paths(index.test),
        unlabelled=_normalize_paths(index.unlabelled),
    )
    write_index(target, index)
    for path in list_derived_files(index.all_images):
        _copy_derived(work, path, target, [Path(os.path.realpath(folder)) for folder in raw_folders.values()])
    return notes


def _copy_index_file(work: Path, target: Path, name: str) -> None:
    blocks = read_blocks(work, name, MAX_INDEX_BYTES)
    first = next(blocks, b"")  # a missing file is copied to nowhere
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    with (target / name).open("wb") as copy:
        copy.writelines(chain([first], blocks))


def _describe_unknown_keys(folder: Path, name: str, task: str) -> list[str]:
    known_keys = set(json_schema(task)["items"]["properties"])
    unknown_keys = sorted({key for item, _ in iterate_items(folder, name) for key in item} - known_keys)
    if not unknown_keys:
        return []
    key_list = ", ".join(repr(key[:40]) for key in unknown_keys[:5]) + (", ..." if len(unknown_keys) > 5 else "")
    return [f"{name}: the keys {key_list} are not part of the index and were left out."]


def write_index(folder: Path, index: Index) -> None:
    """Write the index files, with the keys of the schema only."""
    write_records(folder / TRAIN, index.train, index.task)
    write_records(folder / TEST, index.test, index.task)
    write_unlabelled(folder, index.unlabelled, index.task)
    (folder / LABELS).write_text(json.dumps(index.values, indent=1, ensure_ascii=False), encoding="utf-8")


def _normalize_paths(records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the records with normalized paths, without `./` and `//`."""

    def normalize(path: str) -> str:
        file, mark, item = path.partition("#")
        parts = "/".join(part for part in file.split("/") if part not in ("", "."))
        normalized = f"{'/' if file.startswith('/') else ''}{parts}{mark}{item}"
        return path if normalized == path else normalized

    def normalize_mask(mask: Mask | None) -> Mask | None:
        if mask is None or isinstance(mask, str):
            return mask and normalize(mask)
        if isinstance(mask, Mapping):
            return {name: normalize(path) for name, path in mask.items()}
        return tuple(map(normalize, mask))

    def normalize_record(record: Record) -> Record:
        image, mask = relocated(record.image, normalize), normalize_mask(record.mask)
        ignored = record.ignored and normalize(record.ignored)
        if (image, mask, ignored) == (record.image, record.mask, record.ignored):
            return record
        return replace(record, image=image, mask=mask, ignored=ignored)

    return tuple(map(normalize_record, records))


def _copy_derived(work: Path, path: str, target: Path, raw_folders: Sequence[Path]) -> None:
    """Copy a file or folder that a record names; the check reports a missing one."""
    if path.startswith("/") or ".." in path.split("/"):
        return  # the check refuses it
    if path.split("/")[0] in RESERVED_NAMES:
        raise DataError(f"{path!r}: {path.split('/')[0]} is a name that m3b uses; write below Datapath/.")
    try:
        root, name = _locate_source(work, path, raw_folders)
        if is_folder(root, name):
            for entry in walk(root, name):
                if entry.kind != "folder":
                    _copy_with_sidecars(work, f"{path}/{entry.name}", target, raw_folders)
        else:
            _copy_with_sidecars(work, path, target, raw_folders)
    except FileNotFoundError:
        return
    except UnsafePathError as error:
        raise DataError(
            f"{path!r} is a link to somewhere else, or no plain file ({error.strerror}); name the file in data/<name>/, "
            "or write a copy."
        ) from error


def _copy_with_sidecars(work: Path, path: str, target: Path, raw_folders: Sequence[Path]) -> None:
    root, name = _locate_source(work, path, raw_folders)
    copy_file(root, name, target, path)
    parent = path.rpartition("/")[0]
    # read from the copy, which nobody can change any more
    for sidecar in sides(target / path, beside=(root / name).parent):
        copy_file(root, Path(name).parent / sidecar, target, f"{parent}/{sidecar}" if parent else sidecar)


def _locate_source(work: Path, path: str, raw_folders: Sequence[Path]) -> tuple[Path, str | Path]:
    """Return (root, path) of the content: in `work` under this path, or in the raw data that a link leads to."""
    real = Path(os.path.realpath(work / path))
    for folder in raw_folders:
        if real.is_relative_to(folder):
            return folder, real.relative_to(folder)
    return work, path


INTEGRITY_CLEAN = "clean"
INDEX_FILES = (TRAIN, TEST, LABELS)
"""Files that each index has."""
RAW_FOLDER = "data"
SITE = "site"
"""The attribute of a case that training knows, so that its folds can be sites."""
"""Folder of `work` with the links to the raw data."""


def list_index_files(folder: Path) -> tuple[str, ...]:
    """Return the files of the index in a folder; those of the unlabelled part only if there is one."""
    return (*INDEX_FILES, *([UNLABELLED] if (folder / UNLABELLED).is_file() else []))


def sha256_or_missing(root: Path, name: str) -> str:
    """Return the hex digest of a plain file below a folder, or `missing`."""
    try:
        return untrusted.hash_file(root, name)
    except OSError:
        return "missing"


@dataclass(frozen=True)
class RawFingerprint:
    """The fingerprint of the raw data before any script ran.

    Args:
        fingerprint: '' if the data is not on this machine.
        change_times: whether it covers the change times of the files. It does if scripts are not prevented from writing
            to the raw data, since they could restore everything else.
    """

    fingerprint: str = ""
    change_times: bool = False


def fingerprint_folder(folder: Path, *, change_times: bool = True) -> str:
    """Return a digest of names, sizes and times of everything below a folder.

    Args:
        change_times: include the change times (ctime). The kernel sets them and no script can reset them, so even a
            write that restores size and modification time is detected. A hard link to a file changes them too, whoever
            makes it, so they are not included if the sandbox keeps scripts from writing to the data.
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
    """Return `clean`, or all violations joined by semicolons.

    Args:
        derived_digest: current digest of the locked derived files; None if there are none.
    """
    violations = [
        f"locked copy of {Path(name).name} changed"
        for name in (*INDEX_FILES, UNLABELLED)
        if sha256_or_missing(locked, name) != hashes.get(name, "missing")
    ]
    for name in (TRAIN, LABELS, UNLABELLED):
        if sha256_or_missing(work, name) != hashes.get(f"work/{name}", "missing"):
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
        training = (kinds.parse(item, task) for item, _ in iterate_items(work, TRAIN))
        given_images = chain(training, read_unlabelled(work, task, ()))
        return sum(any(path in test for path in _image_paths_of(record, task)) for record in given_images)
    except (DataError, OSError, ValueError, TypeError):
        return 0  # a missing or broken file is already reported by its hash


def _image_paths_of(record: Record, task: str) -> tuple[str, ...]:
    return record.images if kinds.separate(record, task) else (record.key,)


def save_hashes(locked: Path, hashes: Mapping[str, str], raw_fingerprint: str) -> None:
    """Store the hashes next to the locked files, for a resumed run and for provenance."""
    text = json.dumps({"index": dict(hashes), "raw_data": raw_fingerprint}, indent=1)
    write_text_atomically(locked / "hashes.json", text)


RESERVED_NAMES = (
    "model",
    "raw.json",
    "hashes.json",
    "scores.json",
    "predictions.json",
    "answers",
    "candidate",
    "data_audit.json",
    RAW_FOLDER,
)
"""Names in `locked/` that are reserved for m3b."""


def list_derived_files(records: Iterable[Record]) -> list[str]:
    """Return the derived files of the records, as paths below `work`; all other files are raw data."""
    paths = (path for record in records for path in (*record.files, *record.targets))
    return sorted({path for path in paths if path.split("/")[0] != RAW_FOLDER})


def lock_index(frozen: Path, locked: Path, task: str) -> dict[str, str]:
    """Move an accepted frozen index to `locked`, where m3b reads it from now on.

    Returns:
        The hashes: of the index files by name, of the files that training gets under `work/`, and of all derived files
        together under `made`.
    """
    for entry in locked.iterdir():
        if entry.name not in RESERVED_NAMES or entry.name == RAW_FOLDER:
            remove_tree(entry)
    for entry in frozen.iterdir():
        entry.rename(locked / entry.name)
    frozen.rmdir()
    names = list_index_files(locked)
    for name in names:
        _sync_file(locked / name)
    sync_folder(locked)
    train, test = RecordFile(locked, TRAIN, task), RecordFile(locked, TEST, task)
    unlabelled = RecordFile(locked, UNLABELLED, task, labelled=False)
    hashes = {name: hash_file(locked, name) for name in names}
    for name, pieces in _serialize_training_records(train, unlabelled, task).items():
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        hashes[f"work/{name}"] = digest.hexdigest()
    hashes[f"work/{LABELS}"] = hashes[LABELS]
    if derived_files := list_derived_files(chain(train, test, unlabelled)):
        hashes["made"] = digest_derived_files(locked, derived_files)
    return hashes


def _sync_file(file: Path) -> None:
    """Flush a file to the disk before the journal says that it is locked."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def digest_derived_files(locked: Path, paths: Sequence[str]) -> str:
    """Return one digest of all locked derived files; links and missing files are included by their error."""
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


def list_site_codes(sites: Sequence[str]) -> dict[str, str]:
    """Return the name by which training knows a site -> its true name."""
    names = sorted(set(sites))
    return {f"site{number:0{len(str(len(names)))}d}": name for number, name in enumerate(names, start=1)}


def serialize_training_index(index: Index) -> dict[str, Iterator[bytes]]:
    """Return `train.json` for training, and `unlabelled.json` if the index has this part: with invented names of patients and sites,
    and without other attributes.

    The invented names sort like the true ones; unknown patients remain unknown.

    Returns:
        Name of the file -> its content in pieces, a record each.
    """
    return _serialize_training_records(index.train, index.unlabelled, index.task)


def _serialize_training_records(
    train: Iterable[Record], unlabelled: Iterable[Record], task: str
) -> dict[str, Iterator[bytes]]:
    """Return what `serialize_training_index` returns, of records that can be iterated more than once."""
    patients, sites = set[str](), set[str]()
    for record in train:
        patients.add(record.patient)
        sites.update(filter(None, [record.attributes.get(SITE)]))
    has_unlabelled = False
    for record in unlabelled:
        patients.add(record.patient)
        has_unlabelled = True
    names = sorted(patients)
    width = max(4, len(str(len(names))))

    def make_pseudonym(record: Record) -> str:
        prefix = "p" if record.patient_known else UNKNOWN_PATIENT
        return f"{prefix}{bisect_left(names, record.patient) + 1:0{width}d}"

    site_names = {name: code for code, name in list_site_codes(list(sites)).items()}

    def serialize(records: Iterable[Record], *, labelled: bool) -> Iterator[bytes]:
        renamed = (
            replace(
                record,
                patient=make_pseudonym(record),
                attributes={SITE: site_names[record.attributes[SITE]]}
                if labelled and record.attributes.get(SITE)
                else {},
            )
            for record in records
        )
        for text in format_records(renamed, task, labelled=labelled):
            yield text.encode("utf-8", "surrogatepass")

    files = {TRAIN: serialize(train, labelled=True)}
    return files | ({UNLABELLED: serialize(unlabelled, labelled=False)} if has_unlabelled else {})
