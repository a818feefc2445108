"""Which other files an image file makes its library open, and a refusal of those that it may not name.

A detached header (MHD, NHDR, an Analyze pair) names the file of its voxels. One that names a list, a pattern, a path or
a link would show the bytes of any file as an image, so only a plain regular file beside the header is accepted. This is
decided by content, before any library opens the file: MHA and NRRD can name another file as well.

The fields of MetaImage and NRRD are read here as MetaIO and teem, the libraries inside SimpleITK, read them: a key stands
at the start of its line and counts by its exact name (`toffset` is not `Offset`). What these libraries would read in
two ways is refused. tests/data/test_header_fields.py compares both with SimpleITK.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WINDOW = 1 << 20
"""Bytes at the start that must hold the whole header."""
MAX_KEY = 255
"""Characters of a MetaImage key; MetaIO cuts longer ones in two."""
MAX_LINE = 700
"""Characters of an NRRD field, or of a key of the file's own: teem puts it into messages of 1,024."""
DATA_FILE = {"meta": "ElementDataFile", "nrrd": "datafile"}
"""The field that names the file of the voxels."""
LOCAL = ("LOCAL", "Local", "local")
"""Spellings by which MetaIO knows that the voxels follow in the same file."""
_NRRD_FIELDS = """number type blocksize dimension space spacedimension sizes spacings thicknesses axismins axismaxs
    spacedirections center centers centering centerings kinds labels units min max oldmin oldmax endian encoding lineskip
    byteskip content sampleunits spaceunits spaceorigin measurementframe datafile"""
"""Names of fields, as teem compares them: without case; spaces are left out here."""


class HeaderError(ValueError):
    """A file that is not opened because of what it is or names; the message says which and why."""


@dataclass(frozen=True)
class Field:
    """One field of a text header: its key, its value as the library takes it, and where the value stands in the file."""

    key: str
    value: str
    start: int
    stop: int


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
    if format_of(path):
        field = _data_field(path)
        return () if field is None else (_plain(path, field.value),)
    if path.suffix.lower() in (".hdr", ".img"):
        other = {".hdr": ".img", ".img": ".hdr", ".HDR": ".IMG", ".IMG": ".HDR"}.get(path.suffix, "")
        return tuple(path.stem + end for end in (other, ".mat") if end)
    return ()


def renamed(path: Path, name: str) -> bytes:
    """The content of a detached header that names `name` as the file of its voxels."""
    content, field = path.read_bytes(), _data_field(path)
    if field is None:
        return content
    return content[: field.start] + name.encode() + content[field.stop :]


# --- fields -------------------------------------------------------------------------------------------------------


def format_of(path: Path) -> str:
    """`meta` or `nrrd` for files whose header is text, by their ending; empty for others."""
    return {".mha": "meta", ".mhd": "meta", ".nrrd": "nrrd", ".nhdr": "nrrd"}.get(path.suffix.lower(), "")


def fields_of(path: Path) -> list[Field]:
    """The fields of a MetaImage or NRRD header in their order, up to the voxels.

    A MetaImage key has its exact spelling; an NRRD key is in lower case and without spaces. Pairs of an NRRD's own
    (`key:=value`) and comments are left out.

    Raises:
        HeaderError: a line that the library may read otherwise.
        OSError: it cannot be read.
    """
    head = _head(path)
    return list(_meta_fields(path, head) if format_of(path) == "meta" else _nrrd_fields(path, head))


def _head(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(WINDOW)


def _meta_fields(path: Path, head: bytes) -> Iterator[Field]:
    """As `MET_Read` of MetaIO: `key = value` or `key: value` a line; the field of the data file is the last."""
    for line in re.finditer(rb"[^\n]+", head):
        start, bare = line.start(), line[0].removesuffix(b"\r")
        if not bare.strip():
            continue
        found = re.match(rb"[ \t\v\f]*([!-9;<>-~](?:[ -9;<>-~]*[!-9;<>-~])?)[ \t]*[=:]", bare)
        if not found or len(found[1]) > MAX_KEY or b"\r" in bare or b"\0" in bare:
            raise HeaderError(f"{path}: its header has the line {_shown(bare)}, which is no key and value; not opened")
        value = bare[found.end() :].lstrip(b"=: \t")
        first = start + len(bare) - len(value)
        value = value.rstrip(b" \t")
        yield Field(found[1].decode(), os.fsdecode(value), first, first + len(value))
        if found[1].decode() == DATA_FILE["meta"]:
            return


def _nrrd_fields(path: Path, head: bytes) -> Iterator[Field]:
    """As teem: `field: value` a line, which ends at any line break; the first empty line ends the header."""
    if not head.startswith(b"NRRD"):
        raise HeaderError(f"{path}: does not begin with NRRD")
    ended = len(head) < WINDOW
    for line in re.finditer(rb"([^\r\n]*)(?:\r\n|\r|\n|\Z)", head):
        start, bare = line.start(), line[1]
        if not bare:
            ended = True
            break
        name, mark, value = bare.partition(b": ")
        key = "".join(name.decode("latin-1").lower().split(" "))
        if start == 0 or bare.startswith(b"#"):
            continue
        if not mark or key not in _NRRD_FIELDS.split():
            own, pair, _ = bare.partition(b":=")
            if not pair or len(own) > MAX_LINE:
                raise HeaderError(f"{path}: its header has the line {_shown(bare)}, which is no field of NRRD")
            continue
        value = value.lstrip(b" \t")
        if b"\0" in bare:
            raise HeaderError(f"{path}: its header has the line {_shown(bare)} with a zero byte; not opened")
        yield Field(key, os.fsdecode(value), start + len(bare) - len(value), start + len(bare))
    if not ended:
        raise HeaderError(f"{path}: its header is longer than {WINDOW} bytes")


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("latin-1"))


def _data_field(path: Path) -> Field | None:
    """The field that names another file; None where the voxels follow in the same one."""
    kind = format_of(path)
    named = [field for field in fields_of(path) if field.key == DATA_FILE[kind]]
    if kind == "meta":
        if not named:
            raise HeaderError(f"{path}: its header does not say where the voxels are")
        return None if named[0].value in LOCAL else named[0]
    if len(named) > 1:
        raise HeaderError(f"{path}: its header names {len(named)} data files; not opened")
    return named[0] if named else None


def _plain(path: Path, name: str) -> str:
    """The name of one plain file beside the header. `-` is the standard input to teem, `~` begins a path to MetaIO."""
    odd = not name or name.upper().startswith("LIST") or any(mark in "/\\%\x7f" or mark < " " for mark in name)
    if odd or name in (".", "..", "-") or name.startswith("~"):
        raise HeaderError(f"{path}: its voxels are in {name[:80]!r}, not in one plain file beside it; not opened")
    return name
