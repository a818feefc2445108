"""Mutations of bytes: what keeps a file near its format and still breaks what a reader takes for granted."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path

NUMBERS = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**40,
    2**63,
    2**64 - 1,
)
TOKENS = (
    b"\0", b"\n" * 50, b'"' * 9, b"[" * 3000, b"{" * 500, b"../" * 8, b"NaN", b"-1", b"1e999", b"%s%n", b"\xff\xfe", b"=cmd()",
    b"ElementDataFile = /proc/self/environ", b"data file: /proc/self/environ", b"LIST", b"a" * 5000, b"," * 3000,
)  # fmt: skip


def mutate(content: bytes, other_files: list[bytes], secret: Path, rng: random.Random) -> bytes:
    """One to six mutations of a file; of compressed ones half the time of what they hold."""
    if content[:2] == b"\x1f\x8b" and rng.random() < 0.5:
        return gzip.compress(mutate(gzip.decompress(content), other_files, secret, rng), 1, mtime=0)
    data = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        _once(data, other_files, str(secret).encode(), rng)
    return bytes(data[: 1 << 20])


def _once(data: bytearray, other_files: list[bytes], secret: bytes, rng: random.Random) -> None:
    # most of what matters stands in headers
    end = min(len(data), 400) if rng.random() < 0.6 else len(data)
    at = rng.randrange(end) if end else 0
    match rng.randrange(9):
        case 0 if data:
            data[at] ^= 1 << rng.randrange(8)
        case 1 if data:
            data[at] = rng.randrange(256)
        case 2:
            number = rng.choice(NUMBERS)
            code = rng.choice([form for form in "BHIQ" if number < 256 ** struct.calcsize(form)])
            packed = struct.pack(rng.choice("<>") + code, number)
            data[at : at + len(packed)] = packed
        case 3:
            del data[at:]
        case 4:
            del data[at : at + rng.randint(1, 64)]
        case 5:
            piece = data[at : at + rng.randint(1, 256)]
            data[at:at] = piece * rng.randint(1, 20)
        case 6:
            data[at:at] = rng.choice(TOKENS)
        case 7:
            other_file = rng.choice(other_files)
            start = rng.randrange(max(len(other_file), 1))
            data[at : at + 64] = other_file[start : start + rng.randint(1, 200)]
        case _:
            data[at : at + len(secret)] = secret
