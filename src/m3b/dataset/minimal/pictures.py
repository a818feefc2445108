"""Minimal copies of PNG, JPEG, WebP, GIF, JPEG 2000 and BMP: parts of the file that hold no pixels are left out."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from m3b.dataset.formats import get_format
from m3b.dataset.formats.pictures import PictureFormat, exif_orientation

_EXIF_TEMPLATE = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0%c\0\0\0\0\0\0\0"
"""EXIF with one tag: the orientation."""
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNKS = frozenset(
    (b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"sBIT", b"gAMA", b"cHRM", b"sRGB", b"acTL", b"fcTL", b"fdAT")
)
_PADDING_CHUNK = b"paDd"
_JFIF, _ADOBE, _COMMENT = 0xE0, 0xEE, 0xFE
_JPEG_TEXTS = frozenset(range(0xE1, 0xF0)) - {0xE8, _ADOBE} | {_COMMENT}
"""Segments without meaning for pixels; APP8 has the colour transform of JPEG-LS."""
_MAX_SEGMENT = 65_000
_WEBP_CHUNKS = frozenset((b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"))
_WEBP_TEXT_FLAGS = 0x20 | 0x08 | 0x04
"""Flags of VP8X that announce an ICC profile, EXIF and XMP."""
_JP2_BOXES = frozenset((b"jP  ", b"ftyp", b"jp2h", b"jp2c"))
_JP2_HEADER_BOXES = frozenset((b"ihdr", b"bpcc", b"colr", b"pclr", b"cmap", b"cdef", b"res "))
_CODE_STREAM, _TILE_START, _STREAM_COMMENT = b"\xff\x4f\xff\x51", b"\xff\x90", b"\xff\x64"


def read_orientation(path: Path) -> int:
    """Return how the picture is turned for display, 1 to 8."""
    file_format = get_format(path)
    assert isinstance(file_format, PictureFormat)
    with file_format.open_picture(path) as picture:
        return exif_orientation(picture)


def make_exif(orientation: int) -> bytes:
    """Return EXIF that holds the orientation alone."""
    return _EXIF_TEMPLATE % orientation


def blank_comments(stream: bytes) -> bytes:
    """Return a JPEG, JPEG-LS or JPEG 2000 stream with zeros in place of comments and application data in front of the pixels.

    Its length stays, so that offsets in the file around it hold. Other streams are returned as they are.
    """
    if stream.startswith(b"\xff\xd8\xff"):
        texts, pixels, skipped = _JPEG_TEXTS, 0xDA, 4
    elif stream.startswith(_CODE_STREAM):
        texts, pixels, skipped = frozenset(_STREAM_COMMENT[1:]), _TILE_START[1], 6
    else:
        return stream
    content, position = bytearray(stream), 2
    while position + 4 <= len(content) and content[position] == 0xFF and content[position + 1] not in (pixels, 0xFF):
        start, stop = position + skipped, position + 2 + struct.unpack_from(">H", content, position + 2)[0]
        if content[position + 1] in texts:
            content[start:stop] = bytes(len(content[start:stop]))
        position = stop
    return bytes(content)


def count_padding(size: int) -> int:
    """Return the number of bytes to the next power of two."""
    return (1 << max(size - 1, 1).bit_length()) - size


# --- PNG ----------------------------------------------------------------------------------------------------------


def write_png(source: Path, target: Path) -> bool:
    """Keep the chunks of pixels, palette and transparency, and the orientation; the pixels become one chunk."""
    content = source.read_bytes()
    kept = [(kind, data) for kind, data in _iterate_png(content) if kind in _PNG_CHUNKS]
    pixels = b"".join(data for kind, data in kept if kind == b"IDAT")
    first = next((position for position, (kind, _) in enumerate(kept) if kind == b"IDAT"), 0)
    chunks = [
        _png_chunk(kind, _cut_deflated(pixels) if position == first else data)
        for position, (kind, data) in enumerate(kept)
        if kind != b"IDAT" or position == first
    ]
    if not chunks or not content.startswith(_PNG_SIGNATURE):
        return False
    if (orientation := read_orientation(source)) > 1:
        chunks.insert(1, _png_chunk(b"eXIf", make_exif(orientation)))
    size = len(_PNG_SIGNATURE) + sum(map(len, chunks)) + 12
    chunks.insert(-1, _png_chunk(_PADDING_CHUNK, bytes(count_padding(size))))
    target.write_bytes(b"".join([_PNG_SIGNATURE, *chunks]))
    return True


def _cut_deflated(stream: bytes) -> bytes:
    """Return a zlib stream without the bytes behind its end."""
    decoder = zlib.decompressobj()
    for start in range(0, len(stream), 2**14):
        decoder.decompress(stream[start : start + 2**14])
        if decoder.eof:
            return stream[: start + 2**14][: -len(decoder.unused_data) or None]
    return stream


def _iterate_png(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = len(_PNG_SIGNATURE)
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        yield kind, content[position + 8 : position + 8 + length]
        position += 12 + length
        if kind == b"IEND":
            return


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# --- JPEG ---------------------------------------------------------------------------------------------------------


def write_jpeg(source: Path, target: Path) -> bool:
    """Keep the segments of the first picture, without application data, comments and previews; and the orientation."""
    content = source.read_bytes()
    if not content.startswith(b"\xff\xd8\xff"):
        return False
    segments = list(_iterate_jpeg(content))
    orientation = read_orientation(source)
    if orientation > 1:
        segments.insert(0, _jpeg_segment(0xE1, b"Exif\0\0" + make_exif(orientation)))
    padding = count_padding(2 + sum(map(len, segments)))
    while padding >= 4:
        length = min(padding, _MAX_SEGMENT) - 4
        segments.insert(0, _jpeg_segment(0xEF, bytes(length)))
        padding -= length + 4
    target.write_bytes(b"".join([b"\xff\xd8", *segments]))
    return True


def _jpeg_segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def _iterate_jpeg(content: bytes) -> Iterator[bytes]:
    """Yield segments and entropy-coded data up to the end of the picture."""
    position = 2
    while position + 4 <= len(content):
        if content[position] != 0xFF:  # a damaged file; decoders go on to the next marker
            position += 1
            continue
        marker = content[position + 1]
        if marker == 0xFF:  # fill bytes
            position += 1
            continue
        if marker == 0xD9:
            break
        (length,) = struct.unpack_from(">H", content, position + 2)
        segment = content[position : position + 2 + length]
        position += 2 + length
        if marker == _JFIF and segment[4:9] == b"JFIF\0":
            yield _jpeg_segment(_JFIF, segment[4:16].ljust(12, b"\0") + b"\0\0")  # without preview
        elif marker == _ADOBE and segment[4:9] == b"Adobe":
            yield _jpeg_segment(_ADOBE, segment[4:16])
        elif not 0xE0 <= marker <= 0xEF and marker != _COMMENT:
            yield segment
        if marker == 0xDA:
            end = _find_scan_end(content, position)
            yield content[position:end]
            position = end
    yield b"\xff\xd9"


def _find_scan_end(content: bytes, position: int) -> int:
    """Return where the entropy-coded data ends: at a marker that is neither a stuffed byte nor a restart."""
    while True:
        position = content.find(b"\xff", position)
        if position < 0 or position + 1 >= len(content):
            return len(content)
        following = content[position + 1]
        if following and not 0xD0 <= following <= 0xD7 and following != 0xFF:
            return position
        position += 1 if following == 0xFF else 2


# --- others -------------------------------------------------------------------------------------------------------


def write_webp(source: Path, target: Path) -> bool:
    """Keep the chunks of pixels, and the orientation."""
    content, chunks, extended = source.read_bytes(), [], b""
    position = 12
    while position + 8 <= len(content):
        kind, length = struct.unpack_from("<4sI", content, position)
        data = content[position + 8 : position + 8 + length]
        if kind == b"VP8X":
            extended = data
        elif kind in _WEBP_CHUNKS:
            chunks.append(_riff_chunk(kind, data))
        position += 8 + length + length % 2
    orientation = read_orientation(source)
    if extended:
        flags = extended[0] & ~_WEBP_TEXT_FLAGS | (0x08 if orientation > 1 else 0)
        chunks.insert(0, _riff_chunk(b"VP8X", bytes((flags,)) + extended[1:]))
        if orientation > 1:
            chunks.append(_riff_chunk(b"EXIF", make_exif(orientation)))
    elif orientation > 1:
        return False
    body = b"WEBP" + b"".join(chunks)
    body += _riff_chunk(b"JUNK", bytes(count_padding(len(body) + 16)))
    target.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    return True


def _riff_chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def write_gif(source: Path, target: Path) -> bool:
    """Keep the frames and how they are shown; comments and application data are left out."""
    content = source.read_bytes()
    if content[:3] != b"GIF":
        return False
    position = 13 + (3 << (content[10] & 7) + 1 if content[10] & 0x80 else 0)
    parts = [content[:position]]
    while position < len(content) and content[position] != 0x3B:
        start, kind = position, content[position : position + 2]
        if content[position] == 0x2C:
            flags = content[position + 9]
            position += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
        elif content[position] == 0x21:
            position += 2
        else:
            return False
        while content[position]:
            position += 1 + content[position]
        position += 1
        if kind[:1] == b"\x2c" or kind == b"\x21\xf9":
            parts.append(content[start:position])
    target.write_bytes(b"".join([*parts, b"\x3b"]))
    return True


def write_jpeg2000(source: Path, target: Path) -> bool:
    """Keep the boxes of pixels and colours, without the comments in front of the first tile."""
    content = source.read_bytes()
    if content.startswith(_CODE_STREAM):
        target.write_bytes(_remove_comments(content))
        return True
    parts = []
    for kind, box in _iterate_boxes(content):
        if kind == b"jp2c":
            parts.append(_jp2_box(kind, _remove_comments(box)))
        elif kind == b"jp2h":
            inner = [_jp2_box(name, data) for name, data in _iterate_boxes(box) if name in _JP2_HEADER_BOXES]
            parts.append(_jp2_box(kind, b"".join(inner)))
        elif kind in _JP2_BOXES:
            parts.append(_jp2_box(kind, box))
    padding = count_padding(sum(map(len, parts)) + 8)
    target.write_bytes(b"".join([*parts, _jp2_box(b"free", bytes(padding))]))
    return True


def _jp2_box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", len(content) + 8, kind) + content


def _iterate_boxes(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of each box. Raise ValueError if one is shorter than its own header."""
    position = 0
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        header = 16 if length == 1 else 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", content, position + 8)
        length = length or len(content) - position
        if length < header:
            raise ValueError("a box of JPEG 2000 is shorter than its header")
        yield kind, content[position + header : position + length]
        position += length


def _remove_comments(stream: bytes) -> bytes:
    """Return a JPEG 2000 code stream without the comments of its main header, up to its end mark."""
    parts, position = [stream[:2]], 2
    while position + 4 <= len(stream) and stream[position : position + 2] != _TILE_START:
        (length,) = struct.unpack_from(">H", stream, position + 2)
        if stream[position : position + 2] != _STREAM_COMMENT:
            parts.append(stream[position : position + 2 + length])
        position += 2 + length
    end = stream.rfind(b"\xff\xd9")
    return b"".join([*parts, stream[position : end + 2 if end > position else len(stream)]])


def write_bmp(source: Path, target: Path) -> bool:
    """Keep headers, palette and pixels: the bytes that the header counts."""
    content = source.read_bytes()
    (size,), (start,) = struct.unpack_from("<I", content, 2), struct.unpack_from("<I", content, 10)
    if not start < size <= len(content):
        return False
    target.write_bytes(content[:size])
    return True
