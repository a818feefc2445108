"""Minimal copies of NIfTI, MGH, NRRD and MetaImage: fields of text are emptied, the voxels copied."""

from __future__ import annotations

import bz2
import gzip
import math
import re
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from m3b.dataset.formats.sidecars import LOCAL, MAX_HEADER_BYTES, header_kind, read_header_fields

_NIFTI1_TEXTS = ((4, 10), (14, 18), (148, 80), (228, 24), (328, 16))
"""Offset and length of data_type, db_name, descrip, aux_file and intent_name (nifti1.h)."""
_NIFTI2_TEXTS = ((240, 80), (320, 24), (508, 16), (525, 15))
_MGH_BYTES = {0: 1, 1: 4, 3: 4, 4: 2, 10: 2}
_META_FIELDS = """
ObjectType ObjectSubType NDims BinaryData BinaryDataByteOrderMSB ElementByteOrderMSB CompressedData CompressedDataSize
CompressionLevel TransformMatrix Rotation Orientation Offset Position Origin CenterOfRotation AnatomicalOrientation
DistanceUnits ElementSpacing ElementSize DimSize HeaderSize ElementNumberOfChannels ElementType ElementMin ElementMax Modality
ElementDataFile
"""
_META_BYTES = {
    "MET_CHAR": 1,
    "MET_UCHAR": 1,
    "MET_SHORT": 2,
    "MET_USHORT": 2,
    "MET_INT": 4,
    "MET_UINT": 4,
    "MET_FLOAT": 4,
}
_META_VALUE = re.compile(r"MET_[A-Z0-9_]+|True|False|Image|LOCAL|Local|local|[RLAPISrlapis?]{1,3}|mm|cm|um|[-+.\deE ]+")
_NRRD_TEXTS = ("content", "labels", "number", "sampleunits")
"""Fields that say nothing about where voxels are and lie."""
_NRRD_UNITS = re.compile(r'(?i)\s*(("(mm|cm|um|\u00b5m|m|s|ms|microns?|millimeters?|)"|\?\?\?|none)\s*)+')
_NRRD_PAIR = re.compile(rb"(?mi)^((?:DWMRI_(?:gradient_\d+|b-value|NEX_\d+):=[-+.\deE \t]*)|modality:=DWMRI)[ \t]*$")
"""Own pairs with physical values: directions and weights of diffusion."""


def write_nifti(source: Path, target: Path) -> bool:
    """Empty the texts and extensions of a header, compressed or not; pairs and Analyze are not copied."""
    with source.open("rb") as file:
        start = file.read(3)
    opener = gzip.open if start[:2] == b"\x1f\x8b" else bz2.open if start == b"BZh" else open
    if re.search(r"(?i)\.(hdr|img)(\.gz)?$", source.name):
        return False  # a pair
    with opener(source, "rb") as stream:
        header = bytearray(stream.read(348))
        order = "<" if struct.unpack_from("<i", header)[0] in (348, 540) else ">"
        fields: tuple[tuple[int, int], ...]
        if struct.unpack_from(order + "i", header)[0] == 540:
            header += stream.read(192)
            sizes, (bits,) = struct.unpack_from(order + "8q", header, 16), struct.unpack_from(order + "h", header, 14)
            data_start, fields = struct.unpack_from(order + "q", header, 168)[0], _NIFTI2_TEXTS
        else:
            sizes, (bits,) = struct.unpack_from(order + "8h", header, 40), struct.unpack_from(order + "h", header, 72)
            data_start, fields = int(struct.unpack_from(order + "f", header, 108)[0]), _NIFTI1_TEXTS
            if bytes(header[344:348]) != b"n+1\0":
                return False
        extensions = data_start - len(header)
        if not 0 <= extensions <= MAX_HEADER_BYTES:
            return False
        for offset, length in fields:
            header[offset : offset + length] = bytes(length)
        stream.read(extensions)
        voxel_bytes = (math.prod(sizes[1 : 1 + sizes[0]]) * bits + 7) // 8
        return _write_compressed(target, opener, bytes(header) + bytes(extensions), stream, voxel_bytes)


def _write_compressed(target: Path, opener: Any, header: bytes, stream: Any, voxel_bytes: int) -> bool:
    """Write header and voxels, compressed as the source is."""
    if opener is gzip.open:
        with target.open("wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as file:
            file.write(header)
            _copy_bytes(stream, file, voxel_bytes)
    else:
        with bz2.open(target, "wb", compresslevel=1) if opener is bz2.open else target.open("wb") as file:
            file.write(header)
            _copy_bytes(stream, file, voxel_bytes)
    return True


def _copy_bytes(source: Any, target: Any, count: int) -> None:
    while count > 0 and (block := source.read(min(count, 2**20))):
        target.write(block)
        count -= len(block)


def _copy_deflated(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a zlib or gzip stream up to its end."""
    decoder = zlib.decompressobj(47)
    while not decoder.eof and (block := source.read(2**18)):
        decoder.decompress(block)
        target.write(block[: len(block) - len(decoder.unused_data)])


def write_mgh(source: Path, target: Path) -> bool:
    """Keep header, voxels and the scan parameters after them; tags with command lines and file names are left out."""
    with source.open("rb") as file:
        opener = gzip.open if file.read(2) == b"\x1f\x8b" else open
    with opener(source, "rb") as stream:
        header = stream.read(90).ljust(284, b"\0")
        stream.read(194)
        _, width, height, depth, frames, code = struct.unpack_from(">6i", header)
        size = math.prod((width, height, depth, frames)) * _MGH_BYTES.get(code, 0)
        if not size:
            return False
        return _write_compressed(target, opener, header, stream, size + 20)


def write_nrrd(source: Path, target: Path) -> bool:
    """Keep the fields of the format; comments, descriptions of the content and own pairs are left out."""
    fields = read_header_fields(source)
    if any(field.key in ("lineskip", "byteskip") and field.value.strip() != "0" for field in fields):
        return False
    with source.open("rb") as file:
        head = file.read(MAX_HEADER_BYTES)
        match = re.search(rb"\n\n|\r\n\r\n|\r\r", head)
        end = match.end() if match else len(head)
        line_starts = [
            max(head.rfind(b"\n", 0, field.start), head.rfind(b"\r", 0, field.start)) + 1 for field in fields
        ]
        lines = [re.split(rb"[\r\n]", head[:20])[0]]
        lines += [
            head[start : field.stop]
            for start, field in zip(line_starts, fields, strict=True)
            if field.key not in _NRRD_TEXTS and ("units" not in field.key or _NRRD_UNITS.fullmatch(field.value))
        ]
        lines += _NRRD_PAIR.findall(head[:end])
        with target.open("wb") as copy:
            copy.write(b"\n".join(lines) + (b"\n\n" if match else b"\n"))
            file.seek(end)
            values = {field.key: field.value for field in fields}
            if match and "datafile" not in values:
                _copy_voxels(file, copy, values["encoding"].lower(), values["sizes"], _nrrd_voxel_bytes(values["type"]))
    return True


def _nrrd_voxel_bytes(name: str) -> int:
    if name in ("float", "double"):
        return 4 if name == "float" else 8
    match = re.search(r"int(8|16|32|64)(_t)?$|(char)$|(short)|(long ?long)", name)
    if not match:
        return 4
    return int(match[1]) // 8 if match[1] else 1 if match[3] else 2 if match[4] else 8


def _copy_voxels(source: BinaryIO, target: BinaryIO, encoding: str, sizes: str, voxel_bytes: int) -> None:
    """Copy voxels and what lies behind them only if their encoding does not say where they end."""
    if encoding in ("raw", "False"):
        _copy_bytes(source, target, math.prod(map(int, sizes.split())) * voxel_bytes)
    elif encoding in ("gzip", "gz", "True"):
        _copy_deflated(source, target)
    else:
        shutil.copyfileobj(source, target, 2**20)


def write_metaimage(source: Path, target: Path) -> bool:
    """Keep the fields of the format that say where voxels are and lie."""
    if header_kind(source) != "meta":
        return False
    fields = read_header_fields(source)
    if not fields or any(field.key == "HeaderSize" and int(field.value) > 0 for field in fields):
        return False
    values = {field.key: field.value for field in fields}
    is_detached = values["ElementDataFile"] not in LOCAL
    kept = [
        field
        for field in fields
        if field.key in _META_FIELDS.split() and (field is fields[-1] or _META_VALUE.fullmatch(field.value))
    ]
    with source.open("rb") as file, target.open("wb") as copy:
        copy.write("".join(f"{field.key} = {field.value}\n" for field in kept).encode())
        if not is_detached:
            data_start = fields[-1].stop
            file.seek(data_start)
            following = file.read(2)
            file.seek(data_start + following.find(b"\n") + 1)
            channels = int(values.get("ElementNumberOfChannels", 1))
            voxel_bytes = channels * _META_BYTES.get(values.get("ElementType", ""), 8)
            _copy_voxels(file, copy, values.get("CompressedData", "False"), values["DimSize"], voxel_bytes)
    return True
