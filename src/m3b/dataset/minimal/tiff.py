"""Minimal copies of TIFF: tags that decoding and geometry do not need are removed, and descriptions reduced to sizes."""

from __future__ import annotations

import html
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from m3b.dataset.minimal.pictures import blank_comments

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_DESCRIPTION, _SUB_PAGES, _COMPRESSION, _OLD_JPEG = 270, 330, 259, 6
_JPEG_KINDS, _JPEG_TABLES = frozenset((7, 33003, 33004, 33005, 33007, 34712)), 347
"""Compressions by JPEG and JPEG 2000, and the tag with what all JPEG streams of a page share."""
_SEGMENT_TAGS = ((273, 279), (324, 325))
"""Tags with the offsets and lengths of strips and of tiles."""
_TAGS = frozenset(
    (
        254, 255, 256, 257, 258, 259, 262, 263, 264, 265, 266, _DESCRIPTION, 273, 274, 277, 278, 279, 280, 281, 282, 283, 284, 286,
        287, 288, 289, 290, 291, 292, 293, 296, 297, 301, 317, 318, 319, 320, 321, 322, 323, 324, 325, _SUB_PAGES, 332, 334, 336,
        338, 339, 340, 341, 342, 347, 529, 530, 531, 532, 32995, 32996, 32997, 32998,
    )
)  # fmt: skip
"""Tags of TIFF 6.0 and its supplements that say how pixels are stored, how large they are and how they lie."""
_OWN_KINDS = ("is_lsm", "is_stk", "is_ndpi", "is_scn", "is_fluoview", "is_nih", "is_vista", "is_bif", "is_eer", "is_philips",
              "is_indica", "is_sis", "is_mdgel", "is_micromanager", "is_fei", "is_sem", "is_astrotiff", "is_streak", "is_tvips",
              "is_pilatus", "is_mediacy", "is_avs", "is_geotiff")  # fmt: skip
"""Kinds of instruments whose own tags tell how pixels are read."""
_IMAGEJ_KEYS = re.compile(
    r"(ImageJ|images|channels|slices|frames|hyperstack|mode|unit|spacing|min|max|loop|axes)=[\w.\\+-]{0,24}"
)
_APERIO_KEYS = re.compile(r"\|\s*(MPP|AppMag)\s*=\s*[\d.]+")
_OME_ELEMENTS = {
    "OME": (), "Image": ("ID",), "Channel": ("ID", "SamplesPerPixel"), "TiffData": ("FirstZ", "FirstC", "FirstT", "IFD", "PlaneCount"),
    "Pixels": ("ID", "DimensionOrder", "Type", "SizeX", "SizeY", "SizeZ", "SizeC", "SizeT", "PhysicalSizeX", "PhysicalSizeXUnit",
               "PhysicalSizeY", "PhysicalSizeYUnit", "PhysicalSizeZ", "PhysicalSizeZUnit", "BigEndian", "Interleaved",
               "SignificantBits", "TimeIncrement", "TimeIncrementUnit"),
}  # fmt: skip
"""Elements of OME-XML that are kept, with their attributes."""
_OME_REFUSED = re.compile(r"[^\w.:+µ-]")


def write_tiff(source: Path, target: Path) -> bool:
    """Copy pixels and the tags that are needed to their places; False for instruments with tags of their own.

    All other bytes of the copy are zero and take no space on the disk.
    """
    import tifffile

    with tifffile.TiffFile(source, _multifile=False) as file:
        if any(getattr(file, kind, False) for kind in _OWN_KINDS):
            return False
        byte_order, is_big = file.byteorder, file.is_bigtiff
        stacks = [
            (int(series.dataoffset), int(series.nbytes)) for series in file.series if series.dataoffset is not None
        ]
    with source.open("rb") as stream, target.open("wb") as copy:
        copy.write(stream.read(16 if is_big else 8))
        copy.truncate(source.stat().st_size)
        jpeg_starts: set[int] = set()
        for page in _Pages(stream, byte_order, is_big):
            if (segments := page.find_segments()) is None:
                return False
            page.write_tags(copy)
            stacks += segments
            if page.is_jpeg:
                jpeg_starts |= {start for start, _ in segments}
        end = 0
        for start, count in sorted(stacks):
            stream.seek(first := max(start, end))
            copy.seek(first)
            end = max(end, start + count)
            remaining = end - first
            while remaining > 0 and (block := stream.read(min(remaining, 2**20))):
                copy.write(blank_comments(block) if remaining == end - first and first in jpeg_starts else block)
                remaining -= len(block)
    return True


@dataclass
class _Entry:
    """A tag of a page: its bytes in the page, and where its value is."""

    code: int
    content: bytes
    value_at: int
    value_bytes: int
    is_outside: bool


class _Page:
    """One page whose tags are rewritten in place: with fewer tags it is shorter, and its values keep their places."""

    def __init__(self, stream: BinaryIO, offset: int, byte_order: str, is_big: bool) -> None:
        self.stream, self.offset, self.order = stream, offset, byte_order
        self.count_format, self.entry_bytes, self.offset_format = ("Q", 20, "Q") if is_big else ("H", 12, "I")
        stream.seek(offset)
        (count,) = self._unpack(self.count_format)
        start, word = offset + struct.calcsize("=" + self.count_format), 8 if is_big else 4
        table = stream.read(count * self.entry_bytes)
        (self.next_offset,) = self._unpack(self.offset_format)
        self.entries = []
        for number in range(count):
            content = table[number * self.entry_bytes :][: self.entry_bytes]
            code, kind = struct.unpack_from(byte_order + "HH", content)
            (items,) = struct.unpack_from(byte_order + self.offset_format, content, 4)
            value_bytes, inline_at = items * _TYPE_BYTES.get(kind, 1), 4 + word
            (value_at,) = struct.unpack_from(byte_order + self.offset_format, content, inline_at)
            is_outside = value_bytes > word
            at = value_at if is_outside else start + number * self.entry_bytes + inline_at
            self.entries.append(_Entry(code, content, at, value_bytes, is_outside))

    def _unpack(self, code: str) -> tuple[int, ...]:
        code = self.order + code
        return struct.unpack(code, self.stream.read(struct.calcsize(code)))

    def _read_numbers(self, code: int) -> list[int]:
        """Return the whole numbers of a tag."""
        numbers: list[int] = []
        for entry in self.entries:
            if entry.code == code:
                (kind,) = struct.unpack_from(self.order + "H", entry.content, 2)
                letter = {3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}[kind]
                values = self._read_value(entry)
                numbers += struct.unpack(f"{self.order}{len(values) // struct.calcsize('=' + letter)}{letter}", values)
        return numbers

    def _read_value(self, entry: _Entry) -> bytes:
        self.stream.seek(entry.value_at)
        return self.stream.read(entry.value_bytes)

    def read_offsets(self) -> list[int]:
        """Return the offsets of pages below this one."""
        return self._read_numbers(_SUB_PAGES)

    @property
    def is_jpeg(self) -> bool:
        """Whether strips or tiles are streams of JPEG or JPEG 2000."""
        return not _JPEG_KINDS.isdisjoint(self._read_numbers(_COMPRESSION))

    def find_segments(self) -> list[tuple[int, int]] | None:
        """Return offset and length of each strip or tile; None if the tags do not say them."""
        segments: list[tuple[int, int]] = []
        for offset_code, count_code in _SEGMENT_TAGS:
            offsets, counts = self._read_numbers(offset_code), self._read_numbers(count_code)
            if len(offsets) != len(counts):
                return None
            segments += zip(offsets, counts, strict=True)
        return segments if segments and self._read_numbers(_COMPRESSION) != [_OLD_JPEG] else None

    def write_tags(self, copy: BinaryIO) -> None:
        """Write the tags that are needed, with their values in the same places; the description is reduced."""
        table = []
        for entry in self.entries:
            if entry.code not in _TAGS:
                continue
            value = self._read_value(entry)
            content = entry.content
            if entry.code == _JPEG_TABLES:
                value = blank_comments(value)
            if entry.code == _DESCRIPTION:
                reduced = reduce_description(value.rstrip(b"\0").decode("utf-8", "replace")).encode()
                if not reduced or len(reduced) >= entry.value_bytes or not entry.is_outside:
                    continue
                value = reduced.ljust(entry.value_bytes, b"\0")
            table.append(content)
            if entry.is_outside:
                copy.seek(entry.value_at)
                copy.write(value)
        copy.seek(self.offset)
        copy.write(struct.pack(self.order + self.count_format, len(table)) + b"".join(table))
        copy.write(struct.pack(self.order + self.offset_format, self.next_offset))


class _Pages:
    """All pages of a file, with those below others; each offset once."""

    def __init__(self, stream: BinaryIO, byte_order: str, is_big: bool) -> None:
        self.stream, self.byte_order, self.is_big = stream, byte_order, is_big

    def __iter__(self) -> Iterator[_Page]:
        self.stream.seek(8 if self.is_big else 4)
        code = self.byte_order + ("Q" if self.is_big else "I")
        waiting, seen = list(struct.unpack(code, self.stream.read(struct.calcsize(code)))), {0}
        while waiting:
            offset = waiting.pop()
            if offset in seen:
                continue
            seen.add(offset)
            page = _Page(self.stream, offset, self.byte_order, self.is_big)
            waiting += [page.next_offset, *page.read_offsets()]
            yield page


def reduce_description(text: str) -> str:
    """Return the part of a description that says how pages make an image and how large pixels are; '' if it has none."""
    if text.startswith("ImageJ="):
        return "".join(match[0] + "\n" for line in text.splitlines() if (match := _IMAGEJ_KEYS.fullmatch(line.strip())))
    if text.startswith("Aperio"):
        size = re.search(r"\d+x\d+", text)
        return f"Aperio\n{size[0] if size else ''}" + "".join(match[0] for match in _APERIO_KEYS.finditer(text))
    if text.lstrip().startswith('{"shape"'):
        try:
            description = json.loads(text)
            shape = description["shape"]
        except (ValueError, KeyError, TypeError):
            return ""
        truncated = {"truncated": True} if description.get("truncated") is True else {}
        return json.dumps({"shape": [int(side) for side in shape], **truncated})
    if text.lstrip().startswith("<") and "<OME" in text[:2000]:
        return _reduce_ome(text)
    return ""


def _reduce_ome(text: str) -> str:
    from xml.etree.ElementTree import ParseError

    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(text)
    except (ParseError, ValueError):
        return ""
    namespace = re.sub(r"[^\w.:/-]", "", root.tag.rpartition("}")[0].lstrip("{"))[:100]
    return _format_element(root, f' xmlns="{html.escape(namespace)}"' if namespace else "")


def _format_element(element: Any, namespace: str = "") -> str:
    name = element.tag.rpartition("}")[2]
    if name not in _OME_ELEMENTS:
        return ""
    attributes = "".join(
        f' {key}="{html.escape(_OME_REFUSED.sub("", element.get(key))[:40])}"'
        for key in _OME_ELEMENTS[name]
        if element.get(key) is not None
    )
    inner = "".join(map(_format_element, element))
    return f"<{name}{namespace}{attributes}>{inner}</{name}>"
