"""ZIP and TAR archives as folders, also with WebDataset's members (`000.jpg`, `000.cls`): `photos.zip#folder/a.png`.

Members are read one by one into a temporary file; an item that names a folder of the archive is its DICOM series or
stack of slices. Names that are absolute or lead out of the archive, links and devices are no members.
"""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any

from .base import MAX_DECODED_BYTES, Format, Image, ImageInfo, Mask, naming_file, natural_key
from .catalog import find_format, get_format
from .embedded import naming_container
from .errors import DataError

MAX_MEMBERS = 2_000_000
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Member:
    """A regular file in an archive."""

    name: str
    size: int


def is_safe_name(name: str) -> bool:
    """Return whether a member name stays inside the folder that it is extracted to."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return (
        bool(parts)
        and not name.startswith(("/", "\\"))
        and ".." not in parts
        and ":" not in parts[0]
        and "\0" not in name
    )


class ArchiveFormat(Format):
    """An archive whose members are files of other formats."""

    is_container = True

    @abstractmethod
    def open_archive(self, path: Path) -> Any:
        """Return the opened archive, a context manager."""

    @abstractmethod
    def list_archive(self, path: Path) -> tuple[Member, ...]:
        """Return the regular files with safe names."""

    @abstractmethod
    def open_member(self, archive: Any, name: str) -> IO[bytes]:
        """Return a stream of one member."""

    def members(self, path: Path) -> tuple[Member, ...]:
        """Return `list_archive`, cached until the file changes."""
        with naming_file(path):
            state = path.stat()
            return _members_cached(self, str(path), state.st_mtime_ns, state.st_size)

    def items(self, path: Path, limit: int = 1000) -> tuple[str, ...]:
        images = [member.name for member in self.members(path) if find_format(b"", member.name) is not None]
        return tuple(images[:limit])

    @contextmanager
    def extracted(self, path: Path, names: Sequence[str]) -> Iterator[Path]:
        """Extract members into a temporary folder, and yield it.

        Raises:
            DataError: a member is missing, or they need more than one image may use in memory.
        """
        sizes = {member.name: member.size for member in self.members(path)}
        for name in names:
            if name not in sizes:
                near = [
                    member_names
                    for member_names in sizes
                    if PurePosixPath(member_names).name == PurePosixPath(name).name
                ][:3]
                hint = f"; there is {', '.join(near)}" if near else ""
                raise DataError(f"{path}#{name}: the archive has no such file{hint}")
        total = sum(sizes[name] for name in names)
        if total > MAX_DECODED_BYTES:
            raise DataError(
                f"{path}: its {len(names)} members need {total:,} bytes, and {MAX_DECODED_BYTES:,} may be used; unpack the archive"
            )
        with tempfile.TemporaryDirectory(prefix="m3b-") as folder, self.open_archive(path) as archive:
            for name in names:
                target = Path(folder, *PurePosixPath(name.replace("\\", "/")).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with self.open_member(archive, name) as source, target.open("wb") as file:
                    copy_member(source, file, sizes[name], f"{path}#{name}")
            with naming_container(f"{folder}/", f"{path}#"):
                yield Path(folder)

    @contextmanager
    def image_file(self, path: Path, item: str) -> Iterator[tuple[Path, str]]:
        """Yield the extracted file or folder that an item names, and the rest of the item."""
        names = [member.name for member in self.members(path)]
        member_names = set(names)
        name, inner_item = (item, "") if item in member_names else (item.partition("#")[0], item.partition("#")[2])
        if name in member_names:
            stem = name.rpartition(".")[0]
            siblings = [
                sibling for sibling in names if stem and sibling.rpartition(".")[0] == stem and _is_sidecar(sibling)
            ]
            with self.extracted(path, [name, *(sibling for sibling in siblings if sibling != name)]) as folder:
                yield Path(folder, *PurePosixPath(name).parts), inner_item
            return
        folder_members = [sibling for sibling in names if sibling.startswith(name.rstrip("/") + "/")] if name else []
        if not name:
            folder_members = names
            if len(names) == 1:
                with self.extracted(path, names) as folder:
                    yield Path(folder, *PurePosixPath(names[0]).parts), inner_item
                return
        if not folder_members:
            with self.extracted(path, [name]):
                return
        with self.extracted(path, folder_members) as folder:
            yield Path(folder, *PurePosixPath(name).parts), inner_item

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with naming_file(path), self.image_file(path, item) as (file, inner_item):
            return get_format(file).probe(file, inner_item)

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(path), self.image_file(path, item) as (file, inner_item):
            return get_format(file).read(file, inner_item)

    def read_labels(self, path: Path, item: str = "") -> Mask:
        with naming_file(path), self.image_file(path, item) as (file, inner_item):
            return get_format(file).read_labels(file, inner_item)

    def describe(self, path: Path) -> str:
        members = self.members(path)
        suffixes: dict[str, int] = {}
        for member in members:
            suffix = "".join(PurePosixPath(member.name).suffixes[-1:]).lower() or "(no suffix)"
            suffixes[suffix] = suffixes.get(suffix, 0) + 1
        counts = ", ".join(
            f"{count} x {suffix}" for suffix, count in sorted(suffixes.items(), key=lambda pair: -pair[1])[:12]
        )
        total = sum(member.size for member in members)
        return f"{self.name} archive, {len(members):,} files, {total:,} bytes unpacked: {counts}"


def _is_sidecar(name: str) -> bool:
    """Return whether a file may hold the voxels or the header of another one with the same stem."""
    return name.lower().endswith((".raw", ".zraw", ".img", ".hdr", ".mat", ".gz"))


def copy_member(source: IO[bytes], target: IO[bytes], size: int, name: str) -> None:
    """Copy exactly as many bytes as the archive declares."""
    remaining = size
    while remaining and (block := source.read(min(remaining, BLOCK_BYTES))):
        target.write(block)
        remaining -= len(block)
    if remaining:
        raise DataError(f"{name}: is cut off: {remaining:,} of {size:,} bytes are missing; copy the archive again")


@lru_cache(maxsize=16)
def _members_cached(archive_format: ArchiveFormat, path: str, modified: int, size: int) -> tuple[Member, ...]:
    members = archive_format.list_archive(Path(path))
    if len(members) > MAX_MEMBERS:
        raise DataError(f"{path}: has {len(members):,} files; {MAX_MEMBERS:,} can be read; unpack the archive")
    return tuple(sorted(members, key=lambda member: natural_key(member.name)))


class Zip(ArchiveFormat):
    """ZIP archives."""

    name = "zip"
    suffixes = (".zip",)
    magic = ((0, b"PK\x03\x04"), (0, b"PK\x05\x06"))

    def open_archive(self, path: Path) -> Any:
        return zipfile.ZipFile(path)

    def list_archive(self, path: Path) -> tuple[Member, ...]:
        with zipfile.ZipFile(path) as archive:
            return tuple(
                Member(info.filename, info.file_size)
                for info in archive.infolist()
                if not info.is_dir() and is_safe_name(info.filename) and (info.external_attr >> 28) not in (0xA,)
            )

    def open_member(self, archive: Any, name: str) -> IO[bytes]:
        stream: IO[bytes] = archive.open(name)
        return stream


class Tar(ArchiveFormat):
    """TAR archives, plain or compressed; the shards of WebDataset are some."""

    name = "tar"
    suffixes = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
    magic = ((257, b"ustar"),)

    def open_archive(self, path: Path) -> Any:
        return tarfile.open(path, "r:*")

    def list_archive(self, path: Path) -> tuple[Member, ...]:
        with tarfile.open(path, "r:*") as archive:
            members = []
            for info in archive:
                if info.isfile() and is_safe_name(info.name):
                    members.append(Member(info.name, info.size))
                if len(members) > MAX_MEMBERS:
                    break
            return tuple(members)

    def open_member(self, archive: Any, name: str) -> IO[bytes]:
        stream = archive.extractfile(name)
        if stream is None:
            raise DataError(f"{name}: no regular file in the archive")
        return stream  # type: ignore[no-any-return]


FORMATS = (Zip(), Tar())
