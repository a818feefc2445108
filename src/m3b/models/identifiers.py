"""That a delivered folder names no patient of the data it was made from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from m3b import untrusted

MAX_SEARCHED_BYTES = 32 * 2**20
"""Bytes of one text file that are read, and of one header of weights."""
MIN_ALPHANUMERIC_CHARS, MIN_DIGIT_CHARS = 4, 7
"""Characters from which an identifier is looked for: of letters and digits (or of several words), and of digits alone.
A shorter one, such as 12, or a plain word, such as left, stands in any configuration without naming anybody."""
_TOKEN = re.compile(r"[^\W_](?:[\w.\-]*[^\W_])?")
_TOKEN_PARTS = re.compile(r"[^\W_]+")


def find_patient_identifiers(folder: Path, patients: Iterable[str]) -> list[str]:
    """What in a folder holds a patient's identifier, one sentence a file; the identifier itself is not repeated.

    Looked at are names of files and folders, texts, and the names and notes in safetensors files.

    Args:
        patients: as the index has them.
    """
    identifiers = {
        identifier for identifier in (patient.strip().casefold() for patient in patients) if _is_distinctive(identifier)
    }
    if not identifiers:
        return []
    problems = []
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if _has_identifier(name, identifiers):
            problems.append("the name of a file holds a patient's identifier; deliver no names of cases")
        elif (
            file.is_file()
            and not file.is_symlink()
            and any(_has_identifier(text, identifiers) for text in _searchable_texts(file))
        ):
            problems.append(f"{name} holds a patient's identifier; no identifier may be delivered")
    return problems


def _is_distinctive(patient: str) -> bool:
    if patient.isdigit():
        return len(patient) >= MIN_DIGIT_CHARS
    return len(patient) >= MIN_ALPHANUMERIC_CHARS and not patient.isalpha()


def _has_identifier(text: str, identifiers: set[str]) -> bool:
    """Whether one of `identifiers` stands in a text as a word, or between the marks of a longer one."""
    for match in _TOKEN.finditer(text.casefold()):
        token = match.group()
        if token in identifiers or any(part in identifiers for part in _TOKEN_PARTS.findall(token)):
            return True
    multiword = [identifier for identifier in identifiers if not _TOKEN.fullmatch(identifier)]
    return any(identifier in text.casefold() for identifier in multiword)


def _searchable_texts(file: Path) -> Iterator[str]:
    if file.suffix.lower() == ".safetensors":
        with untrusted.open_file(file.parent, file.name) as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = stream.read(min(length, MAX_SEARCHED_BYTES))
        try:
            yield json.dumps(json.loads(header), ensure_ascii=False)
        except (ValueError, RecursionError):
            return
    elif file.stat().st_size <= MAX_SEARCHED_BYTES:
        yield untrusted.read_text(file.parent, file.name, MAX_SEARCHED_BYTES)
