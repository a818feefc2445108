"""ZIP, tar and gzip archives: what is in them; they are not unpacked."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import IO, Any

from m3b.data.patterns import extension, group_names
from m3b.data.phi import Phi
from m3b.errors import ToolError
from m3b.tools.paths import open_for_reading
from m3b.tools.text import format_bytes, pluralize

_MAX_MEMBERS = 100_000
_UNPACKED = 2**30
"""Bytes of a compressed tar archive that are unpacked to see its members."""
_LIST = 2**26
_ELSEWHERE = 2**32 - 1
"""The length of a list of members whose real length stands in a ZIP64 record."""
_END = 2**16 + 22
"""Where a ZIP archive's end record can begin, from its end."""


def preview(path: Path, phi: Phi) -> list[str]:
    """Members grouped by pattern, and their unpacked size."""
    with open_for_reading(path, path.name) as raw:
        file = BufferedReader(raw, 1 << 20)
        if zipfile.is_zipfile(file):
            with open_zip(file) as archive:
                members = [(member.filename, member.file_size) for member in archive.infolist() if not member.is_dir()]
            return _describe_members("ZIP archive", members)
        file.seek(0)
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        source: Any = _Limited(gzip.GzipFile(fileobj=file) if packed else file, _UNPACKED if packed else 2**62)
        return _tar(path, source)


def open_zip(file: IO[bytes]) -> zipfile.ZipFile:
    """A ZIP archive whose list of members is not so long that reading it takes minutes.

    Raises:
        ToolError: it is.
    """
    file.seek(0, 2)
    length = file.tell()
    file.seek(max(0, length - _END))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    list_length = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if _LIST <= list_length < _ELSEWHERE:
        raise ToolError("its list of members is larger than 64 MiB; look at it with a script")
    file.seek(0)
    return zipfile.ZipFile(file)


class _Limited:
    """A stream that ends after so many bytes, as a bomb would not."""

    def __init__(self, source: Any, max_bytes: int) -> None:
        self._source, self.left = source, max_bytes

    def read(self, count: int = -1) -> bytes:
        block: bytes = self._source.read(min(self.left, count if count >= 0 else self.left))
        self.left -= len(block)
        return block


def _tar(path: Path, source: _Limited) -> list[str]:
    members: list[tuple[str, int]] = []
    try:
        with tarfile.open(fileobj=source, mode="r|") as tape:  # type: ignore[call-overload]
            for member in islice(_tape(tape), _MAX_MEMBERS):
                members.append(member)
    except (tarfile.TarError, EOFError, OSError, zlib.error):
        if not members:
            kind = extension(path.stem)
            return [f"compressed file{' of ' + kind if kind else ''}; unpack it with a script"]
    lines = _describe_members("tar archive", members)
    return lines if source.left else [f"{lines[0]}; only its first {format_bytes(_UNPACKED)} were unpacked", *lines[1:]]


def _tape(tape: tarfile.TarFile) -> Iterator[tuple[str, int]]:
    for member in tape:
        if member.isfile():
            yield member.name, member.size


def _describe_members(kind: str, members: list[tuple[str, int]]) -> list[str]:
    total = sum(length for _, length in members)
    note = " or more" if len(members) == _MAX_MEMBERS else ""
    lines = [
        f"{kind}, {pluralize(len(members), 'file')}{note}, {format_bytes(total)} unpacked; "
        "unpack it with a script into the working folder"
    ]
    groups = sorted(group_names([name for name, _ in members]), key=lambda group: -group.count)
    lines += [f"{group.format_ranges()}" + (f" x {group.count:,}" if group.count > 1 else "") for group in groups[:20]]
    return lines + ([f"... {len(groups) - 20} more patterns"] if len(groups) > 20 else [])
