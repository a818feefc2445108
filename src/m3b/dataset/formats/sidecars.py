"""Which other files an image file makes its library open, and a refusal of those that it may not name.

A detached header (MHD, NHDR, an Analyze pair) names the file of its voxels. One that names a list, a pattern, a path or
a link would show the bytes of any file as an image, so only a plain regular file beside the header is accepted. This is
decided by content, before any library opens the file: MHA and NRRD can name another file as well.

The fields of MetaImage and NRRD are read here as MetaIO and teem, the libraries inside SimpleITK, read them: a key stands
at the start of its line and counts by its exact name (`toffset` is not `Offset`). What these libraries would read in
two ways is refused. tests/formats/test_itk_headers.py compares both with SimpleITK.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import DataError

MAX_HEADER_BYTES = 1 << 20
"""Bytes at the start that must hold the whole header."""
MAX_KEY = 255
"""Characters of a MetaImage key; MetaIO cuts longer ones in two."""
MAX_LINE = 700
"""Characters of an NRRD field, or of a key of the file's own: teem puts it into messages of 1,024."""
MAX_SIDE = 1 << 24
"""Voxels along an axis."""
MAX_VOXELS = 1 << 40
MAX_DEFLATE_RATIO = 1100
"""Bytes of voxels that one byte of a file packed by deflate can stand for, at most (zlib: 1032)."""
DATA_FILE_KEY = {"meta": "ElementDataFile", "nrrd": "datafile"}
"""The field that names the file of the voxels."""
LOCAL = ("LOCAL", "Local", "local")
"""Spellings by which MetaIO knows that the voxels follow in the same file."""
_NRRD_FIELDS = frozenset((
    "number", "type", "blocksize", "dimension", "space", "spacedimension", "sizes", "spacings", "thicknesses", "axismins",
    "axismaxs", "spacedirections", "center", "centers", "centering", "centerings", "kinds", "labels", "units", "min", "max",
    "oldmin", "oldmax", "endian", "encoding", "lineskip", "byteskip", "content", "sampleunits", "spaceunits", "spaceorigin",
    "measurementframe", "datafile",
))  # fmt: skip
"""Names of fields, as teem compares them: without case; spaces are left out here."""


@dataclass(frozen=True)
class HeaderField:
    """One field of a text header: its key, its value as the library takes it, and where the value stands in the file."""

    key: str
    value: str
    start: int
    stop: int


def check_plain_file(path: Path) -> None:
    """Refuse a folder, pipe or device, and a sidecar that is a link. A missing file passes: its library says so.

    Raises:
        DataError: says what was found.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise DataError(f"{path}: a folder, pipe or device, not a regular file")


def check_sidecar(path: Path, name: str, *, required: bool) -> Path:
    """Return the path of a data file that a header names. Raises DataError for a link, and if it must exist but does not."""
    data_file = path.parent / name
    try:
        mode = os.lstat(data_file).st_mode
    except OSError:
        if required:
            raise DataError(f"{path}: its data file {name!r} is missing; put it into the same folder") from None
        return data_file
    if not stat.S_ISREG(mode):
        raise DataError(f"{path}: its data file {name!r} is a link or no regular file; put a copy beside it")
    return data_file


def header_kind(path: Path) -> str:
    """Return `meta` or `nrrd` for files whose header is text, by their suffix; "" for others."""
    return {".mha": "meta", ".mhd": "meta", ".nrrd": "nrrd", ".nhdr": "nrrd"}.get(path.suffix.lower(), "")


def find_data_file(path: Path) -> str | None:
    """Return the name of the file beside a MetaImage or NRRD header that holds its voxels; None if they follow in the same.

    Raises:
        DataError: it names something else than one plain file beside it.
    """
    field = _data_field(path)
    return None if field is None else _plain_name(path, field.value)


def rename_data_file(path: Path, name: str) -> bytes:
    """Return the content of a detached header that names `name` as the file of its voxels."""
    content, field = path.read_bytes(), _data_field(path)
    if field is None:
        return content
    return content[: field.start] + name.encode() + content[field.stop :]


def read_header_fields(path: Path) -> list[HeaderField]:
    """Return the fields of a MetaImage or NRRD header in their order, up to the voxels.

    A MetaImage key has its exact spelling; an NRRD key is in lower case and without spaces. Pairs of an NRRD's own
    (`key:=value`) and comments are not among them.

    Raises:
        DataError: a line that the library may read otherwise.
    """
    head = _read_head(path)
    return list(_meta_fields(path, head) if header_kind(path) == "meta" else _nrrd_fields(path, head))


def read_nrrd_pairs(path: Path) -> dict[str, str]:
    """Return the pairs `key:=value` of an NRRD header."""
    head = _read_head(path).partition(b"\n\n")[0].partition(b"\r\n\r\n")[0]
    pairs = re.findall(rb"(?m)^([^#:\r\n]+):=([^\r\n]*)", head)
    return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in pairs}


def _read_head(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_HEADER_BYTES)


def _meta_fields(path: Path, head: bytes) -> Iterator[HeaderField]:
    """As `MET_Read` of MetaIO: `key = value` or `key: value` a line; the field of the data file is the last."""
    for line in re.finditer(rb"[^\n]+", head):
        start, stripped = line.start(), line[0].removesuffix(b"\r")
        if not stripped.strip():
            continue
        match = re.match(rb"[ \t\v\f]*([!-9;<>-~](?:[ -9;<>-~]*[!-9;<>-~])?)[ \t]*[=:]", stripped)
        if not match or len(match[1]) > MAX_KEY or b"\r" in stripped or b"\0" in stripped:
            raise DataError(
                f"{path}: its header has the line {_quote_line(stripped)}, which is no key and value; not opened"
            )
        value = stripped[match.end() :].lstrip(b"=: \t")
        first = start + len(stripped) - len(value)
        value = value.rstrip(b" \t")
        yield HeaderField(match[1].decode(), os.fsdecode(value), first, first + len(value))
        if match[1].decode() == DATA_FILE_KEY["meta"]:
            return


def _nrrd_fields(path: Path, head: bytes) -> Iterator[HeaderField]:
    """As teem: `field: value` a line, which ends at any line break; the first empty line ends the header."""
    if not head.startswith(b"NRRD"):
        raise DataError(f"{path}: does not begin with NRRD")
    ended = len(head) < MAX_HEADER_BYTES
    for line in re.finditer(rb"([^\r\n]*)(?:\r\n|\r|\n|\Z)", head):
        start, stripped = line.start(), line[1]
        if not stripped:
            ended = True
            break
        name, mark, value = stripped.partition(b": ")
        key = "".join(name.decode("latin-1").lower().split(" "))
        if start == 0 or stripped.startswith(b"#"):
            continue
        if not mark or key not in _NRRD_FIELDS:
            own_key, pair, _ = stripped.partition(b":=")
            if not pair or len(own_key) > MAX_LINE:
                raise DataError(f"{path}: its header has the line {_quote_line(stripped)}, which is no field of NRRD")
            continue
        value = value.lstrip(b" \t")
        if b"\0" in stripped:
            raise DataError(f"{path}: its header has the line {_quote_line(stripped)} with a zero byte; not opened")
        yield HeaderField(key, os.fsdecode(value), start + len(stripped) - len(value), start + len(stripped))
    if not ended:
        raise DataError(f"{path}: its header is longer than {MAX_HEADER_BYTES} bytes")


def _quote_line(line: bytes) -> str:
    return repr(line[:60].decode("latin-1"))


def _data_field(path: Path) -> HeaderField | None:
    kind = header_kind(path)
    fields = [field for field in read_header_fields(path) if field.key == DATA_FILE_KEY[kind]]
    if kind == "meta":
        if not fields:
            raise DataError(f"{path}: its header does not say where the voxels are")
        return None if fields[0].value in LOCAL else fields[0]
    if len(fields) > 1:
        raise DataError(f"{path}: its header names {len(fields)} data files; not opened")
    return fields[0] if fields else None


def _plain_name(path: Path, name: str) -> str:
    """Return the name of one plain file beside the header. `-` is the standard input to teem, `~` begins a path to MetaIO."""
    is_unsafe = not name or name.upper().startswith("LIST") or any(mark in "/\\%\x7f" or mark < " " for mark in name)
    if is_unsafe or name in (".", "..", "-") or name.startswith("~"):
        raise DataError(f"{path}: its voxels are in {name[:80]!r}, not in one plain file beside it; not opened")
    return name
