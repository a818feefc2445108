"""ZIP, tar and gzip archives: what is in them; they are not unpacked."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from m3b.tools.patterns import extension, group_names
from m3b.tools.phi import Phi
from m3b.tools.text import plural, size

_MOST_MEMBERS = 100_000


def preview(path: Path, phi: Phi) -> list[str]:
    """Members grouped by pattern, and their unpacked size."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = [(one.filename, one.file_size) for one in archive.infolist() if not one.is_dir()]
        return _listed("ZIP archive", members)
    try:
        with tarfile.open(path, "r|*") as tape:
            return _listed("tar archive", list(islice(_tape(tape), _MOST_MEMBERS)))
    except tarfile.TarError:
        return [
            f"compressed file{' of ' + extension(path.stem) if extension(path.stem) else ''}; unpack it with a script"
        ]


def _tape(tape: tarfile.TarFile) -> Iterator[tuple[str, int]]:
    for member in tape:
        if member.isfile():
            yield member.name, member.size


def _listed(kind: str, members: list[tuple[str, int]]) -> list[str]:
    total = sum(length for _, length in members)
    note = " or more" if len(members) == _MOST_MEMBERS else ""
    lines = [
        f"{kind}, {plural(len(members), 'file')}{note}, {size(total)} unpacked; "
        "unpack it with a script into the working folder"
    ]
    groups = sorted(group_names([name for name, _ in members]), key=lambda one: -one.count)
    lines += [f"{one.shown()}" + (f" x {one.count:,}" if one.count > 1 else "") for one in groups[:20]]
    return lines + ([f"... {len(groups) - 20} more patterns"] if len(groups) > 20 else [])
