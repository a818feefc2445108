"""Writing of files that survives a crash or a power cut, and safe text for terminals and spreadsheets."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO


def write_list_atomically(file: Path, items: Iterable[Any]) -> None:
    """Write a JSON list as `write_text_atomically` does, an item a line, without the whole text in memory."""

    def lines() -> Iterator[str]:
        before = "[\n"
        for item in items:
            yield before + json.dumps(item)
            before = ",\n"
        yield "[]\n" if before == "[\n" else "\n]\n"

    _write_atomically(file, lines())


def iterate_list(file: Path) -> Iterator[Any]:
    """Yield the items of a JSON list in a file of m3b; see `parse_list`. Raises OSError, ValueError."""
    with file.open(encoding="utf-8") as stream:
        yield from parse_list(stream, str(file))


def parse_list(stream: TextIO, name: str) -> Iterator[Any]:
    """Yield the items of a JSON list; of one that `write_list_atomically` wrote, line by line.

    Args:
        stream: can be set back to its beginning.
        name: for errors.

    Raises:
        ValueError: it holds no JSON list.
    """
    if stream.readline() == "[\n":
        first = stream.readline()
        if first.startswith("{") and first.rstrip("\n").endswith(("},", "}")):
            for line in itertools.chain([first], stream):
                if line == "]\n":
                    return
                yield json.loads(line.rstrip("\n").removesuffix(","))
            raise ValueError(f"{name} ends within its list")
    stream.seek(0)
    content = json.load(stream)
    if not isinstance(content, list):
        raise ValueError(f"{name} must be a JSON list; it is a {type(content).__name__}")
    yield from content


def write_text_atomically(file: Path, text: str, *, errors: str = "strict", is_private: bool = False) -> None:
    """Write a file through a temporary one next to it; text and name are on the disk afterwards.

    For m3b's own files in folders that no script can write to; `m3b.isolation.untrusted.write_atomic` is for all others.

    Args:
        errors: handling of characters that cannot be encoded in UTF-8, as for `open`.
        is_private: whether only the owner may read the file, whatever the umask is.
    """
    _write_atomically(file, [text], errors=errors, is_private=is_private)


def _write_atomically(file: Path, parts: Iterable[str], *, errors: str = "strict", is_private: bool = False) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if is_private else 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors=errors) as stream:
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(file.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file such that the new name survives a power cut."""
    source.rename(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk.

    Raises:
        OSError: the folder cannot be opened. File systems that do not support this are ignored.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not supported by this file system
            raise
    finally:
        os.close(handle)


_CONTROL_CODES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
}


_JSON_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON may hold unescaped, although they control a terminal or are not valid UTF-8."""


def escape_control_codes(text: str) -> str:
    """Return a text that cannot control a terminal.

    Control codes, marks that change the direction of writing, and bytes of names that are not UTF-8 are escaped. File
    names, table cells, the output of scripts and the text of models may contain any of these.
    """
    return text.translate(_CONTROL_CODES)


_LINE_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def to_one_line(text: str) -> str:
    """Return the text with control codes, line breaks and tabs escaped, so that a name stays on its line."""
    return escape_control_codes(text).translate(_LINE_BREAKS)


def is_text(name: str) -> bool:
    """Return whether a name is Unicode, which a file name in another encoding is not."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_ONE_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = re.compile(rf"{_ONE_NUMBER}(?: to {_ONE_NUMBER})?|[+-]")
"""A number, an interval, or a sign that stands for no number."""


def csv_cell(value: Any) -> Any:
    """Return a value for a CSV cell, such that no spreadsheet reads it as a formula; control codes are escaped.

    Numbers and intervals (`-0.5 to -0.1`) are unchanged, whether they are numbers or text.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return escape_control_codes(text)


def json_text(value: Any, **options: Any) -> str:
    """Return JSON that is valid UTF-8 and cannot control a terminal; parsers read the same values from it.

    Args:
        options: as for `json.dumps`.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    return _JSON_ESCAPED.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def from_one_line(text: str) -> str:
    """Return the name that `to_one_line` escaped."""
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    return re.sub(
        r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})", lambda match: chr(int(match.group(1) or match.group(2), 16)), text
    )


def list_counts(counts: Mapping[str, int]) -> str:
    """Return counts with their nouns, the largest first, such as `48 images, 1 table`."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in ordered)
