"""Zip and tar archives as folders: their members are files of the inventory, and are extracted when they are opened.

In the inventory a member is a path like any other (`scans.zip/images/001.png`); an index names it as `scans.zip#images/001.png`.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from m3b.errors import DataError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_ENDINGS = "|".join(map(re.escape, ARCHIVE_SUFFIXES))
_BOUNDARY = re.compile(rf"(?i)^(.+?(?:{_ENDINGS}))/(.+)$")
ARCHIVE_REGEX = rf"(?i)(?:{_ENDINGS})/"
"""Of paths that may lead into an archive."""
MAX_LISTED = 500_000
"""Members of one archive that are listed."""
MAX_EXTRACTED_BYTES = 8 * 2**30
"""Extracted members that one process keeps."""


def is_archive(path: str) -> bool:
    """Return whether a file's name is that of an archive."""
    return path.lower().endswith(ARCHIVE_SUFFIXES)


def list_members(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of the regular files in an archive. Raises DataError if it cannot be listed."""
    from m3b.dataset.formats import get_format

    members = get_format(path).members(path)  # type: ignore[attr-defined]
    for member in members[:MAX_LISTED]:
        yield member.name, member.size


def split_archive(root: Path, path: str) -> tuple[str, str]:
    """Return the archive that a path leads into and the member, or the path and an empty text."""
    match = _BOUNDARY.match(path)
    while match is not None:
        if (root / match[1]).is_file():
            return match[1], match[2]
        deeper = _BOUNDARY.match(match[2])
        if deeper is None:
            break
        match = re.match(f"(?s)^({re.escape(match[1])}/{re.escape(deeper[1])})/(.+)$", path)
    return path, ""


def to_reference(root: Path, path: str) -> str:
    """Return a path as an index names it: `ARCHIVE#MEMBER` for members of archives."""
    archive, member = split_archive(root, path)
    return f"{archive}#{member}" if member else path


def local_file(root: Path, path: str) -> Path:
    """Return the file of a path below a folder; a member of an archive is extracted first, and kept until the process ends.

    Raises:
        DataError: the archive cannot be read, or its members need more space than one process may use.
    """
    direct = root / path
    if _BOUNDARY.match(path) is None:
        return direct
    archive, member = split_archive(root, path)
    if not member:
        return direct
    state = (root / archive).stat()
    folder = _extraction_folder(str(root / archive), state.st_mtime_ns, state.st_size)
    target = folder.joinpath(*PurePosixPath(member).parts)
    if not target.exists():
        _extract(root / archive, member, folder, target)
    return target


def local_place(root: Path, path: str) -> tuple[Path, str]:
    """Return a folder and a path below it for readers that take both: those given, or those of an extracted member."""
    if _BOUNDARY.match(path) is None or not split_archive(root, path)[1]:
        return root, path
    file = local_file(root, path)
    return file.parent, file.name


def local_reference(root: Path, reference: str) -> str:
    """Return what an index names below a folder as a full path, with members of archives extracted."""
    from m3b.dataset.formats import find_format

    archive, mark, member = reference.partition("#")
    if mark and is_archive(archive):
        name, mark, item = member.partition("#")
        if not mark or find_format(b"", name) is None:  # the mark is a part of the name
            return str(local_file(root, f"{archive}/{member}"))
        return f"{local_file(root, f'{archive}/{name}')}#{item}"
    return str(root / reference)


@lru_cache(maxsize=64)
def _extraction_folder(archive: str, modified: int, size: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="m3b-archive-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_extracted_bytes = 0


def _extract(archive: Path, member: str, folder: Path, target: Path) -> None:
    """Extract one member of a zip; all members of a tar, which must be read from its beginning for each."""
    global _extracted_bytes
    from m3b.dataset.formats import get_format
    from m3b.dataset.formats.archives import copy_member

    archive_format = get_format(archive)
    sizes = {entry.name: entry.size for entry in archive_format.members(archive)}  # type: ignore[attr-defined]
    if member not in sizes:
        raise DataError(f"{archive}#{member}: the archive has no such file")
    names = [member] if archive.suffix.lower() == ".zip" else list(sizes)
    if archive.suffix.lower() == ".zip":
        stem = member.rpartition(".")[0]
        names += [
            name
            for name in sizes
            if name != member and name.rpartition(".")[0] == stem and name.lower().endswith((".img", ".raw", ".hdr"))
        ]
    _extracted_bytes += sum(sizes[name] for name in names)
    if _extracted_bytes > MAX_EXTRACTED_BYTES:
        raise DataError(
            f"{archive}: its members need more than {MAX_EXTRACTED_BYTES // 2**30} GiB; unpack the archive, and name the folder"
        )
    with archive_format.open_archive(archive) as stream:  # type: ignore[attr-defined]
        for name in names:
            file = folder.joinpath(*PurePosixPath(name).parts)
            if file.exists():
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            with archive_format.open_member(stream, name) as source, file.open("wb") as out:  # type: ignore[attr-defined]
                copy_member(source, out, sizes[name], f"{archive}#{name}")
    if not target.exists():
        raise DataError(f"{archive}#{member}: the member cannot be extracted")
