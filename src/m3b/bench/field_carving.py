"""The carve-out of a field set: hidden patients are removed from a folder whose layout no trusted reader knows.

The reference reading is the user's manifest or the one that m3b proposes for the whole folder; it counts only if it is as
`EXPECTED.json` says. It lists the files, masks and targets of every case, so that hidden patients can be chosen. The agent's
copy lacks the files of hidden patients, folders that hold only such files, files with the same content, and the rows, lines
and records of tables that name them. If a set cannot be divided, nothing is hidden, and only its reading is judged.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.bench.carve_out import (
    AGENT_FOLDER,
    CARVE_OUT_FILE,
    CARVING_TIMEOUT_S,
    HIDDEN_TEST_SHARE,
    choose_patients,
    link_or_copy,
)
from m3b.bench.datasets import RawCase
from m3b.bench.field_sets import FieldSet, extract_groups, find_differences
from m3b.bench.subset import Removal, write_subset
from m3b.cleanup import undo_on_error
from m3b.data.index import TEST, TRAIN, Index, Record, read_index, write_records
from m3b.errors import DataError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader
from m3b.isolation.untrusted import TemporaryFolder
from m3b.writing import write_text_atomically

REFERENCE_FOLDER, DATA_PREFIX = "reference", "data/data/"
WORKBOOK_SUFFIXES = (".xlsx", ".xls", ".ods")
"""Tables that are not rewritten: those of a field set are copied whole, and named in `hidden.json`."""
MIN_ID_SHARE = 0.5
"""Least share of the values of a column that must name cases or patients for it to be a column of identifiers."""
_SUFFIXES = re.compile(r"(\.[A-Za-z][A-Za-z0-9]{0,4}){1,2}$")


@dataclass(frozen=True)
class FieldCarveOut:
    """The carve-out of a field set on disk.

    Args:
        folder: contains `agent/NAME/`, `reference/` and `hidden.json`.
        source: the data itself, to which `reference/data/data` leads.
        task, metric: of the reference reading; empty if nothing is hidden.
        hidden: number of hidden cases, which are the test part of the index in `reference/`; the other cases are its training part.
        no_exam: why nothing is hidden; empty if something is.
        whole_tables: tables that still name hidden patients, because they are not rewritten.
        withheld: files that were left out of the agent's copy because they may contain data of any patient.
    """

    folder: Path
    name: str
    source: Path
    task: str = ""
    metric: str = ""
    hidden: int = 0
    hidden_patients: int = 0
    kept: int = 0
    no_exam: str = ""
    whole_tables: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    seed: int = 0

    @property
    def agent_folder(self) -> Path:
        return self.folder / AGENT_FOLDER / self.name

    @property
    def reference_folder(self) -> Path:
        return self.folder / REFERENCE_FOLDER

    def save(self) -> None:
        """Write `hidden.json`, the last step of a carve-out."""
        raw = {**asdict(self), "folder": ".", "source": str(self.source)}
        write_text_atomically(self.folder / CARVE_OUT_FILE, json.dumps(raw, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, folder: Path) -> FieldCarveOut:
        """Load an existing carve-out.

        Raises:
            DataError: there is none, or its `hidden.json` is broken.
        """
        file = folder / CARVE_OUT_FILE
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            lists = {key: tuple(raw[key]) for key in ("whole_tables", "withheld")}
            return cls(**{**raw, **lists, "folder": folder, "source": Path(raw["source"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is not a carve-out: {error}. Delete its folder and try again.") from error


def carve_field_set(
    field_set: FieldSet, folder: Path, *, share: float = HIDDEN_TEST_SHARE, seed: int = 0
) -> FieldCarveOut:
    """Make the agent's copy and the exam of a field set below `folder`; load them if they are there.

    Raises:
        DataError: data of a hidden patient would remain in the agent's copy.
    """
    if (folder / CARVE_OUT_FILE).is_file():
        return FieldCarveOut.load(folder)
    source, folder = Path(field_set.folder).resolve(), folder.resolve()
    temporary_folder = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary_folder, ignore_errors=True)
    temporary_folder.mkdir(parents=True)
    with undo_on_error(shutil.rmtree, temporary_folder, True):
        carve_out = FieldCarveOut(temporary_folder, field_set.name, source, seed=seed)
        try:
            carve_out = _carve(field_set, carve_out, share)
        except _Undivided as error:
            carve_out = replace(carve_out, no_exam=str(error))
            shutil.rmtree(temporary_folder / AGENT_FOLDER, ignore_errors=True)
            _copy_files(source, _list_files(source), carve_out.agent_folder)
        carve_out.save()
        temporary_folder.rename(folder)
    return replace(carve_out, folder=folder)


class _Undivided(Exception):
    """Why no patient of a set can be hidden."""


def _carve(field_set: FieldSet, carve_out: FieldCarveOut, share: float) -> FieldCarveOut:
    """Read, divide and copy a set; raises _Undivided or DataError."""
    if field_set.should_refuse:
        raise _Undivided("the right answer is to decline")
    task = _write_reference(field_set, carve_out)
    request = FieldCarveRequest(
        carve_out.source, carve_out.reference_folder, carve_out.agent_folder, task, field_set.group_pattern,
        bool(field_set.split_pattern), share, carve_out.seed,
    )  # fmt: skip
    carve_out.agent_folder.mkdir(parents=True)
    with open_reader([carve_out.source, carve_out.folder], writable=[carve_out.folder]) as reader:
        result = reader.run_job(FIELD_CARVE_JOB, request)
        if result.no_exam:
            raise _Undivided(result.no_exam)
        _copy_files(carve_out.source, result.files, carve_out.agent_folder)
        leftovers = reader.run_job(FIELD_VERIFY_JOB, FieldVerifyRequest(carve_out.agent_folder, result.hidden_hashes))
    if leftovers:
        raise DataError(
            f"The agent's copy of {field_set.name} still has files of hidden patients: {', '.join(leftovers[:5])}."
        )
    return replace(
        carve_out, task=task, metric=result.metric, hidden=result.hidden, hidden_patients=result.hidden_patients,
        kept=result.kept, whole_tables=result.whole_tables, withheld=result.withheld,
    )  # fmt: skip


def _write_reference(field_set: FieldSet, carve_out: FieldCarveOut) -> str:
    """Write the index of the whole set to the reference folder; return its task. Raises _Undivided."""
    from m3b.run.dataset_preview import preview_dataset
    from m3b.run.overrides import parse_overrides

    overrides = parse_overrides(Path(field_set.manifest), None) if field_set.manifest else None
    with TemporaryFolder("field") as scratch:
        try:
            preview = preview_dataset(carve_out.source, field_set.request, scratch, overrides=overrides)
        except DataError as error:
            raise _Undivided(f"the set cannot be read: {error}") from error
        if preview.insufficient or not preview.counts:
            raise _Undivided(f"there is no reference reading: {preview.insufficient or preview.decision.text}")
        differences = find_differences(scratch / "work", field_set)
        if differences:
            raise _Undivided(f"the reference reading differs from what is expected: {'; '.join(differences)}")
        shutil.copytree(scratch / "work", carve_out.reference_folder, symlinks=True)
    (carve_out.reference_folder / "data").mkdir(exist_ok=True)
    (carve_out.reference_folder / "data" / "data").symlink_to(carve_out.source, target_is_directory=True)
    return preview.task


def _list_files(folder: Path) -> list[str]:
    """Return all files below a folder, relative to it, without following links."""
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted(path.relative_to(folder).as_posix() for path in paths if path.is_file() and not path.is_symlink())


def _copy_files(source: Path, files: Iterable[str], target: Path) -> None:
    for path in files:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise DataError(f"{path!r} is not a path inside {source}; a file may have manipulated the reader.")
        if not (target / path).exists() and (file := resolve_inside(source, path)) is not None:
            link_or_copy(file, target / path)


def resolve_inside(source: Path, path: str) -> Path | None:
    """Return the file that a path below a folder leads to; None if it is no file, or a link that leads out of the folder."""
    file = (source / path).resolve()
    return file if file.is_relative_to(source.resolve()) and file.is_file() else None


# --- in the reader process ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FieldCarveRequest:
    """The data, its reference index, and where the tables of the agent's copy are written.

    Args:
        has_own_split: whether the split is the set's own, so that patients of both parts are hidden.
    """

    source: Path
    reference: Path
    agent: Path
    task: str
    group_pattern: str
    has_own_split: bool
    share: float
    seed: int


@dataclass(frozen=True)
class FieldCarveResult:
    """The files that belong into the agent's copy unchanged, and the SHA-256 of the hidden ones; the rest as of `FieldCarveOut`."""

    no_exam: str = ""
    metric: str = ""
    hidden: int = 0
    hidden_patients: int = 0
    kept: int = 0
    files: tuple[str, ...] = ()
    whole_tables: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    hidden_hashes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FieldVerifyRequest:
    """The agent's copy, and the SHA-256 of the files that must not be in it."""

    agent: Path
    hidden_hashes: tuple[str, ...]


FIELD_CARVE_JOB = WorkerJob(
    "m3b.bench.field_carving:run_field_carving", FieldCarveRequest, FieldCarveResult, CARVING_TIMEOUT_S
)
FIELD_VERIFY_JOB: WorkerJob[FieldVerifyRequest, list[str]] = WorkerJob(
    "m3b.bench.field_carving:find_hidden_content", FieldVerifyRequest, list[str], CARVING_TIMEOUT_S
)


def run_field_carving(request: FieldCarveRequest) -> FieldCarveResult:
    """Choose the hidden patients, write the tables of the agent's copy, and divide the reference index.

    The result says why if the set cannot be divided. Raises DataError if a table cannot be read.
    """
    from m3b.tasks import get_family

    index = read_index(request.reference, request.task)
    records = [*index.train, *index.test]
    files = {id(record): list_source_files(record, request.source) for record in records}
    content = {path: _hash_file(request.source / path) for paths in files.values() for path in paths}
    patients = _unite_copies(records, files, content, request.group_pattern)
    try:
        hidden_patients = choose_patients(
            _to_raw_cases(index, files, patients, request.has_own_split), request.share, request.seed
        )
    except DataError as error:
        return FieldCarveResult(no_exam=str(error))
    hidden = [record for record in records if patients[id(record)] in hidden_patients]
    kept = [record for record in records if patients[id(record)] not in hidden_patients]
    hidden_files, kept_files = ({path for record in part for path in files[id(record)]} for part in (hidden, kept))
    if shared_files := sorted(hidden_files & kept_files):
        return FieldCarveResult(no_exam=f"one file holds data of all patients: {shared_files[0]}")
    if not all(any(path.startswith(DATA_PREFIX) for path in record.images) for record in records):
        return FieldCarveResult(no_exam="the images were not read from files of the folder")
    removal = FieldRemoval.from_files(request, hidden_files, kept_files)
    workbooks = [path for path in _list_files(request.source) if path.lower().endswith(WORKBOOK_SUFFIXES)]
    case_files = hidden_files | kept_files | set(workbooks)
    copied_files, withheld = write_subset(request.source, request.agent, removal, keep=case_files)
    remove_orphaned_annotations(request.agent)
    hidden_hashes = {content[path] for path in hidden_files}
    copied_files = [
        path
        for path in copied_files
        if (file := resolve_inside(request.source, path)) is not None
        and (path in kept_files or _hash_file(file) not in hidden_hashes)
    ]
    if lost_files := sorted(kept_files - set(copied_files)):
        return FieldCarveResult(no_exam=f"a file of another patient would be removed too: {lost_files[0]}")
    write_records(request.reference / TRAIN, kept, request.task)
    write_records(request.reference / TEST, hidden, request.task)
    metric = get_family(request.task).get_default_metric(index)
    return FieldCarveResult(
        "", metric, len(hidden), len(hidden_patients), len(kept), tuple(copied_files), tuple(workbooks),
        tuple(withheld), tuple(sorted(hidden_hashes)),
    )  # fmt: skip


def list_source_files(record: Record, source: Path) -> list[str]:
    """Return the files of a case in the data folder: images and raw masks; of a folder of slices, all its files."""
    mask = record.mask or ()
    masks = (mask,) if isinstance(mask, str) else tuple(mask.values()) if isinstance(mask, Mapping) else tuple(mask)
    paths = [path.split("#")[0] for path in (*record.images, *masks, *([record.ignored] if record.ignored else []))]
    raw_paths = {path.removeprefix(DATA_PREFIX) for path in paths if path.startswith(DATA_PREFIX)}
    folders = {path for path in raw_paths if (source / path).is_dir()}
    return sorted(raw_paths - folders | {f"{path}/{name}" for path in folders for name in _list_files(source / path)})


def _hash_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _unite_copies(
    records: Sequence[Record], files: Mapping[int, list[str]], content: Mapping[str, str], group_pattern: str
) -> dict[int, str]:
    """Return id of a record -> patient. Cases of one group, or with the same image, are of one patient."""
    first_images = [record.images[0] for record in records]
    groups = extract_groups(first_images, group_pattern) if group_pattern else [None] * len(records)
    names = {
        id(record): group or record.patient or record.images[0] for record, group in zip(records, groups, strict=True)
    }
    parents = {name: name for name in names.values()}

    def find_root(name: str) -> str:
        while parents[name] != name:
            name = parents[name]
        return name

    first_owner: dict[str, str] = {}
    for record in records:
        images = {path.removeprefix(DATA_PREFIX) for path in record.images}
        for path in images & set(files[id(record)]):
            owner = first_owner.setdefault(content[path], names[id(record)])
            parents[find_root(names[id(record)])] = find_root(owner)
    return {key: find_root(name) for key, name in names.items()}


def _to_raw_cases(
    index: Index, files: Mapping[int, list[str]], patients: Mapping[int, str], has_own_split: bool
) -> list[RawCase]:
    """Return the cases by which patients are chosen: of each class, and of both parts of the set's own split."""
    return [
        RawCase(
            record.images[0],
            tuple(files[id(record)]),
            patients[id(record)],
            part if has_own_split else "",
            record.labels,
        )
        for part, records in (("train", index.train), ("test", index.test))
        for record in records
    ]


def strip_any_suffix(name: str) -> str:
    """Return the last part of a path without its suffixes: `scan01` of `a/scan01.nii.gz` and of `scan01.txt`."""
    return _SUFFIXES.sub("", PurePosixPath(name.replace("\\", "/").strip()).name)


@dataclass(frozen=True)
class FieldRemoval(Removal):
    """What is removed from a field set: its layout is known only by the files of its cases.

    Args:
        kept_files: files of other cases, which stay whatever they are called.
        folders: folders that hold files of hidden cases and none of others.
        id_columns: columns and keys whose values name cases.
        group_pattern, groups: files whose group is one of these are hidden.
    """

    kept_files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    id_columns: frozenset[str] = frozenset()
    group_pattern: str = ""
    groups: frozenset[str] = frozenset()

    @classmethod
    def from_files(cls, request: FieldCarveRequest, hidden_files: set[str], kept_files: set[str]) -> FieldRemoval:
        """Return the removal of the files of the hidden cases.

        Only names that no other case has identify a hidden one: `image.png` in each patient's folder does not.
        """
        hidden_names, kept_names = ({strip_any_suffix(path) for path in part} for part in (hidden_files, kept_files))
        hidden_folders, kept_folders = (
            {str(parent) for path in part for parent in PurePosixPath(path).parents}
            for part in (hidden_files, kept_files)
        )
        folders = hidden_folders - kept_folders
        names = hidden_names - kept_names | {PurePosixPath(folder).name for folder in folders}
        names -= {PurePosixPath(folder).name for folder in kept_folders}
        pattern = request.group_pattern
        groups = _find_groups(hidden_files, pattern) - _find_groups(kept_files, pattern)
        names |= groups
        known_names = names | kept_names | {PurePosixPath(folder).name for folder in kept_folders}
        known_names |= _find_groups(kept_files, pattern)
        return cls(
            frozenset(hidden_files), names, kept_files=frozenset(kept_files), folders=frozenset(folders),
            group_pattern=pattern, groups=frozenset(groups), id_columns=frozenset(_find_id_columns(request.source, known_names)),
        )  # fmt: skip

    def is_hidden_path(self, path: str) -> bool:
        """Return whether a file, or a name in a text, belongs to a hidden case: `case_07_reader2.png` to `case_07` too."""
        path = path.replace("\\", "/").removeprefix("./")
        if path in self.kept_files:
            return False
        stem = strip_any_suffix(path)
        beginnings = {stem, *(stem[: match.start()] for match in re.finditer(r"[-_. ]", stem) if match.start() >= 3)}
        if path in self.files or beginnings & self.tokens:
            return True
        if self.groups and _find_group(path, self.group_pattern) in self.groups:
            return True
        return any(str(parent) in self.folders for parent in PurePosixPath(path).parents)

    def is_hidden_row(self, row: dict[str, Any]) -> bool:
        """Return whether a row or record names a hidden case, in a column of identifiers or as a file."""
        for key, value in row.items():
            if not isinstance(value, str) or not value.strip():
                continue
            if (key in self.id_columns or _SUFFIXES.search(value.strip())) and self.is_hidden_path(value.strip()):
                return True
        return False

    def names_file(self, word: str) -> bool:
        """Return whether a word of a text may name a case, with or without suffix. Numbers are coordinates and classes."""
        return not re.fullmatch(r"[-+\d.,:;]+", word)

    def learn_row(self, row: dict[str, Any]) -> None:
        """Learn nothing: what a row of a hidden case names may belong to others too."""


def _find_groups(paths: Iterable[str], pattern: str) -> set[str]:
    if not pattern:
        return set()
    return {group for group in extract_groups([f"/{path}" for path in paths], pattern) if group is not None}


@lru_cache(maxsize=65536)
def _find_group(path: str, pattern: str) -> str | None:
    return extract_groups([f"/{path}"], pattern)[0] if pattern else None


def _find_id_columns(source: Path, known_names: set[str]) -> set[str]:
    """Return the columns and keys of tables and JSON records most of whose values name cases."""
    values: dict[str, Counter[bool]] = defaultdict(Counter)
    for path in _list_files(source):
        for row in _iterate_rows(source / path):
            for key, value in row.items():
                if isinstance(key, str) and isinstance(value, str) and value.strip():
                    values[key][strip_any_suffix(value) in known_names] += 1
    return {key for key, counts in values.items() if counts[True] >= MIN_ID_SHARE * counts.total()}


def _iterate_rows(file: Path) -> Iterable[Mapping[str, Any]]:
    """Yield the rows of a table, or all objects in a JSON file; nothing of other files and of those that cannot be parsed."""
    from m3b.bench.subset import read_table

    suffix = file.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            yield from read_table(file)[1]
        elif suffix == ".json":
            yield from _iterate_objects(json.loads(file.read_text(encoding="utf-8-sig")))
    except (DataError, ValueError, RecursionError):
        return


def _iterate_objects(value: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _iterate_objects(item)


def remove_orphaned_annotations(folder: Path) -> None:
    """Remove the annotations of images that a rewritten COCO file of the agent's copy no longer lists."""
    for path in _list_files(folder):
        if not path.lower().endswith(".json"):
            continue
        value = json.loads((folder / path).read_text(encoding="utf-8"))
        if not isinstance(value, dict) or not all(
            isinstance(value.get(key), list) for key in ("images", "annotations")
        ):
            continue
        ids = {image.get("id") for image in value["images"] if isinstance(image, dict)}
        kept = [item for item in value["annotations"] if isinstance(item, dict) and item.get("image_id") in ids]
        if len(kept) < len(value["annotations"]):
            (folder / path).write_text(json.dumps({**value, "annotations": kept}, ensure_ascii=False), encoding="utf-8")


def find_hidden_content(request: FieldVerifyRequest) -> list[str]:
    """Return the files of the agent's copy whose content is that of a hidden file. Runs in the reader process."""
    hidden_hashes = set(request.hidden_hashes)
    return [path for path in _list_files(request.agent) if _hash_file(request.agent / path) in hidden_hashes]
