"""Writing files so that a crash or a power cut leaves the old one or the new one."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any


def write_text_atomically(file: Path, text: str, *, errors: str = "strict", is_private: bool = False) -> None:
    """Write a file by way of a temporary one beside it; both the text and its name are on the disk afterwards.

    For files of m3b's own, in folders that no script writes to; `m3b.untrusted.write_atomic` is for the others.

    Args:
        errors: what becomes of characters that UTF-8 does not have, as for `open`.
        is_private: readable for its owner alone, whatever the umask is.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if is_private else 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors=errors) as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(file.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename so that the new name stays after a power cut."""
    source.rename(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk.

    Raises:
        OSError: the folder cannot be opened. File systems that know no such thing are left alone.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # nothing to wait for here
            raise
    finally:
        os.close(handle)


_CONTROL_CODES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
}


_JSON_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON may hold as they are, although they command a terminal or are no UTF-8."""


def escape_control_codes(text: str) -> str:
    """A text that commands no terminal: control codes, marks that turn the direction of writing, and bytes of names that
    are no UTF-8 are spelled out.

    File names, cells, the output of scripts and the words of models may hold anything.
    """
    return text.translate(_CONTROL_CODES)


_LINE_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def to_one_line(text: str) -> str:
    """As `escape_control_codes`, and what would begin a new line or is no character is spelled out too: a name
    stays within its line."""
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
"""A number, the two ends of an interval, or a mark for no number."""


def csv_cell(value: Any) -> Any:
    """Return a value for a cell of a CSV file: no spreadsheet takes a text for a formula, and control codes are escaped.

    Numbers and intervals (`-0.5 to -0.1`) stay as they are, whether they come as numbers or as text.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return escape_control_codes(text)


def json_text(value: Any, **options: Any) -> str:
    """Return JSON that is UTF-8 and commands no terminal; Python and others read the same values from it.

    Args:
        options: as for `json.dumps`.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    return _JSON_ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def from_one_line(text: str) -> str:
    """The name that `to_one_line` spelled."""
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    return re.sub(
        r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})", lambda match: chr(int(match.group(1) or match.group(2), 16)), text
    )
