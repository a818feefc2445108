"""Files that belong to an image without being named by the index: the data of a detached header."""

from __future__ import annotations

import os
import re
from pathlib import Path

from m3b.errors import DataError

_DATA_FILE_ENTRIES = {".mhd": re.compile(r"elementdatafile[ \t]*="), ".nhdr": re.compile(r"data ?file:")}
"""How the line of each header begins that names the file of its voxels, in small letters."""
_PAIRS = {".hdr": (".img", ".img.gz"), ".img": (".hdr",)}
WITH_SIDES = (*_DATA_FILE_ENTRIES, *_PAIRS)
HEADER_BYTES = 1 << 20
MAX_NAMES = 100_000
"""Files that one header may name."""
MAX_DIGITS = 20
"""Digits of a number in a pattern of names."""


def sides(file: Path, *, beside: Path | None = None) -> list[str]:
    """Names, relative to its folder, of what is read together with `file`.

    Args:
        beside: the folder in which to look for them, where it is not the file's own.

    Raises:
        DataError: the header names data that lies outside its folder, or more files than a volume has slices.
        OSError: the header cannot be read.
    """
    suffix, folder = file.suffix.lower(), beside or file.parent
    if suffix in _PAIRS:
        stem = file.name[: -len(suffix)]
        return [stem + ending for ending in _PAIRS[suffix] if os.path.isfile(folder / (stem + ending))]
    pattern = _DATA_FILE_ENTRIES.get(suffix)
    if pattern is None:
        return []
    with file.open("rb") as stream:
        text = stream.read(HEADER_BYTES).decode("latin-1")
    try:
        names = _find_names(pattern, text.split("\n"))
    except ValueError as error:
        raise DataError(f"{file.name}: its header {error}. Leave this image out.") from None
    for name in names:
        if name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"{file.name}: its header names data outside its folder ({name!r}). Leave this image out.")
    return [name for name in names if os.path.isfile(folder / name)]  # which answers for impossible names too


def _find_names(pattern: re.Pattern[str], lines: list[str]) -> list[str]:
    """The names in the first line that names any. Lines are matched at their beginning alone: a header may be hostile."""
    for number, line in enumerate(lines):
        if (match := pattern.match(line.lower())) and (value := line[match.end() :].strip()):
            return _expand_entry(value, lines[number + 1 :])
    return []


def _expand_entry(value: str, next_lines: list[str]) -> list[str]:
    """The names that a header's entry stands for: one, a list that follows, or a pattern with first, last and step."""
    words = value.split()
    if value.upper() == "LOCAL" or not words:
        return []
    if words[0].upper() == "LIST":
        if len(next_lines) > MAX_NAMES:
            raise ValueError(f"lists {len(next_lines):,} files")
        return [line.strip() for line in next_lines if line.strip()]
    if "%" in words[0] and len(words) >= 3:
        numbers = [int(word) for word in words[1:4] if _is_whole_number(word)]
        step = numbers[2] if len(numbers) > 2 and numbers[2] > 0 else 1
        placeholder = re.search(r"%0?(\d*)d", words[0])
        if len(numbers) >= 2 and placeholder and numbers[1] - numbers[0] < MAX_NAMES:
            width = int(placeholder.group(1)[:MAX_DIGITS] or 0)
            if width > MAX_DIGITS:
                raise ValueError(f"names files by numbers of {width} digits")
            return [
                f"{words[0][: placeholder.start()]}{n:0{width}d}{words[0][placeholder.end() :]}"
                for n in range(numbers[0], numbers[1] + 1, step)
            ]
    return [value]


def _is_whole_number(word: str) -> bool:
    return len(word) <= MAX_DIGITS and word.removeprefix("-").isascii() and word.removeprefix("-").isdigit()
