"""Which other files an image file makes its library open, and a refusal of those that it may not name.

A detached header (MHD, NHDR, an Analyze pair) names the file of its voxels. One that names a list, a pattern, a path or
a link would show the bytes of any file as an image, so only a plain regular file beside the header is accepted. This is
decided by content, before any library opens the file: MHA and NRRD can name another file as well.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

WINDOW = 1 << 20
"""Bytes at the start that must hold the whole header."""

_META = re.compile(rb"ElementDataFile[ \t]*[=:][ \t]*([^\r\n]*)", re.IGNORECASE)
_NRRD = re.compile(rb"data[ \t]*file[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
_LOCAL = b"local"


class HeaderError(ValueError):
    """A file that is not opened because of what it is or names; the message says which and why."""


def check(full: str | Path) -> None:
    """Refuse what is no regular file, and a header whose voxels are not in a plain regular file beside it.

    Raises:
        HeaderError: says what was found. A file that is missing raises nothing here.
    """
    path = Path(full)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise HeaderError(f"{path}: a folder, pipe or device, not a regular file")
    for name in companions(path):
        try:
            beside = os.lstat(path.parent / name)
        except OSError:
            if path.suffix.lower() in (".hdr", ".img"):
                continue  # the library says what is missing
            raise HeaderError(f"{path}: its data file {name!r} is missing") from None
        if not stat.S_ISREG(beside.st_mode):
            raise HeaderError(f"{path}: its data file {name!r} is a link or no regular file; put a copy beside it")


def companions(path: Path) -> tuple[str, ...]:
    """Names of the files beside an image file that its library opens too.

    Raises:
        HeaderError: it names something else than one plain file beside it.
        OSError: it cannot be read.
    """
    kind = path.suffix.lower()
    if kind in (".mha", ".mhd"):
        return _named(path, _META, own=_LOCAL)
    if kind in (".nrrd", ".nhdr"):
        head = _head(path)
        if not head.startswith(b"NRRD"):
            raise HeaderError(f"{path}: does not begin with NRRD")
        if len(head) == WINDOW and b"\n\n" not in head and b"\n\r\n" not in head:
            raise HeaderError(f"{path}: its header is longer than {WINDOW} bytes")
        return _named(path, _NRRD)
    if kind in (".hdr", ".img"):
        other = {".hdr": ".img", ".img": ".hdr", ".HDR": ".IMG", ".IMG": ".HDR"}.get(path.suffix, "")
        return tuple(path.stem + end for end in (other, ".mat") if end)
    return ()


def renamed(path: Path, name: str) -> bytes:
    """The content of a detached header that names `name` as the file of its voxels."""
    field = _META if path.suffix.lower() in (".mha", ".mhd") else _NRRD
    content = path.read_bytes()
    return field.sub(lambda found: found[0][: found.start(1) - found.start()] + name.encode(), content)


def _head(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(WINDOW)


def _named(path: Path, field: re.Pattern[bytes], own: bytes = b"") -> tuple[str, ...]:
    """Every match in the window counts, in comments and in the voxels too: a library may read lines otherwise."""
    found = {value.strip() for value in field.findall(_head(path))}
    if own and not found:
        raise HeaderError(f"{path}: its header does not say where the voxels are")
    names = sorted(_plain(path, value) for value in found if not own or value.lower() != own)
    if len(names) > 1 or (names and len(found) > 1):
        raise HeaderError(f"{path}: its header names several data files ({', '.join(names)}); not opened")
    return tuple(names)


def _plain(path: Path, value: bytes) -> str:
    name = value.decode("utf-8", "replace")
    first = name.split(" ")[0].upper()
    odd = not name or first == "LIST" or any(mark in name for mark in ("/", "\\", "%", "\0"))
    if odd or name in (".", ".."):
        raise HeaderError(f"{path}: its voxels are in {name[:80]!r}, not in one plain file beside it; not opened")
    return name
