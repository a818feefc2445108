"""Zip archives: those of clients are unpacked in the reader, within limits; answers of several files are packed."""

from __future__ import annotations

import itertools
import re
import shutil
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from m3b.errors import DataError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader

_SUFFIX = re.compile(r"(\.[A-Za-z0-9]{1,10})?\.[A-Za-z0-9]{1,10}$")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
MAX_NAME_CHARS, MAX_STORED_CHARS = 400, 100
_SKIPPED = ("DICOMDIR", "__MACOSX")


def get_suffix(name: str) -> str:
    """Return the suffix of a client's file name in lower case, such as `.nii.gz`; empty if it has none that is safe."""
    match = _SUFFIX.search(name.lower())
    if match is None:
        return ""
    return match[0] if match[0].endswith(".gz") else f".{match[0].rpartition('.')[2]}"


def make_unique_name(name: str, used_names: Collection[str]) -> str:
    """Return a name, with a number behind it if it is taken."""
    numbers = itertools.count(len(used_names) + 1)
    candidate = name
    while candidate in used_names:
        candidate = f"{name} ({next(numbers)})"
    return candidate


def clean_member_path(path: PurePosixPath) -> str:
    """Return a path of an archive without root and `..`."""
    return "/".join(part for part in path.parts if part not in ("/", "//", ".."))[-MAX_NAME_CHARS:]


@dataclass(frozen=True)
class UnpackRequest:
    """An archive, the folder for its content, and limits; see `unpack_zip`."""

    archive: Path
    folder: Path
    max_bytes: int
    max_files: int


@dataclass(frozen=True)
class UnpackedFiles:
    """Files and folders below the folder -> their paths in the archive; or the code of what is wrong with it."""

    names: dict[str, str]
    problem: str = ""


_PROBLEMS = {
    "bad_archive": "The archive cannot be unpacked: it is damaged or encrypted.",
    "archive_too_large": "The archive has more files or bytes than this server takes.",
}


def unpack_members(request: UnpackRequest) -> UnpackedFiles:
    """Worker job: write the files of an archive, each in the folder of its own one.

    Folders have numbers. Files keep what is safe of their names, since names tell slices of a volume from single pictures.
    """
    names: dict[str, str] = {}
    used_names: set[str] = set()
    folders: dict[PurePosixPath, str] = {PurePosixPath("."): "."}
    remaining = request.max_bytes
    try:
        with zipfile.ZipFile(request.archive) as archive:
            for member in archive.infolist():
                path = PurePosixPath(member.filename)
                if member.is_dir() or path.name.startswith(".") or any(part in _SKIPPED for part in path.parts):
                    continue
                remaining -= member.file_size
                if len(names) >= request.max_files or remaining < 0:
                    return UnpackedFiles({}, "archive_too_large")
                folder = request.folder / folders.setdefault(path.parent, f"{len(folders):05d}")
                folder.mkdir(exist_ok=True)
                safe_name = _UNSAFE.sub("_", path.name)[-MAX_STORED_CHARS:].lstrip(".-")
                file = folder / safe_name
                if file.exists():
                    file = folder / f"{len(names):05d}_{safe_name}"
                with archive.open(member) as source, file.open("xb") as target:
                    shutil.copyfileobj(source, target)
                name = make_unique_name(clean_member_path(path), used_names)
                used_names.add(name)
                names[file.relative_to(request.folder).as_posix()] = name
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError, ValueError):
        return UnpackedFiles({}, "bad_archive")
    return UnpackedFiles({number: clean_member_path(path) for path, number in folders.items()} | names)


UNPACK_JOB = WorkerJob("m3b.serve.zip_contents:unpack_members", UnpackRequest, UnpackedFiles)


def unpack_zip(archive: Path, folder: Path, max_bytes: int, max_files: int) -> dict[Path, str]:
    """Unpack an archive into a new folder, in a confined reader; return its files and folders with their paths in the archive.

    Raises:
        DataError: it is damaged, encrypted, or over a limit.
    """
    folder.mkdir()
    with open_reader([archive], writable=(folder,)) as reader:
        answer = reader.run_job(UNPACK_JOB, UnpackRequest(archive, folder, max_bytes, max_files))
    if answer.problem:
        raise DataError(_PROBLEMS.get(answer.problem, answer.problem), code=answer.problem)
    return {folder / path: name for path, name in answer.names.items() if not PurePosixPath(path).is_absolute()}


def pack_files(archive: Path, files: Mapping[str, Path]) -> None:
    """Write an archive of files by their names in it."""
    with zipfile.ZipFile(archive, "w") as stream:
        for name, file in files.items():
            stream.write(file, name)
