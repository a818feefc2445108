"""Files that belong to an image without being named by the index: the data of a detached header."""

from __future__ import annotations

import re
from pathlib import Path

from m3b.errors import DataError

_NAMED = {
    ".mhd": re.compile(r"(?mi)^ElementDataFile\s*=\s*(.+?)\s*$"),
    ".nhdr": re.compile(r"(?mi)^data ?file:\s*(.+?)\s*$"),
}
_PAIRS = {".hdr": (".img", ".img.gz"), ".img": (".hdr",)}
WITH_SIDES = (*_NAMED, *_PAIRS)
HEADER_BYTES = 1 << 20


def sides(file: Path, *, beside: Path | None = None) -> list[str]:
    """Names, relative to its folder, of what is read together with `file`.

    Args:
        beside: the folder in which to look for them, where it is not the file's own.

    Raises:
        DataError: the header names data that lies outside its folder.
        OSError: the header cannot be read.
    """
    suffix, folder = file.suffix.lower(), beside or file.parent
    if suffix in _PAIRS:
        stem = file.name[: -len(suffix)]
        return [stem + other for other in _PAIRS[suffix] if (folder / (stem + other)).is_file()]
    pattern = _NAMED.get(suffix)
    if pattern is None:
        return []
    with file.open("rb") as stream:
        text = stream.read(HEADER_BYTES).decode("latin-1")
    found = pattern.search(text)
    names = _named(found.group(1), text[found.end() :]) if found else []
    for name in names:
        if name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"{file.name}: its header names data outside its folder ({name!r}). Leave this image out.")
    return [name for name in names if (folder / name).is_file()]


def _named(value: str, rest: str) -> list[str]:
    """The names that a header's entry stands for: one, a list that follows, or a pattern with first, last and step."""
    words = value.split()
    if value.upper() == "LOCAL" or not words:
        return []
    if words[0].upper() == "LIST":
        return [line.strip() for line in rest.splitlines() if line.strip()]
    if "%" in words[0] and len(words) >= 3:
        numbers = [int(word) for word in words[1:4] if word.lstrip("-").isdigit()]
        step = numbers[2] if len(numbers) > 2 and numbers[2] > 0 else 1
        found = re.search(r"%0?(\d*)d", words[0])
        if len(numbers) >= 2 and found and numbers[1] - numbers[0] < 100_000:
            width = int(found.group(1) or 0)
            return [
                f"{words[0][: found.start()]}{n:0{width}d}{words[0][found.end() :]}"
                for n in range(numbers[0], numbers[1] + 1, step)
            ]
    return [value]
