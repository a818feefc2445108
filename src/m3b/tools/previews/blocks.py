"""Whole-file facts of very large text files, a block at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.tools.paths import open_read

_BLOCK = 1 << 18
"""Small enough for block and masks to stay in the processor's cache."""


@dataclass(frozen=True)
class LineCount:
    """`lines` that are not empty, newlines within quotes not counted; `balanced` is false when a quote never closes."""

    lines: int
    balanced: bool


def decode(data: bytes) -> tuple[str, str]:
    """Text and the name of its encoding: a byte order mark decides, else UTF-8, else Windows-1252."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data[: len(data) // 2 * 2 if name == "utf-16" else None].decode(name, "replace"), name
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            continue
    return data.decode("cp1252", "replace"), "cp1252"


def count_lines(path: Path, *, quotes: bool) -> LineCount:
    """Count lines at about the speed of reading.

    With `quotes`, newlines inside of double quotes are not counted, by prefix XOR over bit masks: the way of
    Langdale and Lemire, "Parsing gigabytes of JSON per second", VLDB Journal 28 (2019).
    """
    import numpy as np

    total, inside = 0, False
    last = b"\n\n"
    buffer = bytearray(2 + _BLOCK)
    flags = np.empty(_BLOCK + 2, bool)
    view = memoryview(buffer)
    with open_read(path, path.name) as file:
        while got := file.readinto(view[2:]):
            buffer[:2] = last
            end = got + 2
            data = np.frombuffer(buffer, np.uint8, got, 2)
            if quotes and buffer.find(b'"', 2, end) >= 0:
                count, inside = _outside(data, inside)
                total += count
            elif not inside:
                newline = np.equal(np.frombuffer(buffer, np.uint8, end), 10, out=flags[:end])
                total += int(np.count_nonzero(newline[2:])) - _blank(buffer, newline, end)
            last = bytes(buffer[end - 2 : end])
    return LineCount(total + (last[1:] != b"\n"), not inside)


def _blank(buffer: bytearray, newline: Any, end: int) -> int:
    """Empty lines that end in this block; its first two bytes are the last two of the block before."""
    import numpy as np

    found = int(np.count_nonzero(newline[2:] & newline[1:-1]))
    if buffer.find(b"\r", 0, 4096) >= 0:
        feed = np.frombuffer(buffer, np.uint8, end)[1:-1] == 13
        found += int(np.count_nonzero(newline[2:] & feed & newline[:-2]))
    return found


def _outside(data: Any, inside: bool) -> tuple[int, bool]:
    """Newlines outside of quotes in one block, and whether the block ends within quotes."""
    import numpy as np

    quote = _bits(data == 34)
    within = quote
    for shift in (1, 2, 4, 8, 16, 32):
        within = within ^ (within << np.uint64(shift))
    carry = np.bitwise_xor.accumulate(within >> np.uint64(63))
    before = np.concatenate((np.zeros(1, np.uint64), carry[:-1])) ^ np.uint64(inside)
    within = within ^ (np.uint64(0) - before)
    count = int(np.bitwise_count(_bits(data == 10) & ~within).sum())
    return count, bool(int(np.count_nonzero(data == 34)) % 2) ^ inside


def _bits(flags: Any) -> Any:
    """Booleans packed into 64-bit words, the first in the lowest bit."""
    import numpy as np

    packed = np.packbits(flags, bitorder="little")
    if rest := -len(packed) % 8:
        packed = np.concatenate((packed, np.zeros(rest, np.uint8)))
    return packed.view("<u8")


def spread(path: Path, start: int, places: int, length: int) -> Iterator[bytes]:
    """Whole lines around `places` offsets spread evenly over the file behind `start`, `length` bytes each."""
    with open_read(path, path.name) as file:
        end = os.fstat(file.fileno()).st_size
        step = max((end - start) // (places + 1), 1)
        for index in range(1, places + 1):
            file.seek(start + index * step)
            data = file.read(length)
            first, final = data.find(b"\n"), data.rfind(b"\n")
            if 0 <= first < final:
                yield data[first + 1 : final + 1]
