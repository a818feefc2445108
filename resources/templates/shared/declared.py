"""What a volume's header declares, held against what can be, before a native library acts on it.

SimpleITK dies of a signal on a MetaImage of a million axes and on an NRRD with an unknown field of a thousand letters, and
never ends on a direction of 1e308. Looked at are numbers of axes, sizes, types, positions and offsets of MetaImage, NRRD,
NIfTI, Analyze and MGH, and whether the file can hold so many voxels.
Formats: https://itk.org/Wiki/MetaIO/Documentation, https://teem.sourceforge.net/nrrd/format.html,
https://nifti.nimh.nih.gov/pub/dist/src/niftilib/nifti1.h and nifti2.h,
https://surfer.nmr.mgh.harvard.edu/fswiki/FsTutorial/MghFormat.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from . import headers
else:  # loaded by its path, for an `images` module that was loaded in the same way
    import sys

    headers = sys.modules[__name__.rsplit("_", 1)[0]].neighbour("headers")

MAX_SIDE = 1 << 24
"""Voxels along an axis."""
MAX_VOXELS = 1 << 40
MAX_NUMBER = 1e9
"""Largest coordinate, spacing or direction; of mm that is a thousand km."""
DEFLATED = 1100
"""Voxels' bytes that one byte of a file packed by deflate can stand for, at most (zlib: 1032)."""
MAX_CHANNELS = 1024

_BYTES = {"char": 1, "uchar": 1, "ascii_char": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "long": 4, "ulong": 4,
          "long_long": 8, "ulong_long": 8, "float": 4, "double": 8}  # fmt: skip
"""Bytes of a MetaImage's voxel by its type, without `MET_` and `_ARRAY`; of those that differ by machine the fewest."""
_WORDS = {
    1: "signed char|int8|int8_t|uchar|unsigned char|uint8|uint8_t",
    2: "short|short int|signed short|signed short int|int16|int16_t|ushort|unsigned short|unsigned short int|uint16|uint16_t",
    4: "int|signed int|int32|int32_t|uint|unsigned int|uint32|uint32_t|float",
    8: "longlong|long long|long long int|signed long long|signed long long int|int64|int64_t|ulonglong|unsigned long long"
    "|unsigned long long int|uint64|uint64_t|double",
}
_NRRD_BYTES = {word: size for size, words in _WORDS.items() for word in words.split("|")}
_NRRD_LISTS = ("spacings", "thicknesses", "axis mins", "axis maxs")
_RAW, _GZIP, _TEXT = ("raw",), ("gzip", "gz"), ("text", "txt", "ascii", "hex")
_NIFTI_BYTES = {2: 1, 4: 2, 8: 4, 16: 4, 32: 8, 64: 8, 128: 3, 256: 1, 512: 2, 768: 4, 1024: 8, 1280: 8, 1536: 16,
                1792: 16, 2048: 32, 2304: 4}  # fmt: skip
"""Bytes of a NIfTI voxel by the code of its type."""
_MGH_BYTES = {0: 1, 1: 4, 3: 4, 4: 2}
"""The same of MGH."""


class DeclaredError(ValueError):
    """A header that no such file can have; the message names the file, the field and what stands there."""


def check(full: str | Path, data: str | Path | None = None) -> None:
    """Refuse a volume whose header declares what cannot be; other formats pass, and so does a file that is missing.

    Args:
        data: the file of the voxels, where it is another.

    Raises:
        DeclaredError: says which field, and what stands there.
    """
    path, name = Path(full), str(full).lower()
    ends: dict[tuple[str, ...], Callable[[Path, int], None]] = {
        (".mha", ".mhd"): _meta,
        (".nrrd", ".nhdr"): _nrrd,
        (".nii", ".nii.gz", ".hdr", ".img", ".img.gz"): _nifti,
        (".mgh", ".mgz"): _mgh,
    }
    for suffixes, look in ends.items():
        if name.endswith(suffixes):
            try:
                look(path, os.stat(data or path).st_size)
            except (OSError, EOFError, gzip.BadGzipFile):
                return  # the library says what it cannot read


# --- numbers ------------------------------------------------------------------------------------------------------


def _whole(path: Path, field: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?\d{1,15}", text) or not low <= int(text) <= high:
        raise DeclaredError(
            f"{path}: its header says {field} {text[:60]!r}; a whole number from {low} to {high} can be"
        )
    return int(text)


def _finite(path: Path, field: str, words: Iterable[str], *, holes: bool = False) -> None:
    """`holes`: whether NaN may stand for no number."""
    for word in words:
        try:
            number = float(word)
        except ValueError:
            number = math.inf
        if not (holes and math.isnan(number)) and not abs(number) <= MAX_NUMBER:
            raise DeclaredError(f"{path}: its header says {field} {word[:60]!r}; a number up to {MAX_NUMBER:g} can be")


def _sizes(path: Path, field: str, words: list[str], axes: int) -> int:
    """The voxels of so many axes."""
    if len(words) != axes:
        raise DeclaredError(f"{path}: its header has {axes} axes, and {len(words)} sizes in {field}")
    return _count(path, [_whole(path, field, word, 1, MAX_SIDE) for word in words])


def _count(path: Path, sizes: Iterable[int]) -> int:
    if (count := math.prod(sizes)) > MAX_VOXELS:
        raise DeclaredError(f"{path}: its header declares {count:,} voxels; more than {MAX_VOXELS:,} are not opened")
    return count


def _fits(path: Path, need: int, have: int) -> None:
    if need > have:
        raise DeclaredError(
            f"{path}: its header declares {need:,} bytes of voxels, and its data can hold {have:,} at most"
        )


# --- MetaImage ----------------------------------------------------------------------------------------------------


def _meta(path: Path, size: int) -> None:
    fields = [(field.key, field.value) for field in headers.fields_of(path)]
    axes = _whole(path, "NDims", _one(path, fields, "NDims"), 2, 4)
    voxels = _sizes(path, "DimSize", _one(path, fields, "DimSize").split(), axes)
    for field in ("ElementNumberOfChannels", "HeaderSize", "CompressedDataSize"):
        for value in _all(fields, field):
            low, high = {"HeaderSize": (-1, size), "CompressedDataSize": (0, size)}.get(field, (1, MAX_CHANNELS))
            number = _whole(path, field, value, low, high)
            voxels *= number if field == "ElementNumberOfChannels" else 1
    for field, numbers in (("TransformMatrix", axes * axes), ("Rotation", axes * axes), ("Orientation", axes * axes),
                           ("Offset", axes), ("Position", axes), ("Origin", axes), ("CenterOfRotation", axes),
                           ("ElementSpacing", axes), ("ElementSize", axes)):  # fmt: skip
        for value in _all(fields, field):
            words = value.split()
            _finite(path, field, words)
            if len(words) < numbers:
                raise DeclaredError(
                    f"{path}: its header has {len(words)} numbers in {field}, and {axes} axes need {numbers}"
                )
    kind = _one(path, fields, "ElementType").upper()
    item = _BYTES.get(kind.removeprefix("MET_").removesuffix("_ARRAY").lower())
    if item is None:
        raise DeclaredError(f"{path}: its header says ElementType {kind[:60]!r}, which is no type of voxels")
    packed = any(value[:1] in "tTyY1" for value in _all(fields, "CompressedData"))
    plain = any(value[:1] in "fFnN0" for value in _all(fields, "BinaryData"))
    _fits(path, voxels if plain else voxels * item, size * DEFLATED if packed else size)


def _all(fields: list[tuple[str, str]], key: str) -> list[str]:
    """Every value that a header has for a key."""
    return [value for name, value in fields if name == key]


def _one(path: Path, fields: list[tuple[str, str]], key: str) -> str:
    values = _all(fields, key)
    if len(values) != 1:
        raise DeclaredError(f"{path}: its header names {key} {len(values)} times; once is right")
    return values[0]


# --- NRRD ---------------------------------------------------------------------------------------------------------


def _nrrd(path: Path, size: int) -> None:
    with path.open("rb") as file:
        first = re.split(rb"[\r\n]", file.read(20))[0].decode("latin-1")
    if not re.fullmatch(r"NRRD000[1-5]", first.strip()):
        raise DeclaredError(f"{path}: begins with {first!r}, which is no version of NRRD")
    fields = _nrrd_values(path)
    axes = _whole(path, "dimension", fields.get("dimension", ""), 2, 5)
    voxels = _sizes(path, "sizes", fields.get("sizes", "").split(), axes)
    for field in _NRRD_LISTS:
        if value := fields.get(field.replace(" ", "")):
            _finite(path, field, value.split(), holes=True)
    for field in ("space directions", "space origin", "measurement frame"):
        if value := fields.get(field.replace(" ", "")):
            _vectors(path, field, value)
    for field, low, high in (("byte skip", -1, size), ("line skip", 0, size), ("space dimension", 1, 4)):
        if value := fields.get(field.replace(" ", "")):
            _whole(path, field, value, low, high)
    kind, encoding = " ".join(fields.get("type", "").lower().split()), fields.get("encoding", "").lower()
    if kind not in _NRRD_BYTES:
        raise DeclaredError(f"{path}: its header says type {kind[:60]!r}, which is no type of voxels")
    need = voxels if encoding in _TEXT else voxels * _NRRD_BYTES[kind]
    if encoding in (*_RAW, *_TEXT, *_GZIP):
        _fits(path, need, size * DEFLATED if encoding in _GZIP else size)


def _nrrd_values(path: Path) -> dict[str, str]:
    """Values of the fields by their names, in lower case and without spaces."""
    values: dict[str, str] = {}
    for field in headers.fields_of(path):
        if field.key in values:
            raise DeclaredError(f"{path}: its header has the field {field.key!r} twice")
        if len(field.value) > headers.MAX_LINE:
            raise DeclaredError(
                f"{path}: its header has {len(field.value)} characters in {field.key!r}; {headers.MAX_LINE} can be"
            )
        values[field.key] = field.value.strip()
    return values


def _vectors(path: Path, field: str, text: str) -> None:
    """Vectors in parentheses of as many finite numbers each; `none` stands for an axis that is not one of space."""
    rest = re.sub(r"\([^()]*\)", " ", text)
    vectors = [found.split(",") for found in re.findall(r"\(([^()]*)\)", text)]
    if any(word.lower() != "none" for word in rest.split()) or len({len(one) for one in vectors}) > 1:
        raise DeclaredError(f"{path}: its header says {field} {text[:60]!r}; vectors of one length can be")
    for one in vectors:
        _finite(path, field, one, holes=True)


# --- NIfTI and Analyze --------------------------------------------------------------------------------------------


def _nifti(path: Path, size: int) -> None:
    head, packed = _start(path)
    for order in "<>":
        length = struct.unpack_from(order + "i", head)[0] if len(head) >= 348 else 0
        if length == 348:
            sizes, (code,) = struct.unpack_from(order + "8h", head, 40), struct.unpack_from(order + "h", head, 70)
            (offset,) = struct.unpack_from(order + "f", head, 108)
        elif length == 540 and len(head) >= 540:
            sizes, (code,) = struct.unpack_from(order + "8q", head, 16), struct.unpack_from(order + "h", head, 12)
            (offset,) = struct.unpack_from(order + "q", head, 168)
        else:
            continue
        _declared_by_nifti(path, sizes, code, offset, size, packed=packed)
        return


def _declared_by_nifti(
    path: Path, sizes: tuple[int, ...], code: int, offset: float, size: int, *, packed: bool
) -> None:
    axes = _whole(path, "dim[0]", str(sizes[0]), 1, 7)
    voxels = _count(path, [_whole(path, f"dim[{n}]", str(sizes[n]), 1, MAX_SIDE) for n in range(1, axes + 1)])
    if code not in _NIFTI_BYTES:
        raise DeclaredError(f"{path}: its header says datatype {code}, which is no type of voxels")
    most = size * DEFLATED if packed else size
    if not 0 <= offset <= most:  # NaN too
        raise DeclaredError(f"{path}: its header says vox_offset {offset}; its data has {most:,} bytes at most")
    if path.suffix.lower() not in (".hdr", ".img"):  # of a pair either file may be asked about
        _fits(path, voxels * _NIFTI_BYTES[code], most)


def _mgh(path: Path, size: int) -> None:
    head, packed = _start(path)
    if len(head) < 284:
        return  # the library says that it is cut off
    _, *sizes, code = struct.unpack_from(">6i", head)
    voxels = _count(path, [_whole(path, f"size {n}", str(one), 1, MAX_SIDE) for n, one in enumerate(sizes, 1)])
    if code not in _MGH_BYTES:
        raise DeclaredError(f"{path}: its header says type {code}, which is no type of voxels")
    _fits(path, voxels * _MGH_BYTES[code], size * DEFLATED if packed else size)


def _start(path: Path) -> tuple[bytes, bool]:
    """The header's bytes, and whether they were packed; of a pair the header beside an image."""
    if ".img" in path.name.lower()[-7:]:
        path = path.with_name(re.sub(r"(?i)\.img(\.gz)?$", ".hdr", path.name))
    with path.open("rb") as file:
        head = file.read(540)
    if head[:2] != b"\x1f\x8b":
        return head, False
    with gzip.open(path) as file:
        return file.read(540), True
